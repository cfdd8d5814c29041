//! One round, as a timeline: who has answered what, and when.

use std::time::SystemTime;

use maud::{Markup, html};
use shared::calendar::{moment, utc};
use shared::cli::measure_text;

use super::super::lab::{Lab, LabError, RunName};
use super::Shown;
use super::waiting::waiting;
use crate::history::{StoredArrival, StoredRound, short};
use crate::names::called;
use crate::report::html::figure;
use crate::report::units::{bytes, counted, percent, seconds};
use crate::round::RoundRecord;

/// Devices in the timeline; there may be thousands.
const DEVICES: usize = 1000;

pub(in crate::dashboard) fn show(lab: &Lab, name: &RunName, round: u32) -> Result<Shown, LabError> {
    let run = lab.run(name)?;
    let record = run.found.rounds.records.iter().find(|record| record.round == round);
    let served = lab.served(&run)?;
    let now = moment(SystemTime::now());
    let (mut stored, mut arrivals, mut status) = (None, Vec::new(), html! {});
    let mut newest = run.found.rounds.records.last().map_or(0, |record| record.round);
    if let Some((database, of)) = &served {
        stored = database.round(&of.run, round)?;
        arrivals = database.arrivals(&of.run, round)?;
        if let Some(now_is) = of.status.as_ref().filter(|_| run.overview.is_worked_on()) {
            let open = now_is.waiting_for.round();
            newest = newest.max(open.unwrap_or(0));
            if open == Some(round) {
                status = html! { section.card { h2 { "Now" } (waiting(now_is, None, now)) } };
            }
        }
    }
    if record.is_none() && stored.is_none() {
        return Err(LabError::Unknown { what: "round" });
    }
    let rounds = html! {
        @if let Some(record) = record { (figures(record)) }
        @if arrivals.is_empty() {
            section.card { p.empty { (no_answers(run.overview.served, record.is_some())) } }
        } @else {
            (timeline(stored.as_ref(), record, arrivals, now))
        }
        (neighbours(&name.place(), round, newest))
    };
    let place = name.place();
    let lead = html! { "of " a href=(place) { (run.overview.run) } (span(stored.as_ref(), record)) };
    Ok(Shown { tab: name.tab(), title: format!("Round {round}"), lead, status, rounds, forms: None })
}

/// From when to when.
fn span(stored: Option<&StoredRound>, record: Option<&RoundRecord>) -> String {
    let opened = stored.and_then(|stored| stored.opened).map(|opened| format!(", opened {}", utc(opened)));
    let closed = stored.and_then(|stored| stored.closed).map(utc);
    let closed = closed.or_else(|| record?.closed.clone()).map(|closed| format!(", closed {closed}"));
    opened.unwrap_or_default() + &closed.unwrap_or_default()
}

fn figures(record: &RoundRecord) -> Markup {
    let waited = [
        ("of training", Some(record.seconds)),
        ("of waiting", record.waited_seconds),
        ("of tests", record.test_seconds),
        ("of aggregation and disk", record.disk_seconds),
    ];
    let measures = record.measures();
    let measures: Vec<String> = measures.into_iter().map(|(of, value)| measure_text(of, value)).collect();
    let parts = waited.into_iter().filter_map(|(name, time)| Some(format!("{} {name}", seconds(time?))));
    html! {
        section aria-label="Summary" { dl.figures {
            @if let (None, Some(loss)) = (record.accuracy, record.loss) {
                (figure("Test loss", &format!("{loss:.4}"), &measures))
            }
            @if let Some(accuracy) = record.accuracy {
                (figure("Accuracy", &percent(accuracy), &record.loss.map(|loss| format!("loss {loss:.4}")).into_iter().chain(measures.clone()).collect::<Vec<_>>()))
            }
            (figure("Updates accepted", &record.accepted.to_string(), &[format!("of {} asked for", record.sampled)]))
            (figure("Time", &seconds(record.wall_seconds()), &parts.collect::<Vec<_>>()))
            (figure("Traffic", &bytes(record.bytes_down.saturating_add(record.bytes_up)), &[
                format!("{} down", bytes(record.bytes_down)), format!("{} up", bytes(record.bytes_up)),
            ]))
        } }
    }
}

