//! Events of `join`, as lines for people or JSON for programs.

mod hiding;
mod server;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use models::shape::spelled;
use serde_json::{Map, Value, json};
use shared::calendar::{moment, utc};
use shared::cli::counted;
use shared::client_state::difference_in_words;
use shared::data::{Format, Skipped};
use shared::id::ClientId;
use shared::identity::PublicKey;
use shared::message::{Purpose, TaskKind, TrainReport, Verdict};
use shared::spec::RunSpec;

use super::repeats::Repeats;
use super::terminal;
use crate::driver::Notice;
use crate::failure::Failure;
use crate::session::SessionEnd;
use crate::status::line::{StatusLine, size};

/// Where a client's samples are, and who learns from them.
#[derive(Clone, Debug)]
pub(super) enum Learned {
    /// This program, from files.
    From {
        /// Their format.
        format: Format,
        /// Their folder.
        folder: PathBuf,
    },
    /// A program of the owner's own, by this command.
    By(String),
}

/// An event.
#[derive(Debug)]
pub(super) enum Event {
    /// The client starts.
    Started {
        /// Its id.
        client: ClientId,
        /// Its samples.
        data: Learned,
        /// The processor that it trains on: `cpu` or `cuda`.
        device: &'static str,
        /// Number of threads that train.
        threads: usize,
        /// Its state directory.
        state: PathBuf,
    },
    /// The samples were read.
    Samples {
        /// Their format.
        format: Format,
        /// The samples that were skipped as unusable.
        skipped: Skipped,
        /// Number of training samples.
        samples: usize,
        /// Shape of one sample.
        shape: Vec<usize>,
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

impl Event {
    /// Whether people have not read the same before.
    fn is_news(&self, repeats: &mut Repeats) -> bool {
        if let Self::Notice(notice) = self { repeats.is_news(notice) } else { true }
    }
}

/// The destination of events.
#[derive(Clone, Debug)]
pub(super) enum Output {
    /// Standard error, a line with its time per event.
    Lines(Arc<Mutex<Repeats>>),
    /// Standard error on a terminal: lines that stay, and a status line below them.
    Screen(Arc<Mutex<(StatusLine, Repeats)>>),
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
            Self::Screen(Arc::new(Mutex::new((StatusLine::new(), Repeats::default()))))
        } else {
            Self::Lines(Arc::default())
        }
    }

    /// The interval of progress notices; `None` if they are not shown.
    pub(super) fn progress(&self) -> Option<Duration> {
        matches!(self, Self::Screen(_)).then_some(Duration::from_millis(200))
    }

