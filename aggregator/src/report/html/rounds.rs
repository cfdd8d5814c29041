//! The table of all rounds.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::document::folded_table;
use crate::report::units::{bytes, seconds};
use crate::round::RoundRecord;

const COLUMNS: [&str; 16] = [
    "round",
    "accuracy",
    "test loss",
    "training loss",
    "asked",
    "accepted",
    "late",
    "rejected",
    "discarded",
    "failed",
    "not now",
    "lost",
    "down",
    "up",
    "time",
    "waited for",
];

/// One row for every round, folded away.
pub(super) fn table(rounds: &[RoundRecord]) -> Markup {
    let measured: BTreeSet<&str> =
        rounds.iter().flat_map(|round| round.metrics.keys().map(String::as_str)).collect();
    let headings: Vec<&str> = COLUMNS.into_iter().chain(measured.iter().copied()).collect();
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"));
    let cells = |round: &RoundRecord| {
        html! {
            td { (round.accuracy.map_or_else(|| "-".to_owned(), |share| format!("{:.2} %", share * 100.0))) }
            td { (number(round.loss)) }
            td { (number(round.train_loss)) }
            @for count in [round.sampled, round.accepted, round.late, round.rejected, round.discarded, round.failed, round.not_now, round.lost] {
                td { (count) }
            }
            td { (bytes(round.bytes_down)) }
            td { (bytes(round.bytes_up)) }
            td { (seconds(round.seconds)) }
            td.text { (round.waited_for) }
            @for name in &measured { td { (number(round.metrics.get(*name).copied())) } }
        }
    };
    folded_table("All rounds", &headings, rounds.iter().map(|round| (round.round.to_string(), cells(round))))
}
