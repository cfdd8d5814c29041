//! Whether the run is over and why, and where it comes from.

use maud::{Markup, html};

use super::Report;
use crate::report::Summary;
use crate::report::standing::Standing;
use crate::report::units::{counted, grouped};
use crate::round::stopping::{self, EarlyEnd};

/// What stands below the heading; `reloads` says how the page of a run that goes on is kept new.
pub(super) fn banner(report: &Report<'_>, summary: &Summary, reloads: &str) -> Markup {
    let planned = report.planned();
    let so_far = format!("after round {} of {}", grouped(summary.rounds), grouped(planned as usize));
    let at = report.ended.map_or_else(String::new, |at| format!(" ({at})"));
    match report.standing {
        Standing::Running => html! {
            p.note role="status" { strong { "Running" } ", " (so_far) ". " (reloads) }
        },
        Standing::Complete { early: Some(early) } => html! {
            p.note role="status" { strong { "Complete" } " " (so_far) (at) ": " (early.reason()) "." }
        },
        // Earlier programs have not written down why.
        Standing::Complete { early: None } if summary.rounds < planned as usize => html! {
            @let why = stopping::ended(report.rounds, &report.config.stop).map(|_| EarlyEnd::EarlyStopping.reason());
            p.note role="status" { strong { "Complete" } " " (so_far) (at) @if let Some(why) = why { ": " (why) } "." }
        },
        Standing::Complete { early: None } => html! {
            @let all = if summary.rounds == 1 { "its one round".to_owned() } else { format!("all {}", counted(summary.rounds, "round")) };
            p.note role="status" { strong { "Complete" } (at) ", " (all) "." }
        },
        Standing::Stopped => html! {
            section.card.alarm role="status" { h2 { "Stopped " (so_far) } p { "It was stopped" (at) ", and is not over: the same command continues it." } }
        },
        Standing::Failed { reason } => html! {
            section.card.alarm role="status" { h2 { "Failed " (so_far) } p { (reason) } @if !at.is_empty() { p.note { "At " (report.ended.unwrap_or_default()) "." } } }
        },
        Standing::Interrupted => html! {
            section.card.alarm role="status" {
                h2 { "Interrupted " (so_far) }
                p { "No process works on the run, and the last one did not say why: it was killed, or the power failed. The same command continues it." }
            }
        },
    }
}

/// Dates, machines and data, as rows of the setting.
pub(super) fn rows(report: &Report<'_>) -> Vec<(&'static str, String)> {
    let last = report.rounds.iter().rev().find_map(|round| round.closed.as_deref());
    let mut rows = Vec::new();
    if let Some(origin) = report.origin {
        rows.push(("Begun", origin.begun.clone()));
        rows.extend(last.map(|last| ("Last round", last.to_owned())));
        let said = origin.processes.iter().map(|process| {
            let host = process.host.as_deref().unwrap_or("a machine without a name");
            format!("{host}, aggregator {}", process.version)
        });
        rows.push(("Machine", said.collect::<Vec<_>>().join("; then ")));
        rows.extend(
            origin.data.iter().map(|(split, digest)| ("Data digest", format!("{split}: SHA-256 {digest}"))),
        );
    } else {
        rows.extend(last.map(|last| ("Last round", last.to_owned())));
    }
    rows
}
