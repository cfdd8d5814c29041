//! `aggregator runs diff`: in which keys two runs differ, and what came of them.

use std::path::Path;

use serde_json::json;

use super::super::exit::Failure;
use super::super::terminal;
use super::Place;
use crate::config::excerpt::{Difference, differences};
use crate::page::Found;
use crate::report::Summary;
use crate::report::table::Table;
use crate::report::units::{bytes, seconds};
use crate::runs::find::find;
use crate::runs::overview::Overview;
use crate::storage::Disk;

pub(super) fn diff(place: &Place, [a, b]: [&Path; 2]) -> Result<(), Failure> {
    let read = |given: &Path| -> Result<(Overview, Found), Failure> {
        let directory = find(&place.runs, given)?;
        let found = Found::read(&Disk, &directory, false)?;
        Ok((Overview::of(&directory, &found), found))
    };
    let [a, b] = [read(a)?, read(b)?];
    let keys = differences(&a.1.config.effective, &b.1.config.effective);
    if place.json {
        let keys = keys.iter().map(|(key, a, b)| json!({ "key": key, "a": a, "b": b }));
        let wall = |(_, found): &(_, Found)| found.summary().times.wall;
        return terminal::print_json(&json!({
            "keys": keys.collect::<Vec<_>>(),
            "a": a.0, "b": b.0,
            "wall_seconds": [wall(&a), wall(&b)],
            "same_data": same_data(&a.1, &b.1),
        }));
    }
    terminal::print(&text(&a, &b, &keys, terminal::columns()))
}

/// Whether both have read the same samples, if that is known of both.
fn same_data(a: &Found, b: &Found) -> Option<bool> {
    let data = |found: &Found| found.about.as_ref().map(|about| about.origin.data.clone());
    let (a, b) = (data(a)?, data(b)?);
    (!a.is_empty() && !b.is_empty()).then(|| a == b)
}

fn text(a: &(Overview, Found), b: &(Overview, Found), keys: &[Difference], columns: usize) -> String {
    let names = if a.0.run == b.0.run {
        [&a.0, &b.0].map(|run| run.path.display().to_string())
    } else {
        [&a.0, &b.0].map(|run| run.run.clone())
    };
    let head = |what: &str| [what.to_owned()].into_iter().chain(names.clone()).collect::<Vec<_>>();
    let mut text = if keys.is_empty() {
        "no key differs\n".to_owned()
    } else {
        let rows = keys.iter().map(|(key, a, b)| vec![key.clone(), a.clone(), b.clone()]).collect();
        Table { head: head("key"), rows, left: 1 }.fitted(columns)
    };
    text.push('\n');
    let rows = results(&a.0, &a.1.summary()).into_iter().zip(results(&b.0, &b.1.summary()));
    let rows = rows.map(|((name, a), (_, b))| vec![name.to_owned(), a, b]).collect();
    text.push_str(&Table { head: head("result"), rows, left: 1 }.fitted(columns));
    if let Some(same) = same_data(&a.1, &b.1) {
        text.push_str(if same {
            "\nboth have read the same samples\n"
        } else {
            "\nthey have read different samples\n"
        });
    }
    text
}

/// What came of a run, in rows.
fn results(run: &Overview, summary: &Summary) -> Vec<(&'static str, String)> {
    let none = || "-".to_owned();
    let [last, highest] = run.scores();
    let of_numbers = run.accuracy.is_none() && run.loss.is_some();
    let (of_last, of_best) =
        if of_numbers { ("last result", "best result") } else { ("last accuracy", "best accuracy") };
    let best = run.best_round.map_or_else(String::new, |round| format!(" (round {round})"));
    let arrivals = &summary.arrivals;
    vec![
        ("state", run.state.to_owned()),
        ("rounds", format!("{} of {}", run.rounds, run.planned)),
        (of_last, last),
        (of_best, highest + &best),
        ("updates accepted", format!("{} of {}", arrivals.accepted, arrivals.sampled)),
        ("time", seconds(summary.times.wall)),
        ("median round", summary.median_seconds.map_or_else(none, seconds)),
        ("traffic", bytes(summary.bytes_down.saturating_add(summary.bytes_up))),
        ("size on disk", bytes(run.bytes)),
    ]
}
