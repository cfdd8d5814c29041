//! The alarm of a run in which one device had most of the weight, or would have had it.

use std::collections::BTreeMap;

use maud::{Markup, html};
use shared::id::ClientId;

use crate::report::units::counted;
use crate::round::{Dominance, RoundRecord};

/// One line for each device, those of most rounds first; nothing if there is none.
pub(super) fn alarm(rounds: &[RoundRecord]) -> Markup {
    let mut devices: BTreeMap<ClientId, (usize, u32, &Dominance)> = BTreeMap::new();
    for record in rounds {
        let Some(dominance) = &record.dominance else { continue };
        let (count, round, newest) = devices.entry(dominance.client).or_insert((0, record.round, dominance));
        (*count, *round, *newest) = (*count + 1, record.round, dominance);
    }
    let mut devices: Vec<_> = devices.into_values().collect();
    devices.sort_by_key(|(count, ..)| std::cmp::Reverse(*count));
    html! {
        @if !devices.is_empty() {
            section.card.alarm aria-label="Alarms" {
                h2 { "One device had most of the weight" }
                ul {
                    @for (count, round, newest) in devices.iter().take(SHOWN) {
                        li { (counted(*count, "round")) ", the last of them round " (round) ": " (newest) "." }
                    }
                }
                @if devices.len() > SHOWN {
                    p.note { "And " (counted(devices.len() - SHOWN, "other device")) "." }
                }
                p.note {
                    code { "round.max-weight-ratio" } " and " code { "round.max-weight-share" }
                    " bound the weight of a device; " code { "round.max-samples" } " refuses one that declares more."
                }
            }
        }
    }
}

/// Devices that are listed.
const SHOWN: usize = 10;
