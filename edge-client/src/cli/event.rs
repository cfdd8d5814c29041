//! What happens while the client takes part, as a line for people or for programs.

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::{Value, json};
use shared::id::ClientId;
use shared::message::Verdict;

use crate::driver::Notice;
use crate::session::Outcome;
use crate::trust::{Fingerprint, to_hex};

/// Something worth a line.
#[derive(Debug)]
pub(super) enum Event {
    /// The client starts.
    Started {
        /// Who it is.
        client: ClientId,
        /// Its training samples.
        samples: usize,
        /// Shape of one sample.
        shape: Vec<usize>,
        /// What it trains on: `cpu` or `cuda`.
        device: &'static str,
        /// Threads that train.
        threads: usize,
        /// Its state directory.
        state: PathBuf,
    },
    /// A server is trusted from now on.
    Pinned {
        /// Its certificate's fingerprint.
        fingerprint: Fingerprint,
        /// Where that is remembered.
        path: PathBuf,
    },
    /// The driver has something to say.
    Notice(Notice),
    /// The user asked to stop.
    Stopping,
    /// It is over.
    Ended(Outcome),
}

/// Where events go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Standard error, for people.
    Text,
    /// Standard output, one JSON object per line.
    Json,
}

impl Output {
    /// Prints an event. Nobody may be listening any more; that is no reason to stop training.
    pub(super) fn show(self, event: &Event) {
        let _ = match self {
            Self::Text => writeln!(io::stderr(), "{}", printable(&text(event))),
            Self::Json => {
                let mut out = io::stdout().lock();
                writeln!(out, "{}", object(event)).and_then(|()| out.flush())
            }
        };
    }
}

