//! `aggregator status` in words.

use std::fmt::Write as _;

use shared::calendar::utc;

use super::shown::Shown;
use crate::cli::terminal;
use crate::commands::command;
use crate::coordinator::{Activity, Awaited, Status, WaitingFor};
use crate::history::{StoredArrival, StoredRun, StoredSkipped, short};
use crate::names::called;
use crate::report::clock::elapsed;
use crate::report::console;
use crate::report::units::counted;

pub(super) fn text(shown: &Shown, now: i64) -> String {
    let Shown { name, run, serving, newest, arrivals, left_out, events, .. } = shown;
    let mut out = format!("{name}  {}\n", run.directory);
    let since = |moment: i64| elapsed(now.saturating_sub(moment));
    let _ = match (serving, run.ended, run.outcome.as_deref()) {
        (true, ..) => writeln!(out, "served by process {} for {}", run.process, since(run.served)),
        (false, Some(ended), Some(outcome)) => {
            let how = match outcome {
                "completed" => "complete since",
                "fruitless" => "over, without success, since",
                "failed" => "not served: the server failed at",
                _ => "not served: the server was stopped at",
            };
            writeln!(out, "{how} {} ({} ago)", utc(ended), since(ended))
        }
        _ => writeln!(
            out,
            "not served: process {} ended unexpectedly, last heard of {} ago",
            run.process,
            since(run.told)
        ),
    };
    if let Some(snapshot) = &run.status {
        out.push_str(&waits(snapshot, *serving, now));
    }
    let told = |arrival: &StoredArrival| arrival.verdict == "not-now" && does_not_train(run, arrival);
    for arrival in arrivals.iter().filter(|arrival| arrival.verdict != "accepted" && !told(arrival)) {
        let times = if arrival.times > 1 { format!(" {} times", arrival.times) } else { String::new() };
        let reason = arrival.reason.as_deref().unwrap_or("no reason was given");
        let _ = writeln!(
            out,
            "  {:<10} {}{times} in round {}: {reason}",
            arrival.verdict,
            arrival.device.parse().map_or_else(|_| short(&arrival.device).to_owned(), called),
            arrival.round
        );
    }
    for left_out in StoredSkipped::in_words(left_out) {
        let _ = writeln!(out, "left out, since they cannot be used: {left_out}");
    }
    let closed: Vec<_> = newest.iter().filter_map(|round| round.record.as_ref()).collect();
    if let Some((record, dominance)) =
        closed.last().and_then(|record| Some((record, record.dominance.as_ref()?)))
    {
        let _ = writeln!(out, "WARNING: in round {} {}", record.round, dominance);
    }
    if !closed.is_empty() {
        out.push_str("\nlast rounds\n");
    }
    let planned = run.status.as_ref().map_or(run.rounds, |status| status.rounds);
    for record in closed {
        let line =
            console::line(record, planned, terminal::columns().saturating_sub(2)).replace('\n', "\n  ");
        let _ = writeln!(out, "  {line}");
    }
    if !events.is_empty() {
        out.push_str("\nlast events\n");
    }
    for event in events {
        let _ = writeln!(
            out,
            "  {}  {}{}",
            utc(event.at),
            if event.alarm { "WARNING: " } else { "" },
            event.text
        );
    }
    out
}

/// Whether a member of the open round is already listed as ineligible, with this reason.
fn does_not_train(run: &StoredRun, arrival: &StoredArrival) -> bool {
    let Some(Status { waiting_for: WaitingFor::Updates { round, members, .. }, .. }) = &run.status else {
        return false;
    };
    let is_it = |member: &Awaited<i64>| {
        member.activity == Activity::NotNow && member.client.to_string() == arrival.device
    };
    *round == arrival.round && members.iter().any(is_it)
}

