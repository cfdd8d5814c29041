//! One run: what it waits for, its figures and curves, its rounds, its configuration.

use std::time::SystemTime;

use maud::{Markup, html};
use shared::calendar::{moment, utc};

use super::super::lab::{Lab, LabError, Run, RunName};
use super::waiting::waiting;
use super::{Shown, escaped};
use crate::history::StoredSkipped;
use crate::report::html::{Reader, configuration, findings, lead};
use crate::report::summary::Arrivals;
use crate::report::units::{bytes, grouped, percent, seconds};
use crate::round::RoundRecord;

/// Rounds in the table, the newest.
const ROUNDS: usize = 50;
/// Events that are told, the newest.
const EVENTS: u32 = 12;

pub(in crate::dashboard) fn show(lab: &Lab, name: &RunName) -> Result<Shown, LabError> {
    let run = lab.run(name)?;
    let report = run.found.report();
    let rounds = html! {
        (findings(&report, Reader::Operator))
        (newest(&run, &name.place()))
        (configuration(&report))
    };
    let lead = html! {
        @if let Some(experiment) = &name.experiment {
            "Of " a href=(format!("/compare?experiment={}", escaped(experiment))) { (experiment) } ". "
        }
        (lead(&report))
    };
    let (title, status) = (run.overview.run.clone(), status(lab, &run, &name.place())?);
    Ok(Shown { tab: name.tab(), title, lead, status, rounds, forms: None })
}

/// What a served run waits for, and what happened in it last.
fn status(lab: &Lab, run: &Run, place: &str) -> Result<Markup, LabError> {
    let Some((database, stored)) = lab.served(run)? else { return Ok(html! {}) };
    let now = moment(SystemTime::now());
    let working = run.overview.is_worked_on();
    let events = database.events(&stored.run, EVENTS)?;
    let left_out = StoredSkipped::in_words(&database.left_out(&stored.run)?);
    Ok(html! {
        @if let Some(status) = stored.status.as_ref().filter(|_| working) {
            section.card aria-label="What the run waits for" { h2 { "Now" } (waiting(status, Some(place), now)) }
        }
        @if !events.is_empty() || !left_out.is_empty() {
            section.card {
                h2 { "Events" }
                ul.events {
                    @for event in events.iter().rev() {
                        li.wrong[event.alarm] { time datetime=(utc(event.at)) { (utc(event.at)) } " " (event.text) }
                    }
                    @for left_out in left_out { li { "left out, since they cannot be used: " (left_out) } }
                }
            }
        }
    })
}

fn newest(run: &Run, place: &str) -> Markup {
    let records = &run.found.rounds.records;
    if records.is_empty() {
        return html! {};
    }
    html! {
        section.card {
            h2 { "Rounds" }
            div.scroll {
                table {
                    @if records.len() > ROUNDS { caption { "The newest " (ROUNDS) " of " (grouped(records.len())) } }
                    thead { tr {
                        @for name in ["round", "accuracy", "loss", "accepted", "of", "troubles", "sent by clients", "took", "closed"] {
                            th scope="col" { (name) }
                        }
                    } }
                    tbody { @for record in records.iter().rev().take(ROUNDS) { (row(place, record)) } }
                }
            }
        }
    }
}

fn row(place: &str, record: &RoundRecord) -> Markup {
    let troubles = Arrivals::of(std::slice::from_ref(record)).troubles();
    let troubles: Vec<_> = troubles.into_iter().map(|(count, what)| format!("{count} {what}")).collect();
    html! {
        tr {
            th scope="row" { a href=(format!("{place}/rounds/{}", record.round)) { (record.round) } }
            td { (record.accuracy.map_or_else(|| "-".to_owned(), percent)) }
            td { (record.loss.map_or_else(|| "-".to_owned(), |loss| format!("{loss:.4}"))) }
            td { (record.accepted) }
            td { (record.sampled) }
            td { @if record.void { "void" } @else if troubles.is_empty() { "-" } @else { (troubles.join(", ")) } }
            td { (bytes(record.bytes_up)) }
            td { (seconds(record.wall_seconds())) }
            td { (record.closed.as_deref().unwrap_or("-")) }
        }
    }
}