/// A line without what would steer a terminal: much of the text comes from the server.
pub(super) fn printable(line: &str) -> String {
    line.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

fn text(event: &Event) -> String {
    match event {
        Event::Started { client, samples, shape, device, threads, state } => format!(
            "client {client}: {samples} samples of shape {shape:?}, training on {device} ({threads} threads), state in \
             {}",
            state.display()
        ),
        Event::Pinned { fingerprint, path } => format!(
            "trusting only this server from now on: fingerprint {}, kept in {}; compare it with what the aggregator \
             prints",
            to_hex(fingerprint),
            path.display()
        ),
        Event::Notice(notice) => notice_text(notice),
        Event::Stopping => "stopping; Ctrl-C again stops at once".to_owned(),
        Event::Ended(Outcome::Completed { rounds }) => format!("the run is over after {rounds} rounds"),
        Event::Ended(Outcome::Stopped) => "stopped; the same command joins again".to_owned(),
        Event::Ended(Outcome::Refused(refusal)) => format!("the server refuses this client: {refusal}"),
    }
}

fn notice_text(notice: &Notice) -> String {
    match notice {
        Notice::Connected { server } => format!("connected to {server}"),
        Notice::Disconnected { reason, retry } => {
            format!("not connected: {reason}; trying again in {:.1} s", retry.as_secs_f64())
        }
        Notice::Joined { spec } => format!(
            "joined run {:?}: {} rounds of {} with model {}",
            spec.name, spec.rounds, spec.algorithm.name, spec.architecture.name
        ),
        Notice::Training { round } => format!("round {round}: training"),
        Notice::Trained { round, report, bytes } => format!(
            "round {round}: trained on {} samples in {:.1} s, {} steps, mean loss {:.4}; sending {bytes} bytes",
            report.samples,
            report.duration.as_secs_f64(),
            report.steps,
            report.loss
        ),
        Notice::Failed { round, reason } => format!("round {round}: training failed: {reason}"),
        Notice::Receipt { round, verdict: Verdict::Accepted } => format!("round {round}: update accepted"),
        Notice::Receipt { round, verdict: Verdict::Rejected(reason) } => {
            format!("round {round}: update rejected: {reason}")
        }
        Notice::Receipt { round, verdict: Verdict::Discarded(reason) } => {
            format!("round {round}: update not used: {reason}")
        }
    }
}

fn object(event: &Event) -> Value {
    match event {
        Event::Started { client, samples, shape, device, threads, state } => json!({
            "event": "started", "client": client, "samples": samples, "shape": shape, "device": device,
            "threads": threads, "state": state.display().to_string(),
        }),
        Event::Pinned { fingerprint, path } => json!({
            "event": "pinned", "fingerprint": to_hex(fingerprint), "path": path.display().to_string(),
        }),
        Event::Notice(notice) => notice_object(notice),
        Event::Stopping => json!({ "event": "stopping" }),
        Event::Ended(Outcome::Completed { rounds }) => json!({ "event": "completed", "rounds": rounds }),
        Event::Ended(Outcome::Stopped) => json!({ "event": "stopped" }),
        Event::Ended(Outcome::Refused(refusal)) => {
            json!({ "event": "refused", "reason": refusal.to_string() })
        }
    }
}

fn notice_object(notice: &Notice) -> Value {
    match notice {
        Notice::Connected { server } => json!({ "event": "connected", "server": server }),
        Notice::Disconnected { reason, retry } => json!({
            "event": "disconnected", "reason": reason, "retry_seconds": retry.as_secs_f64(),
        }),
        Notice::Joined { spec } => json!({
            "event": "joined", "run": spec.run, "name": spec.name, "rounds": spec.rounds,
            "algorithm": spec.algorithm.name, "model": spec.architecture.name,
        }),
        Notice::Training { round } => json!({ "event": "training", "round": round }),
        Notice::Trained { round, report, bytes } => json!({
            "event": "trained", "round": round, "samples": report.samples, "steps": report.steps, "loss": report.loss,
            "seconds": report.duration.as_secs_f64(), "bytes": bytes,
        }),
        Notice::Failed { round, reason } => json!({ "event": "failed", "round": round, "reason": reason }),
        Notice::Receipt { round, verdict } => {
            let (verdict, reason) = match verdict {
                Verdict::Accepted => ("accepted", None),
                Verdict::Rejected(reason) => ("rejected", Some(reason.to_string())),
                Verdict::Discarded(reason) => ("discarded", Some(reason.to_string())),
            };
            json!({ "event": "receipt", "round": round, "verdict": verdict, "reason": reason })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shared::message::{Discard, Refusal, Rejection, TrainReport};
    use shared::spec::RunSpec;

    use super::*;

    fn events() -> Vec<Event> {
        let report =
            TrainReport { samples: 600, steps: 60, loss: 0.25, duration: Duration::from_millis(1500) };
        let receipt = |verdict| Notice::Receipt { round: 2, verdict };
        let notices = [
            Notice::Connected { server: "lab:4433".to_owned() },
            Notice::Disconnected { reason: "a\nb".to_owned(), retry: Duration::from_millis(250) },
            Notice::Joined { spec: Box::new(RunSpec::example("fedavg")) },
            Notice::Training { round: 2 },
            Notice::Trained { round: 2, report, bytes: 1234 },
            Notice::Failed { round: 2, reason: "diverged".to_owned() },
            receipt(Verdict::Accepted),
            receipt(Verdict::Rejected(Rejection::NotInCohort { round: 2 })),
            receipt(Verdict::Discarded(Discard::Late)),
        ];
        let mut events = vec![
            Event::Started {
                client: ClientId::from_bytes([0xab; 16]),
                samples: 600,
                shape: vec![1, 28, 28],
                device: "cpu",
                threads: 2,
                state: "s".into(),
            },
            Event::Pinned { fingerprint: [0xcd; 32], path: "s/server".into() },
        ];
        events.extend(notices.into_iter().map(Event::Notice));
        events.extend([
            Event::Stopping,
            Event::Ended(Outcome::Completed { rounds: 3 }),
            Event::Ended(Outcome::Stopped),
            Event::Ended(Outcome::Refused(Refusal::NoSamples)),
        ]);
        events
    }

    #[test]
    fn every_event_is_one_object_on_one_line_that_names_it() {
        let names: Vec<String> = events()
            .iter()
            .map(|event| {
                let line = object(event).to_string();
                assert!(!line.contains('\n'), "{line}");
                let object: Value = serde_json::from_str(&line).unwrap();
                object["event"].as_str().unwrap().to_owned()
            })
            .collect();
        let expected = "started pinned connected disconnected joined training trained failed receipt receipt receipt \
                        stopping completed stopped refused";
        assert_eq!(names.join(" "), expected);
    }

    #[test]
    fn what_the_server_says_does_not_steer_the_terminal() {
        let reason = "gone\x1b[2J\nround 9: update accepted".to_owned();
        let event = Event::Notice(Notice::Disconnected { reason, retry: Duration::ZERO });
        let line = printable(&text(&event));
        assert!(
            line.contains("gone\u{fffd}[2J\u{fffd}round 9") && !line.contains(char::is_control),
            "{line}"
        );
    }

    #[test]
    fn the_numbers_are_those_of_the_report() {
        let all = events();
        let trained = object(&all[6]);
        assert_eq!(
            trained,
            json!({ "event": "trained", "round": 2, "samples": 600, "steps": 60, "loss": 0.25, "seconds": 1.5, "bytes": 1234 })
        );
        assert_eq!(
            text(&all[6]),
            "round 2: trained on 600 samples in 1.5 s, 60 steps, mean loss 0.2500; sending 1234 bytes"
        );
        assert_eq!(object(&all[10])["verdict"], "discarded");
        assert_eq!(text(&all[8]), "round 2: update accepted");
        assert!(text(&all[1]).contains(&"cd".repeat(32)));
        assert_eq!(object(&all[0])["client"], "ab".repeat(16));
    }
}
