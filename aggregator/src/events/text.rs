//! Notices as sentences, for terminals and logs.

use std::fmt::Display;
use std::path::Path;
use std::time::Duration;

use shared::cli::counted;
use shared::client_state::difference_in_words;
use shared::id::ClientId;
use shared::message::Refusal;
use shared::protocol::Protocol;

use super::notice::{Level, Notice, TaskResult};
use crate::commands::command;
use crate::names::called;
use crate::report::units::training_samples;
use crate::round::Dominance;
use crate::storage::retry_full::is_full;

/// What a notice says; `None` of those that are [`Level::Data`].
#[must_use]
pub fn text(notice: &Notice<'_>) -> Option<String> {
    if notice.level() == Level::Data {
        return None;
    }
    Some(match notice {
        Notice::Status(_) | Notice::Alive | Notice::Opened { .. } | Notice::Round(_) => return None,
        Notice::Listening { address, key } => format!("listening on {address}, key {key}"),
        Notice::Result { round, client, result, .. } => result_text(*round, *client, *result),
        Notice::Connected { .. }
        | Notice::Disconnected { .. }
        | Notice::Unidentified { .. }
        | Notice::Revoked { .. }
        | Notice::Asked { .. }
        | Notice::Refused { .. }
        | Notice::NotAdmitted { .. }
        | Notice::MoreNotAdmitted
        | Notice::LookupFailed { .. }
        | Notice::Full { .. }
        | Notice::NoEligibility { .. }
        | Notice::Outdated { .. }
        | Notice::ForeignProtocol { .. }
        | Notice::MoreForeignProtocols
        | Notice::Declined { .. }
        | Notice::SkippedSamples { .. }
        | Notice::Untested { .. }
        | Notice::ClientState { .. } => return peer_text(notice),
        Notice::Suppressed { round, messages, clients, first } => {
            suppressed(*round, *messages, *clients, *first)
        }
        Notice::Stalled { by } => format!(
            "the server could do nothing for {} s: the terminal took no output, or the machine was suspended or overloaded. \
             Devices get that much more time",
            by.as_secs()
        ),
        Notice::SpoolFailed { folder, error, free } if is_full(error) => disk_full(folder, error, *free),
        Notice::SpoolFailed { folder, error, .. } => format!(
            "cannot write updates to {}: {error}. Clients send theirs again and again until this is repaired",
            folder.display()
        ),
        Notice::SpoolRecovered => "there is room for updates again: the run goes on".to_owned(),
        Notice::DiskFull { path, error, free } => disk_full(path, error, *free),
        Notice::DiskRecovered => "there is room on the disk again: the run goes on".to_owned(),
        Notice::DatabaseFailed { error } => format!(
            "{error}. The run goes on from its own files, and nothing that was accepted is lost; closed rounds are entered once \
             the database can be written again"
        ),
        Notice::DatabaseRecovered => "what happens is recorded in the database again".to_owned(),
        Notice::NoProgress { rounds, reasons, pause } => no_progress(*rounds, reasons, *pause),
        Notice::Outgrown { known, devices } => format!(
            "{known} devices are known, and sums are divided as for privacy.devices = {devices}: updates count for more than they should. \
             What is promised holds, if privacy.delta is less than 1 in {known}; a new run with a larger number learns better"
        ),
        Notice::Collapsed { round } => format!(
            "the global model names few classes after round {round} for all inputs: it learns from its own mistakes. A \
             smaller lambda-2, a higher gate, a larger share of the server's model or a lower rate may help"
        ),
        Notice::Dominates { round, dominance } => {
            format!("in round {round} {dominance}: {}", against(dominance))
        }
        Notice::Diverged { round } => format!(
            "the server's own training in round {round} has diverged, and the round ended without it: start a new run with a \
             lower training.optimizer.sgd.learning-rate or server.weight"
        ),
    })
}

