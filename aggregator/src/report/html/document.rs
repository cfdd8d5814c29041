//! What pages share: the head with its policy and style, figures and tables.

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The style sheet of all pages.
pub(crate) const STYLE: &str = include_str!("../style.css");

/// What a page begins with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head<'a> {
    /// Its title in the browser.
    pub(crate) title: &'a str,
    pub(crate) heading: &'a str,
    /// The sentence below the heading.
    pub(crate) lead: &'a str,
    /// Seconds after which it is loaded again, if it changes.
    pub(crate) refresh: Option<u32>,
}

/// What every page tells the browser first.
pub(crate) fn metas() -> Markup {
    html! {
        meta charset="utf-8";
        meta name="viewport" content="width=device-width, initial-scale=1";
        meta name="color-scheme" content="light dark";
    }
}

/// A page of its own, as UTF-8 text: no script and no external resource, which its own policy forbids.
pub(crate) fn document(head: &Head<'_>, body: &Markup, footer: &Markup) -> String {
    let Head { title, heading, lead, refresh } = head;
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                (metas())
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                @if let Some(seconds) = refresh { meta http-equiv="refresh" content=(seconds); }
                title { (title) }
                style { (PreEscaped(STYLE)) }
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

/// One figure of a summary: its name, its value, and notes, which stand on lines of their own rather than break within.
pub(crate) fn figure(name: &str, value: &str, notes: &[String]) -> Markup {
    html! { div { dt { (name) } dd { (value) } dd.note { @for note in notes { span { (note) } " " } } } }
}

/// A table that is folded away under `title`: rows with their names and their `td` cells.
pub(super) fn folded_table(
    title: &str,
    headings: &[&str],
    rows: impl Iterator<Item = (String, Markup)>,
) -> Markup {
    html! {
        details {
            summary { (title) }
            div.scroll {
                table {
                    thead { tr { @for heading in headings { th scope="col" { (heading) } } } }
                    tbody { @for (name, cells) in rows { tr { th scope="row" { (name) } (cells) } } }
                }
            }
        }
    }
}
