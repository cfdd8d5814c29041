//! Events of `join`, as lines for people or JSON for programs.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use shared::data::{Format, Skipped};
use shared::id::ClientId;
use shared::identity::PublicKey;
use shared::message::{Purpose, Verdict};

use super::status::Status;
use super::{log, terminal};
use crate::driver::Notice;
use crate::failure::Failure;
use crate::session::SessionEnd;

/// An event.
#[derive(Debug)]
pub(super) enum Event {
    /// The client starts.
    Started {
        /// Its id.
        client: ClientId,
        /// The format of its samples.
        format: Format,
        /// The samples that were skipped as unusable.
        skipped: Skipped,
        /// Number of its training samples.
        samples: usize,
        /// Shape of one sample.
        shape: Vec<usize>,
        /// The processor that it trains on: `cpu` or `cuda`.
        device: &'static str,
        /// Number of threads that train.
        threads: usize,
        /// Its state directory.
        state: PathBuf,
    },
    /// The first attempt to connect begins.
    Connecting {
        /// The server's address.
        server: String,
    },
    /// A server is trusted from now on.
    Pinned {
        /// Its key.
        key: PublicKey,
        /// The file that stores it.
        path: PathBuf,
    },
    /// A notice of the driver.
    Notice(Notice),
    /// The user asked to stop.
    Stopping,
    /// The session ended.
    Ended(SessionEnd),
}

/// The destination of events.
#[derive(Clone, Debug)]
pub(super) enum Output {
    /// Standard error, a line with its time per event.
    Lines,
    /// Standard error on a terminal: lines that stay, and a status line below them.
    Screen(Arc<Mutex<Status>>),
    /// Standard output, one JSON object per line.
    Json,
}

impl Output {
    /// The output that suits the arguments and the terminal.
    pub(super) fn new(json: bool) -> Self {
        if json {
            Self::Json
        } else if terminal::is_there() {
            terminal::take_panics();
            Self::Screen(Arc::new(Mutex::new(Status::new())))
        } else {
            Self::Lines
        }
    }

    /// The interval of progress notices; `None` if they are not shown.
    pub(super) fn progress(&self) -> Option<Duration> {
        matches!(self, Self::Screen(_)).then_some(Duration::from_millis(200))
    }

    /// Prints an event. Errors are ignored: training goes on without a reader.
    pub(super) fn show(&self, event: &Event) {
        match self {
            Self::Lines => {
                for line in lines(event) {
                    let _ = writeln!(io::stderr(), "{} {}", log::timestamp(), printable(&line));
                }
            }
            Self::Screen(status) => {
                let mut status = status.lock().unwrap_or_else(PoisonError::into_inner);
                match event {
                    Event::Connecting { server } => status.connecting(server),
                    Event::Notice(notice) => status.handle(notice),
                    Event::Ended(_) => status.over(),
                    Event::Started { .. } | Event::Pinned { .. } | Event::Stopping => {}
                }
                // The status line already shows these.
                if !matches!(event, Event::Connecting { .. } | Event::Notice(Notice::Training { .. })) {
                    for line in lines(event) {
                        terminal::print(&printable(&line));
                    }
                }
                terminal::status(&printable(&status.line()));
            }
            Self::Json => {
                if let Some(object) = object(event) {
                    let mut out = io::stdout().lock();
                    let _ = writeln!(out, "{object}").and_then(|()| out.flush());
                }
            }
        }
    }
}