fn waits(snapshot: &Status<i64>, serving: bool, now: i64) -> String {
    let since = elapsed(now.saturating_sub(snapshot.since));
    // What devices do with the last model is one round more.
    let closed = snapshot.closed.min(snapshot.rounds);
    let mut out = format!("{} of {} closed", counted(closed as usize, "round"), snapshot.rounds);
    if snapshot.failed > 0 {
        let _ = write!(out, " ({} of them without a result)", snapshot.failed);
    }
    let _ = if serving {
        writeln!(out, ", {} of {} connected", snapshot.connected, counted(snapshot.known, "known device"))
    } else {
        writeln!(out, ", {}", counted(snapshot.known, "known device"))
    };
    if snapshot.held && serving {
        let _ = writeln!(out, "PAUSED on request: no new round is opened until `{}`", command("resume"));
    }
    let verb = if serving { "waits" } else { "waited" };
    let _ = match &snapshot.waiting_for {
        WaitingFor::Clients { connected, needed } => {
            writeln!(out, "{verb} for clients: {connected} of {needed} connected, for {since}")
        }
        WaitingFor::Pause { void, until } => writeln!(
            out,
            "pauses after {} in a row without enough acceptable updates, until {}",
            counted(*void as usize, "round"),
            utc(*until)
        ),
        WaitingFor::Updates { round, accepted, cohort, .. } => {
            writeln!(out, "round {round} {verb} for updates: {accepted} of {cohort} in, for {since}")
        }
        WaitingFor::Masks { round, answered, asked, .. } => {
            let answers = format!("{answered} of {} have answered", counted(*asked, "device"));
            writeln!(
                out,
                "round {round} {verb} until the masks of its sum are taken away: {answers}, for {since}"
            )
        }
        WaitingFor::Disk { round } => writeln!(out, "round {round} {verb} for this machine, for {since}"),
        WaitingFor::Nothing => Ok(()),
    };
    if snapshot.paused && serving {
        out.push_str(
            "PAUSED: there is no room on the server's disk; the run goes on by itself once there is\n",
        );
    }
    if snapshot.unconfirmed && serving {
        out.push_str(
            "PAUSED: the database has not said lately that this server leads the run; the run goes on by itself once it does\n",
        );
    }
    let (members, more) = snapshot.waiting_for.members();
    for member in members {
        let stage = match member.activity {
            Activity::Receiving => "receiving".to_owned(),
            Activity::Training(done, total) => {
                format!("training {} %", 100 * u128::from(done) / u128::from(total.max(1)))
            }
            Activity::Uploading => "uploading".to_owned(),
            Activity::Checking => "checking".to_owned(),
            Activity::Away => "away".to_owned(),
            Activity::NotNow => "not now".to_owned(),
            Activity::Unmasking => "unmasking".to_owned(),
        };
        let silent = elapsed(now.saturating_sub(member.heard));
        let late = if member.late { "; at an earlier round" } else { "" };
        let reason = member.reason.as_ref().map_or(String::new(), |reason| format!("; {reason}"));
        let _ =
            writeln!(out, "  {stage:<14} {}  last heard {silent} ago{late}{reason}", called(member.client));
    }
    if more > 0 {
        let _ = writeln!(out, "  and {}", counted(more, "other"));
    }
    out
}

#[cfg(test)]
mod tests {
    use shared::id::ClientId;

    use super::*;
    use crate::history::StoredRound;
    use crate::round::{Dominance, RoundRecord};

    /// A served run with a closed round, in which this device had most of the weight.
    fn shown(dominance: Option<Dominance>) -> Shown {
        let record = RoundRecord { round: 7, dominance, ..RoundRecord::default() };
        let round =
            StoredRound { round: 7, opened: None, closed: None, cohort: Some(10), record: Some(record) };
        let run = StoredRun {
            run: "ab".repeat(8),
            directory: "runs/lab".to_owned(),
            rounds: 20,
            begun: 0,
            served: 0,
            process: 1,
            ended: None,
            outcome: None,
            told: 0,
            status: None,
        };
        let (arrivals, left_out, events) = (Vec::new(), Vec::new(), Vec::new());
        Shown {
            name: "lab".to_owned(),
            run,
            serving: true,
            newest: vec![round],
            arrivals,
            left_out,
            events,
            #[cfg(feature = "cluster")]
            servers: None,
        }
    }

    #[test]
    fn a_device_that_has_most_of_the_weight_is_a_warning() {
        let client = ClientId::from_bytes([1; 16]);
        let dominance =
            Dominance { client, samples: 9000, share_of_samples: 0.9999, share_of_weight: 0.5, bounded: 1 };
        let expected = "WARNING: in round 7 client 01010101 declares 99.99 % of the samples (9000), and its weight was bounded to \
                        50.00 %\n";
        let found = text(&shown(Some(dominance)), 0);
        assert!(found.contains(expected), "{found}");
        assert!(!text(&shown(None), 0).contains("WARNING"));
    }
}