/// Why there is no timeline.
fn no_answers(served: bool, closed: bool) -> &'static str {
    match (served, closed) {
        (false, _) => "Clients were simulated: what each of them did is not kept.",
        (true, false) => "No device has answered yet.",
        (true, true) => "The database of this machine has no answers of this round.",
    }
}

fn timeline(
    stored: Option<&StoredRound>,
    record: Option<&RoundRecord>,
    mut arrivals: Vec<StoredArrival>,
    now: i64,
) -> Markup {
    arrivals.sort_by_key(|arrival| (arrival.at.is_none(), arrival.at, arrival.device.clone()));
    let opened = stored.and_then(|stored| stored.opened);
    let end = stored.and_then(|stored| stored.closed).unwrap_or(now);
    let answered = {
        let mut devices: Vec<_> = arrivals.iter().map(|arrival| &arrival.device).collect();
        devices.sort_unstable();
        devices.dedup();
        devices.len()
    };
    let asked = record.map(|record| record.sampled).or_else(|| Some(stored?.cohort? as usize));
    let silent = asked.and_then(|asked| asked.checked_sub(answered)).filter(|silent| *silent > 0);
    html! {
        section.card {
            h2 { "Answers" }
            div.scroll {
                table.timeline {
                    caption { "In the order in which they came" }
                    thead { tr {
                        th.text scope="col" { "device" } th.text scope="col" { "answer" } th scope="col" { "after" }
                        th.text scope="col" { span.unseen { "when" } } th.text scope="col" { "reason" }
                    } }
                    tbody { @for arrival in arrivals.iter().take(DEVICES) {
                        @let after = arrival.at.zip(opened).map(|(at, opened)| at.saturating_sub(opened).max(0));
                        tr {
                            th.text scope="row" { (arrival.device.parse().map_or_else(|_| short(&arrival.device).to_owned(), called)) }
                            td.text { span.state data-state=(arrival.verdict) { (in_words(&arrival.verdict)) }
                                @if arrival.times > 1 { " " (arrival.times) " times" } }
                            td { @if let Some(after) = after { (seconds(after as f64 / 1e3)) } @else { "-" } }
                            td.text { @if let (Some(after), Some(opened)) = (after, opened) { (bar(after, end.saturating_sub(opened))) } }
                            td.text { (arrival.reason.as_deref().unwrap_or("")) }
                        }
                    } }
                }
            }
            @if arrivals.len() > DEVICES { p.note { "and " (counted(arrivals.len() - DEVICES, "other")) } }
            @if let Some(silent) = silent {
                p.note { (counted(silent, "device")) " of those that were asked " @if silent == 1 { "has" } @else { "have" }
                    @if record.is_some() { " not answered." } @else { " not answered yet." } }
            }
        }
    }
}

/// What an answer was.
fn in_words(verdict: &str) -> &str {
    match verdict {
        "discarded" => "late or twice",
        "not-now" => "not now",
        other => other,
    }
}

/// A moment in the round's time.
fn bar(after: i64, whole: i64) -> Markup {
    let share = (after as f64 / whole.max(1) as f64).clamp(0.0, 1.0);
    html! { i.moment style=(format!("--at:{:.1}%", 100.0 * share)) aria-hidden="true" {} }
}

fn neighbours(place: &str, round: u32, newest: u32) -> Markup {
    html! {
        nav.neighbours aria-label="Rounds" {
            @if round > 1 { a rel="prev" href=(format!("{place}/rounds/{}", round - 1)) { "Round " (round - 1) } }
            a href=(place) { "All rounds" }
            @if round < newest { a rel="next" href=(format!("{place}/rounds/{}", round + 1)) { "Round " (round + 1) } }
        }
    }
}
