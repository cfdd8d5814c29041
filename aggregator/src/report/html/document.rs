//! What every page has: its head, its policy and its style.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// A page of its own, as UTF-8 text: no script and no external resource, which its own policy forbids.
pub(crate) fn document(title: &str, heading: &str, lead: &str, body: &Markup, footer: &Markup) -> String {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (title) }
                style { (PreEscaped(include_str!("../style.css"))) }
            }
            body {
                header {
                    h1 { (heading) }
                    p.lead { (lead) }
                }
                main { (body) }
                footer { (footer) }
            }
        }
    }
    .into_string()
}