/// What a notice about a device or a connection says.
fn peer_text(notice: &Notice<'_>) -> Option<String> {
    Some(match notice {
        Notice::Connected { client, samples, software } => {
            let software = printable(software);
            format!("client {} says hello with {} ({software})", called(*client), training_samples(*samples))
        }
        Notice::Disconnected { client, reason } => {
            format!("client {} disconnected: {}", called(*client), printable(reason))
        }
        Notice::Unidentified { count: 1, reason } => {
            format!("a connection ended before any device said hello on it: {}", printable(reason))
        }
        Notice::Unidentified { count, reason } => format!(
            "{count} connections ended before any device said hello on them, the last one: {}",
            printable(reason)
        ),
        Notice::Revoked { client } => format!(
            "client {} was disconnected: it was revoked or removed, or waits for approval again",
            called(*client)
        ),
        Notice::Asked { what: "pause" } => format!(
            "PAUSED on request: the open round is closed and no other is opened, until `{}`",
            command("resume")
        ),
        Notice::Asked { what: "resume" } => "goes on, on request".to_owned(),
        Notice::Asked { what } => format!("asked to {what} from another shell"),
        // A device that was killed and started again is as common as one that runs twice, and needs nothing.
        Notice::Refused { party, refusal: Refusal::Replaced } => format!(
            "{party} has a new connection, and the earlier one is closed: it was restarted, or its network changed. If this \
             repeats, it runs twice on one state directory"
        ),
        Notice::Refused { party, refusal } => format!("{party} refused: {}", printable(&refusal.to_string())),
        Notice::NotAdmitted { client, refusal: Refusal::Pending { .. } } => format!(
            "client {} waits for approval: `{}`",
            called(*client),
            command(&format!("devices approve {}", client.short()))
        ),
        Notice::NotAdmitted { client, refusal } => {
            format!("client {} may not take part: {refusal}", called(*client))
        }
        Notice::MoreNotAdmitted => {
            "more devices were refused than can be listed; further ones are not reported".to_owned()
        }
        Notice::LookupFailed { error } => format!(
            "a device was sent away because it cannot be looked up: {error}. It tries again by itself; this is reported \
             once, until a device is let in again"
        ),
        Notice::Full { connections } => format!(
            "turned a connection away: all {connections} places, or all of those for devices that were not welcomed yet, are \
             taken. Clients try again by themselves; this is reported once"
        ),
        Notice::NoEligibility { client, protocol } => format!(
            "client {} speaks {protocol}, which does not know [eligibility]: it trains in any state until its \
             edge-client is updated",
            called(*client)
        ),
        Notice::Outdated { client, protocol } => format!(
            "client {} was turned away: it speaks {protocol}, and this run uses what came with a newer edge-client: update it",
            called(*client)
        ),
        Notice::ForeignProtocol { address } => format!(
            "the peer at {address} speaks no version of the protocol that this server speaks ({}): if it is a device, update \
             its edge-client, or this aggregator if that is older. This is reported once per address",
            spoken()
        ),
        Notice::MoreForeignProtocols => {
            "more addresses than can be listed speak no version of the protocol that this server \
                                         speaks; further ones are not reported"
                .to_owned()
        }
        Notice::Declined { client, reason } => {
            format!("client {} leaves: {}", called(*client), printable(reason))
        }
        Notice::SkippedSamples { client, samples, .. } => format!(
            "client {} leaves out {} that it cannot use; the first ones are named where it was started",
            called(*client),
            training_samples(*samples)
        ),
        Notice::Untested { client, reason } => format!(
            "client {} will test no model of this run (evaluate, personalisation), and trains all the same: {}",
            called(*client),
            printable(reason)
        ),
        &Notice::ClientState { client, server, device } => {
            format!("client {}: {}", called(client), difference_in_words(server, device)?)
        }
        _ => return None,
    })
}

/// What can be done about it.
fn against(dominance: &Dominance) -> String {
    let client = dominance.client.short();
    let bound = if dominance.bounded == 0 { "lower round.max-weight-share" } else { "set round.max-samples" };
    format!(
        "if the number cannot be true, `{}`, or {bound} for the next run. This is told again when it \
         declares another number",
        command(&format!("devices revoke {client}"))
    )
}

fn result_text(round: u32, client: ClientId, result: TaskResult<'_>) -> String {
    let (name, reason) = (result.name(), printable(result.reason()));
    let what = match result {
        TaskResult::NotNow(_) => format!("does not train in round {round} now"),
        TaskResult::Failed(_) => format!("could not train in round {round}"),
        TaskResult::Accepted => return format!("client {}: update of round {round} {name}", called(client)),
        _ => return format!("client {}: update of round {round} {name}: {reason}", called(client)),
    };
    format!("client {} {what}: {reason}", called(client))
}

fn suppressed(round: u32, messages: u64, clients: usize, first: ClientId) -> String {
    let by = match clients {
        1 => format!("client {}", called(first)),
        more => format!("{more} clients, client {} among them,", called(first)),
    };
    format!(
        "{by} sent {messages} more messages up to the end of round {round} that are not listed: repetitions, or about other \
         rounds"
    )
}

fn no_progress(rounds: u32, reasons: &[String], pause: Duration) -> String {
    let next = match pause.as_secs() {
        0 => "at once".to_owned(),
        seconds => format!("in {seconds} s"),
    };
    format!(
        "{} in a row had too few acceptable updates ({}); the next one begins {next}. Ctrl-C stops the run, and \
         the same command continues it once the clients are repaired",
        counted(rounds as usize, "round"),
        printable_reasons(reasons)
    )
}

fn disk_full(path: &Path, error: &dyn Display, free: Option<u64>) -> String {
    let free = free.map_or(String::new(), |free| format!(" ({free} bytes are free)"));
    format!(
        "cannot write {}: {error}{free}. The run pauses, and goes on by itself once there is room; nothing that was accepted is \
         lost",
        path.display()
    )
}

fn spoken() -> String {
    let names: Vec<_> =
        Protocol::SPOKEN.iter().map(|version| String::from_utf8_lossy(version.name())).collect();
    names.join(", ")
}

/// A peer's text, fit for a terminal: at most 300 characters, none of them control characters.
#[must_use]
pub fn printable(text: &str) -> String {
    const MAX_CHARS: usize = 300;
    let cut = if text.chars().nth(MAX_CHARS).is_some() { "..." } else { "" };
    let fit = text.chars().take(MAX_CHARS).map(|c| if c.is_control() { ' ' } else { c });
    fit.collect::<String>() + cut
}

/// The first few of any number of reasons, and how many more there are.
#[must_use]
pub fn printable_reasons(reasons: &[String]) -> String {
    const SHOWN: usize = 2;
    let first = reasons.iter().take(SHOWN).map(|reason| printable(reason)).collect::<Vec<_>>().join("; ");
    match reasons.len().saturating_sub(SHOWN) {
        _ if reasons.is_empty() => "no reasons were given".to_owned(),
        0 => first,
        more => format!("{first}; and {more} more"),
    }
}