    /// Prints an event. Errors are ignored: training goes on without a reader.
    pub(super) fn show(&self, event: &Event) {
        let said = said(event);
        match self {
            Self::Lines(repeats) => {
                if !event.is_news(&mut repeats.lock().unwrap_or_else(PoisonError::into_inner)) {
                    return;
                }
                for line in said.iter().flat_map(|said| &said.lines) {
                    let _ = writeln!(io::stderr(), "{} {}", utc(moment(SystemTime::now())), printable(line));
                }
            }
            Self::Screen(status) => {
                let (status, repeats) = &mut *status.lock().unwrap_or_else(PoisonError::into_inner);
                match event {
                    Event::Connecting { server } => status.connecting(server),
                    Event::Notice(notice) => status.handle(notice),
                    Event::Ended(_) => status.over(),
                    Event::Started { .. }
                    | Event::Samples { .. }
                    | Event::Pinned { .. }
                    | Event::Stopping => {}
                }
                // The status line already shows these.
                let shown =
                    matches!(event, Event::Connecting { .. } | Event::Notice(Notice::Training { .. }));
                if !shown && event.is_news(repeats) {
                    for line in said.iter().flat_map(|said| &said.lines) {
                        terminal::print_at(SystemTime::now(), &printable(line));
                    }
                }
                terminal::status(&printable(status.line()));
            }
            Self::Json => {
                if let Some(Said { object, .. }) = said {
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

/// What is said of an event: to people and to programs.
struct Said {
    lines: Vec<String>,
    object: Value,
}

/// A line, and a JSON object with the event's name.
fn one(line: String, object: Value) -> Said {
    Said { lines: vec![line], object }
}

/// What is said of an event; nothing of those that only the status line shows.
fn said(event: &Event) -> Option<Said> {
    Some(match event {
        Event::Started { client, data: Learned::From { format, folder }, device, threads, state } => {
            let (state, folder) = (state.display().to_string(), folder.display().to_string());
            let started = format!(
                "client {client}: {format} in {folder}, training on {device} ({}), state in {state}",
                counted(*threads, "thread")
            );
            let object = json!({
                "event": "started", "client": client, "data": format.to_string(), "folder": folder,
                "device": device, "threads": threads, "state": state,
            });
            one(started, object)
        }
        Event::Started { client, data: Learned::By(trainer), state, .. } => {
            let state = state.display().to_string();
            let started = format!("client {client}: trained by `{trainer}`, state in {state}");
            let object = json!({ "event": "started", "client": client, "trainer": trainer, "state": state });
            one(started, object)
        }
        Event::Samples { format, skipped, samples, shape } => {
            let read =
                format!("{} of shape {} from {format}", counted(*samples, "training sample"), spelled(shape));
            let object = json!({
                "event": "samples", "data": format.to_string(), "skipped": skipped.count,
                "skipped_others": skipped.others, "skipped_reasons": skipped.reasons, "samples": samples, "shape": shape,
            });
            Said { lines: [read].into_iter().chain(left_out(skipped)).collect(), object }
        }
        Event::Connecting { server } => {
            one(format!("connecting to {server}"), json!({ "event": "connecting", "server": server }))
        }
        // The key has a line of its own, to be compared and copied.
        Event::Pinned { key, path } => {
            let path = path.display().to_string();
            let trusting = format!(
                "trusting only this server from now on (stored in {path}); compare its key with the one that the \
                 aggregator prints:"
            );
            let object = json!({ "event": "pinned", "key": key, "path": path });
            Said { lines: vec![trusting, key.to_string()], object }
        }
        Event::Notice(notice) => return said_of_notice(notice),
        Event::Stopping => {
            one("stopping; Ctrl-C again stops at once".to_owned(), json!({ "event": "stopping" }))
        }
        Event::Ended(end) => {
            let object = match end {
                SessionEnd::Completed { rounds } => json!({ "event": "completed", "rounds": rounds }),
                SessionEnd::Stopped => json!({ "event": "stopped" }),
                SessionEnd::Refused(refusal) => json!({ "event": "refused", "reason": refusal.to_string() }),
                SessionEnd::Outdated(error) => json!({ "event": "outdated", "reason": error.to_string() }),
                SessionEnd::TooLarge(error) => json!({
                    "event": "too-large", "reason": error.to_string(), "needed_bytes": error.needed,
                    "allowed_bytes": error.allowed,
                }),
                SessionEnd::Unfit(Failure { blame, reason, .. }) => {
                    json!({ "event": "unfit", "blame": blame, "reason": reason })
                }
            };
            one(ending(end), object)
        }
    })
}

/// How a session ended, for people.
pub(super) fn ending(end: &SessionEnd) -> String {
    match end {
        SessionEnd::Completed { rounds } => {
            format!("the run is over after {}", counted(*rounds as usize, "round"))
        }
        SessionEnd::Stopped => "stopped; the same command joins again".to_owned(),
        SessionEnd::Refused(refusal) => format!("the server refuses this client: {refusal}"),
        SessionEnd::Outdated(error) => error.to_string(),
        SessionEnd::TooLarge(error) => error.to_string(),
        SessionEnd::Unfit(Failure { blame, reason, .. }) => {
            format!("this device cannot take part in the run, {blame}: {reason}")
        }
    }
}

/// The line about samples that were skipped.
pub(super) fn left_out(skipped: &Skipped) -> Option<String> {
    let words = skipped.in_words("sample")?;
    Some(format!("left out, since they cannot be used: {words}"))
}

fn said_of_notice(notice: &Notice) -> Option<Said> {
    let (line, object) = match notice {
        Notice::Receiving { .. } | Notice::Progress(_) | Notice::Alive => return None,
        Notice::Connected { .. }
        | Notice::Disconnected { .. }
        | Notice::TurnedBack { .. }
        | Notice::ServerKey { .. }
        | Notice::Servers { .. } => return server::said(notice),
        Notice::Joined { spec } => joined(spec),
        Notice::Training { round, work } => {
            let (what, event) = match work.purpose() {
                Purpose::Training => ("training", "training"),
                Purpose::Personalising => ("making a model of its own", "personalising"),
                Purpose::Testing => ("testing the model", "testing"),
            };
            (format!("round {round}: {what}"), json!({ "event": event, "round": round }))
        }
        Notice::Trained { round, work, report, bytes } => {
            let event = match work.purpose() {
                Purpose::Training => "trained",
                Purpose::Personalising => "personalised",
                Purpose::Testing => "tested",
            };
            let metrics = report.metrics.iter().flatten().flat_map(|metric| metric.values());
            let metrics: Map<_, _> = metrics.map(|(name, value)| (name, value.into())).collect();
            let object = json!({
                "event": event, "round": round, "samples": report.samples, "steps": report.steps, "loss": report.loss,
                "seconds": report.duration.as_secs_f64(), "bytes": bytes, "metrics": metrics,
            });
            (
                format!("round {round}: {}; sending {}", done(*round, *work, report), size(*bytes as u64)),
                object,
            )
        }
        Notice::Hiding { .. } | Notice::Hidden { .. } | Notice::Refused { .. } => hiding::said(notice)?,
        Notice::Ineligible { round, reason } => (
            format!("round {round}: not now: {reason}"),
            json!({ "event": "not-now", "round": round, "reason": reason.to_string() }),
        ),
        Notice::NoRoom { round, reason } => (
            format!(
                "round {round}: the disk is full, so the update stays in memory: {reason}; saving is retried"
            ),
            json!({ "event": "no-room", "round": round, "reason": reason }),
        ),
        Notice::NoRoomForState { round, reason } => (
            format!(
                "round {round}: the disk is full, so the client state stays in the outbox: {reason}; moving it is retried"
            ),
            json!({ "event": "no-room", "round": round, "reason": reason }),
        ),
        &Notice::State { server, device } => (
            format!("WARNING: {}", difference_in_words(server, device)?),
            json!({
                "event": "client-state",
                "device_round": device.map(|update| update.round),
                "server_round": server.map(|update| update.round),
            }),
        ),
        Notice::Untested { reason } => (
            format!(
                "WARNING: the run has its models tested on its devices, and this one will test none: {reason}. It trains all the same"
            ),
            json!({ "event": "untested", "reason": reason }),
        ),
        Notice::Failed { round, failure: Failure { blame, reason, .. } } => (
            format!("round {round}: training failed, {blame}: {reason}"),
            json!({ "event": "failed", "round": round, "blame": blame, "reason": reason }),
        ),
        Notice::Receipt { round, verdict } => {
            let (said, verdict, reason) = match verdict {
                Verdict::Accepted => ("accepted", "accepted", None),
                Verdict::Rejected(reason) => ("rejected", "rejected", Some(reason.to_string())),
                Verdict::Discarded(reason) => ("not used", "discarded", Some(reason.to_string())),
            };
            let why = reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
            (
                format!("round {round}: update {said}{why}"),
                json!({ "event": "receipt", "round": round, "verdict": verdict, "reason": reason }),
            )
        }
    };
    Some(one(line, object))
}

fn joined(spec: &RunSpec) -> (String, Value) {
    let RunSpec { run, name, rounds, .. } = spec;
    let (algorithm, model) = (&spec.algorithm.name, &spec.architecture.name);
    let line = format!(
        "joined run {name:?}: {} of {algorithm} with model {model}",
        counted(*rounds as usize, "round")
    );
    let object = json!({
        "event": "joined", "run": run, "name": name, "rounds": rounds, "algorithm": algorithm, "model": model,
    });
    (line, object)
}

/// What a finished task did, for people.
fn done(round: u32, work: TaskKind, report: &TrainReport) -> String {
    let mut done = Vec::new();
    if work.train {
        done.push(format!(
            "trained {} in {:.1} s, mean loss {:.4}",
            counted(report.steps as usize, "step"),
            report.duration.as_secs_f64(),
            report.loss
        ));
    }
    if work.evaluate {
        let found = report.metrics.iter().flatten().filter(|metric| metric.is_of_model());
        let found = found.flat_map(|metric| metric.values());
        let found: Vec<String> = found.map(|(name, value)| format!("{name} {value:.4}")).collect();
        let found = if found.is_empty() { "nothing to test it on".to_owned() } else { found.join(", ") };
        done.push(format!("tested the model of round {}: {found}", round.saturating_sub(1)));
    }
    if work.personalise {
        done.push("made a model of its own".to_owned());
    }
    done.join("; ")
}

#[cfg(test)]
mod tests;
