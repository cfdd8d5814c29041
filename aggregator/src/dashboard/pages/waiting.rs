//! What a run waits for.

use maud::{Markup, html};
use shared::calendar::utc;

use super::ago;
use crate::coordinator::{Activity, Awaited, Status, WaitingFor};
use crate::names::called;
use crate::report::clock::elapsed;
use crate::report::units::counted;

/// The sentences and, in an open round, the devices that are waited for. `place` is the address of the run's page, where the round has one
/// of its own.
pub(super) fn waiting(status: &Status<i64>, place: Option<&str>, now: i64) -> Markup {
    let since = elapsed(now.saturating_sub(status.since));
    html! {
        p {
            (counted(status.closed.min(status.rounds) as usize, "round")) " of " (status.rounds) " closed"
            @if status.failed > 0 { " (" (status.failed) " of them without a result)" }
            ". " (status.connected) " of " (counted(status.known, "known device")) " connected."
        }
        @if status.paused { p.wrong role="alert" {
            "Paused: there is no room on the server's disk. The run goes on by itself once there is."
        } }
        @if status.unconfirmed { p.wrong role="alert" {
            "Paused: the database has not said lately that this server leads the run. The run goes on by itself once it does."
        } }
        @if status.held { p { "Paused on request: no new round is opened until " code { "aggregator resume" } "." } }
        @match &status.waiting_for {
            WaitingFor::Clients { connected, needed } => p {
                strong { "Waits for devices" } ": " (connected) " of " (needed) " connected, for " (since) "."
            },
            WaitingFor::Pause { void, until } => p {
                strong { "Pauses" } " after " (counted(*void as usize, "round")) " in a row without enough acceptable updates, until "
                (utc(*until)) "."
            },
            WaitingFor::Updates { round, accepted, cohort, members, more, .. } => {
                p {
                    strong { (named(*round, place)) " waits for updates" } ": " (accepted) " of " (cohort) " in, for " (since) "."
                }
                @if !members.is_empty() { (table(members, *more, now)) }
            },
            WaitingFor::Masks { round, answered, asked, members, more } => {
                p {
                    strong { (named(*round, place)) " waits until the masks of its sum are taken away" } ": " (answered) " of "
                    (counted(*asked, "device")) " have answered, for " (since) "."
                }
                @if !members.is_empty() { (table(members, *more, now)) }
            },
            WaitingFor::Disk { round } => p {
                strong { (named(*round, place)) " waits for this machine" } ", for " (since) "."
            },
            WaitingFor::Nothing => {},
        }
        @if let Some(refused) = status.load.map(|load| load.refused).filter(|refused| *refused > 0) {
            p.wrong { (counted(refused as usize, "connection")) " refused since the server was started: too many came at once." }
        }
        @if let Some((done, total)) = status.own {
            p { "The server trains: " (done) " of " (counted(total as usize, "step")) "." }
        }
    }
}

fn named(round: u32, place: Option<&str>) -> Markup {
    html! {
        @if let Some(place) = place { a href=(format!("{place}/rounds/{round}")) { "Round " (round) } }
        @else { "Round " (round) }
    }
}

fn table(members: &[Awaited<i64>], more: usize, now: i64) -> Markup {
    html! {
        div.scroll {
            table {
                caption { "Devices that the round waits for" }
                thead { tr {
                    th scope="col" { "device" } th.text scope="col" { "does" } th scope="col" { "progress" }
                    th scope="col" { "last heard" } th.text scope="col" { "note" }
                } }
                tbody {
                    @for member in members {
                        @let (does, progress) = activity(member.activity);
                        tr {
                            th scope="row" { (called(member.client)) }
                            td.text { (does) }
                            td { @if let Some((done, total)) = progress {
                                progress value=(done) max=(total) aria-label=(format!("{done} of {total} steps")) {}
                            } }
                            td { (ago(member.heard, now)) }
                            td.text {
                                @if member.late { "at an earlier round " }
                                @if let Some(reason) = &member.reason { (reason) }
                            }
                        }
                    }
                }
            }
        }
        @if more > 0 { p.note { "and " (counted(more, "other")) } }
    }
}

/// In words, and the steps done of those to do.
fn activity(activity: Activity) -> (&'static str, Option<(u64, u64)>) {
    match activity {
        Activity::Receiving => ("receives the model", None),
        Activity::Training(done, total) => ("trains", Some((done, total.max(1)))),
        Activity::Uploading => ("sends its update", None),
        Activity::Checking => ("its update is checked", None),
        Activity::Away => ("is away", None),
        Activity::NotNow => ("cannot now", None),
        Activity::Unmasking => ("was asked for its part of the masks", None),
    }
}