/// A line without control characters, which could steer a terminal: much of the text comes from the server.
pub(super) fn printable(line: &str) -> String {
    line.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

/// The lines of an event; none for events that only the status line shows.
fn lines(event: &Event) -> Vec<String> {
    let line = match event {
        Event::Notice(Notice::Receiving { .. } | Notice::Progress(_) | Notice::Alive) => return Vec::new(),
        // The key has a line of its own, to be compared and copied.
        Event::Pinned { key, path } => {
            return vec![
                format!(
                    "trusting only this server from now on (stored in {}); compare its key with the one that the \
                     aggregator prints:",
                    path.display()
                ),
                key.to_string(),
            ];
        }
        Event::Started { client, format, skipped, samples, shape, device, threads, state } => {
            let started = format!(
                "client {client}: {samples} samples of shape {shape:?} from {format}, training on {device} ({threads} \
                 threads), state in {}",
                state.display()
            );
            return [started].into_iter().chain(left_out(skipped)).collect();
        }
        Event::Connecting { server } => format!("connecting to {server}"),
        Event::Notice(notice) => notice_text(notice),
        Event::Stopping => "stopping; Ctrl-C again stops at once".to_owned(),
        Event::Ended(SessionEnd::Completed { rounds }) => format!("the run is over after {rounds} rounds"),
        Event::Ended(SessionEnd::Stopped) => "stopped; the same command joins again".to_owned(),
        Event::Ended(SessionEnd::Refused(refusal)) => format!("the server refuses this client: {refusal}"),
        Event::Ended(SessionEnd::Outdated(error)) => error.to_string(),
        Event::Ended(SessionEnd::Unfit(Failure { blame, reason, .. })) => {
            format!("this device cannot take part in the run, {blame}: {reason}")
        }
    };
    vec![line]
}

/// The line about samples that were skipped.
pub(super) fn left_out(skipped: &Skipped) -> Option<String> {
    let words = skipped.in_words("sample")?;
    Some(format!("left out, since they cannot be used: {words}"))
}

fn notice_text(notice: &Notice) -> String {
    match notice {
        Notice::Connected { server } => format!("connected to {server}"),
        Notice::Disconnected { reason, retry, .. } => {
            format!("not connected: {reason}; trying again in {:.1} s", retry.as_secs_f64())
        }
        Notice::TurnedBack { refusal } => format!("not yet: {refusal}; trying again until then"),
        Notice::ServerKey { .. } => "the server has a new key".to_owned(),
        Notice::Joined { spec } => format!(
            "joined run {:?}: {} rounds of {} with model {}",
            spec.name, spec.rounds, spec.algorithm.name, spec.architecture.name
        ),
        Notice::Receiving { round, .. } => format!("round {round}: receiving"),
        Notice::Training { round, work } => {
            let what = match work.purpose() {
                Purpose::Training => "training",
                Purpose::Personalising => "making a model of its own",
                Purpose::Testing => "testing the model",
            };
            format!("round {round}: {what}")
        }
        Notice::Progress(progress) => format!("training: step {} of {}", progress.done, progress.total),
        Notice::Alive => "still at work".to_owned(),
        Notice::Trained { round, work, report, bytes } => {
            let found = report.metrics.iter().flatten().filter(|metric| metric.is_of_model());
            let found = found.flat_map(|metric| metric.values());
            let found: Vec<String> = found.map(|(name, value)| format!("{name} {value:.4}")).collect();
            let mut said = Vec::new();
            if work.train {
                said.push(format!(
                    "trained on {} samples in {:.1} s, {} steps, mean loss {:.4}",
                    report.samples,
                    report.duration.as_secs_f64(),
                    report.steps,
                    report.loss
                ));
            }
            if work.evaluate {
                let found =
                    if found.is_empty() { "nothing to test it on".to_owned() } else { found.join(", ") };
                said.push(format!("tested the model of round {}: {found}", round.saturating_sub(1)));
            }
            if work.personalise {
                said.push("made a model of its own".to_owned());
            }
            format!("round {round}: {}; sending {bytes} bytes", said.join("; "))
        }
        Notice::Ineligible { round, reason } => format!("round {round}: not now: {reason}"),
        Notice::NoRoom { round, reason } => {
            format!(
                "round {round}: the disk is full, so the update stays in memory: {reason}; saving is retried"
            )
        }
        Notice::NoRoomForState { round, reason } => {
            format!(
                "round {round}: the disk is full, so the client state stays in the outbox: {reason}; moving it is retried"
            )
        }
        Notice::Failed { round, failure: Failure { blame, reason, .. } } => {
            format!("round {round}: training failed, {blame}: {reason}")
        }
        Notice::Receipt { round, verdict: Verdict::Accepted } => format!("round {round}: update accepted"),
        Notice::Receipt { round, verdict: Verdict::Rejected(reason) } => {
            format!("round {round}: update rejected: {reason}")
        }
        Notice::Receipt { round, verdict: Verdict::Discarded(reason) } => {
            format!("round {round}: update not used: {reason}")
        }
    }
}

/// The event as JSON; none for events that only the status line shows.
fn object(event: &Event) -> Option<Value> {
    Some(match event {
        Event::Started { client, format, skipped, samples, shape, device, threads, state } => json!({
            "event": "started", "client": client, "data": format.to_string(), "skipped": skipped.count,
            "skipped_others": skipped.others, "skipped_reasons": skipped.reasons, "samples": samples, "shape": shape,
            "device": device, "threads": threads, "state": state.display().to_string(),
        }),
        Event::Connecting { server } => json!({ "event": "connecting", "server": server }),
        Event::Pinned { key, path } => json!({
            "event": "pinned", "key": key, "path": path.display().to_string(),
        }),
        Event::Notice(notice) => return notice_object(notice),
        Event::Stopping => json!({ "event": "stopping" }),
        Event::Ended(SessionEnd::Completed { rounds }) => json!({ "event": "completed", "rounds": rounds }),
        Event::Ended(SessionEnd::Stopped) => json!({ "event": "stopped" }),
        Event::Ended(SessionEnd::Refused(refusal)) => {
            json!({ "event": "refused", "reason": refusal.to_string() })
        }
        Event::Ended(SessionEnd::Outdated(error)) => {
            json!({ "event": "outdated", "reason": error.to_string() })
        }
        Event::Ended(SessionEnd::Unfit(Failure { blame, reason, .. })) => {
            json!({ "event": "unfit", "blame": blame, "reason": reason })
        }
    })
}

fn notice_object(notice: &Notice) -> Option<Value> {
    Some(match notice {
        Notice::Receiving { .. } | Notice::Progress(_) | Notice::Alive => return None,
        Notice::Connected { server } => json!({ "event": "connected", "server": server }),
        Notice::Disconnected { reason, retry, .. } => json!({
            "event": "disconnected", "reason": reason, "retry_seconds": retry.as_secs_f64(),
        }),
        Notice::TurnedBack { refusal } => json!({ "event": "turned-back", "reason": refusal.to_string() }),
        Notice::ServerKey { key } => json!({ "event": "server-key", "key": key }),
        Notice::Joined { spec } => json!({
            "event": "joined", "run": spec.run, "name": spec.name, "rounds": spec.rounds,
            "algorithm": spec.algorithm.name, "model": spec.architecture.name,
        }),
        Notice::Training { round, work } => {
            let event = match work.purpose() {
                Purpose::Training => "training",
                Purpose::Personalising => "personalising",
                Purpose::Testing => "testing",
            };
            json!({ "event": event, "round": round })
        }
        Notice::Trained { round, work, report, bytes } => {
            let found: serde_json::Map<String, Value> = report
                .metrics
                .iter()
                .flatten()
                .flat_map(|metric| metric.values())
                .map(|(name, value)| (name, value.into()))
                .collect();
            let event = match work.purpose() {
                Purpose::Training => "trained",
                Purpose::Personalising => "personalised",
                Purpose::Testing => "tested",
            };
            json!({
                "event": event, "round": round, "samples": report.samples,
                "steps": report.steps, "loss": report.loss, "seconds": report.duration.as_secs_f64(), "bytes": bytes,
                "metrics": found,
            })
        }
        Notice::Ineligible { round, reason } => {
            json!({ "event": "not-now", "round": round, "reason": reason.to_string() })
        }
        Notice::NoRoom { round, reason } | Notice::NoRoomForState { round, reason } => {
            json!({ "event": "no-room", "round": round, "reason": reason })
        }
        Notice::Failed { round, failure: Failure { blame, reason, .. } } => {
            json!({ "event": "failed", "round": round, "blame": blame, "reason": reason })
        }
        Notice::Receipt { round, verdict } => {
            let (verdict, reason) = match verdict {
                Verdict::Accepted => ("accepted", None),
                Verdict::Rejected(reason) => ("rejected", Some(reason.to_string())),
                Verdict::Discarded(reason) => ("discarded", Some(reason.to_string())),
            };
            json!({ "event": "receipt", "round": round, "verdict": verdict, "reason": reason })
        }
    })
}

#[cfg(test)]
mod tests;
