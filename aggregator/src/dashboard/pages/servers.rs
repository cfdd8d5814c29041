//! Runs that this server serves with others: what they wait for, which server leads, and how many devices each has.

use maud::{Markup, html};

use super::ago;
use crate::leaves::shown::Together;
use crate::report::units::grouped;

/// A card for each of them.
pub(super) fn show(all: &[Together], now: i64) -> Markup {
    html! { @for together in all { (card(together, now)) } }
}

fn card(together: &Together, now: i64) -> Markup {
    let Together { run, shown } = together;
    let (heard, is_new) = (ago(shown.told, now), together.is_new(now));
    html! {
        section.card.alarm[!is_new] {
            h2 { (run) }
            p { (shown.text) }
            div.scroll {
                table {
                    thead { tr { th.text scope="col" { "server" } th scope="col" { "devices" } th.text scope="col" {} } }
                    tbody { @for server in &shown.servers { tr {
                        th.text scope="row" { (server.address) }
                        td { (grouped(server.devices)) }
                        td.text { @if server.address == shown.leads { "leads" } }
                    } } }
                }
            }
            @if is_new {
                p.note { "As " (shown.leads) " said " (heard) ". The rounds are on its page, and on that of every server when the run is over." }
            } @else {
                p role="alert" {
                    "This server does not hear " (shown.leads) ", which led last. Either it does not run, or it has no link to that one: start "
                    "it, or check the link."
                }
                p.note { "The last word came " (heard) "." }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_hear_the_one_that_leads_says_so() {
        let together = [Together::example()];
        let page = show(&together, 1_003_000).into_string();
        assert!(page.contains("waiting for clients: 3 of 4 connected"), "{page}");
        assert!(page.contains("a.example:4433 said <time") && !page.contains("alert"), "{page}");
        let page = show(&together, 1_060_000).into_string();
        assert!(page.contains("role=\"alert\"") && page.contains("section class=\"card alarm\""), "{page}");
    }
}
