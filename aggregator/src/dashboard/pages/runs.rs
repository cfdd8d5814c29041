//! The runs, in a table; ticked ones are compared.

use std::sync::Arc;
use std::time::SystemTime;

use maud::{Markup, html};
use shared::calendar::{moment, moment_in};

use super::super::lab::{Lab, LabError, Run};
use super::filter::Wanted;
use super::{Shown, Tab, ago, run_place, sparkline};
use crate::report::units::{bytes, counted, grouped};

/// Changed keys that are shown of each run.
const TOLD: usize = 4;

fn matches(wanted: &Wanted, run: &Run) -> bool {
    let of = &run.overview;
    wanted.is_in([&*of.run, of.state, &*of.algorithm, &*of.model, &*of.data])
}

pub(in crate::dashboard) fn show(lab: &Lab, wanted: &Wanted) -> Result<Shown, LabError> {
    let (all, unread) = lab.all()?;
    let now = moment(SystemTime::now());
    let chosen: Vec<_> = all.iter().filter(|run| matches(wanted, run)).collect();
    let working = all.iter().filter(|run| run.overview.is_worked_on()).count();
    #[cfg(feature = "cluster")]
    let together = lab.together();
    #[cfg(feature = "cluster")]
    let (shared, status) = (together.len(), super::servers::show(&together, now));
    #[cfg(not(feature = "cluster"))]
    let (shared, status) = (0, html! {});
    let rounds = html! {
        @if !all.is_empty() { (wanted.form("/", "runs", "name, algorithm, data or state")) }
        @if all.is_empty() && shared == 0 {
            section.card { p.empty {
                "There is no run here yet: " code { "aggregator simulate" } " or " code { "aggregator serve" } " begins one."
            } }
        } @else if all.is_empty() {
            // What it serves with others stands above.
        } @else if chosen.is_empty() {
            section.card { p.empty { "No run matches. " a href="/" { "All runs" } } }
        } @else {
            (table(&chosen, now))
        }
        @if !unread.is_empty() {
            section.card.alarm role="alert" {
                h2 { "Runs that cannot be read" }
                ul { @for (name, reason) in &unread { li { strong { (name) } ": " (reason) } } }
            }
        }
    };
    let lead = if all.is_empty() && shared > 0 {
        html! { (counted(shared, "run")) " served with others." }
    } else {
        html! { (counted(all.len(), "run")) ", " (working) " of them running." }
    };
    let title = "Runs".to_owned();
    Ok(Shown { tab: Tab::Runs, title, lead, status, rounds, forms: None })
}

fn table(runs: &[&Arc<Run>], now: i64) -> Markup {
    html! {
        form method="get" action="/compare" {
            section.card {
                div.scroll {
                    table.runs {
                        thead { tr {
                            th scope="col" { span.unseen { "compare" } }
                            th.text scope="col" { "run" } th.text scope="col" { "state" } th scope="col" { "round" }
                            th scope="col" { "last" } th.wide scope="col" { "best" } th.text.wide scope="col" { "accuracy" }
                            th.text.wide scope="col" { "setting" } th.wide scope="col" { "size" } th.wide scope="col" { "active" }
                        } }
                        tbody { @for run in runs { (row(run, now)) } }
                    }
                }
                p { button type="submit" { "Compare ticked runs" } }
            }
        }
    }
}

fn row(run: &Run, now: i64) -> Markup {
    let of = &run.overview;
    let [last, best] = of.scores();
    let active = of.active.as_deref().and_then(moment_in);
    html! {
        tr {
            td { input type="checkbox" name="run" value=(of.run) aria-label=(format!("compare {}", of.run)); }
            th.text scope="row" { a href=(run_place(&of.run)) { (of.run) } }
            td.text { (state(of.state)) }
            td { (grouped(of.rounds)) " of " (grouped(of.planned as usize)) }
            td { (last) }
            td.wide title=[of.best_round.map(|round| format!("in round {round}"))] { (best) }
            td.text.wide { (sparkline::progress(&run.found.rounds.records)) }
            td.text.setting.wide {
                (of.algorithm) ", " (of.model) " on " (of.data)
                @if !of.changed.is_empty() { small {
                    @for (key, value) in of.changed.iter().take(TOLD) { span { (key) " = " (value) } " " }
                    @if of.changed.len() > TOLD { "and " (of.changed.len() - TOLD) " more" }
                } }
            }
            td.wide { (bytes(of.bytes)) }
            td.wide { @if let Some(active) = active { (ago(active, now)) } @else { "-" } }
        }
    }
}

/// How a run stands, as a word with a colour.
pub(super) fn state(state: &str) -> Markup {
    html! { span.state data-state=(state) { (state) } }
}
