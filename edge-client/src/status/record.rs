//! The status of a device that takes part in runs, kept from the notices of the driver.

use serde::{Deserialize, Serialize};
use shared::id::{ClientId, RunId};
use shared::message::Verdict;

use super::line::{Doing, StatusLine};
use crate::driver::Notice;
use crate::session::SOFTWARE;

/// Results of rounds that are kept, the newest first.
const KEPT: usize = 5;

/// How a round ended on this device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundResult {
    /// The round.
    pub round: u32,
    /// `accepted`, `rejected`, `discarded`, `failed` or `not-now`.
    pub result: String,
    /// Why; empty of an accepted update.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// When, milliseconds since 1970.
    pub at: i64,
}

/// What a device does and has done since its process began. Times are milliseconds since 1970 by the device's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceStatus {
    /// The device.
    pub client: ClientId,
    /// The program and its version.
    pub software: String,
    /// Its process.
    pub process: u32,
    /// When that began.
    pub began: i64,
    /// When this was written.
    pub told: i64,
    /// The server, or the servers that it tries.
    pub server: String,
    /// Since when it is connected; absent while it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connected: Option<i64>,
    /// When it tries to connect again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<i64>,
    /// Why it is not connected or not admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// The run that it takes part in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The devices among whose updates its last one was hidden; absent if the server has seen it, or there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden_among: Option<usize>,
    /// What it does, as a sentence.
    pub doing: String,
    /// Since when it does that.
    pub since: i64,
    /// The round that it works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round: Option<u32>,
    /// Steps of training that are done, and all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<(u64, u64)>,
    /// Updates that the server has accepted since the process began.
    pub accepted: u32,
    /// Those that it has rejected.
    pub rejected: u32,
    /// Those that it did not need.
    pub discarded: u32,
    /// Rounds that failed on the device.
    pub failed: u32,
    /// How its last rounds ended, the newest first.
    pub last: Vec<RoundResult>,
    /// How the process ended; absent while it runs, and after a kill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    #[serde(skip)]
    line: StatusLine,
}

impl DeviceStatus {
    /// That of a process which begins at `now`, and connects to `server`.
    #[must_use]
    pub fn begin(client: ClientId, server: &str, now: i64) -> Self {
        let mut line = StatusLine::new();
        line.connecting(server);
        Self {
            client,
            software: SOFTWARE.to_owned(),
            process: std::process::id(),
            began: now,
            told: now,
            server: server.to_owned(),
            connected: None,
            next_attempt: None,
            trouble: None,
            run: None,
            hidden_among: None,
            doing: line.line().to_owned(),
            since: now,
            round: None,
            progress: None,
            accepted: 0,
            rejected: 0,
            discarded: 0,
            failed: 0,
            last: Vec::new(),
            ended: None,
            line,
        }
    }

    /// Something happened. Returns whether it is more than progress of what is known.
    pub fn handle(&mut self, notice: &Notice, now: i64) -> bool {
        self.told = now;
        let before = (self.round, self.line.kind());
        let works = self.line.works();
        match notice {
            Notice::Connected { server } => {
                (self.server, self.connected) = (server.clone(), Some(now));
                (self.next_attempt, self.trouble) = (None, None);
            }
            Notice::Disconnected { server, reason, retry } => {
                self.server.clone_from(server);
                self.connected = None;
                if !works {
                    (self.round, self.progress) = (None, None);
                }
                self.next_attempt = Some(now + i64::try_from(retry.as_millis()).unwrap_or(i64::MAX));
                // While it waits for approval, that is why.
                if before.1 != Doing::Approval {
                    self.trouble = Some(reason.clone());
                }
            }
            Notice::TurnedBack { refusal } => self.trouble = Some(refusal.to_string()),
            Notice::Joined { spec } => {
                (self.run, self.trouble, self.hidden_among) = (Some(spec.run), None, None);
            }
            // The task of a newer round may arrive while this one is trained.
            Notice::Receiving { .. } if works => {}
            Notice::Receiving { round: of, .. } | Notice::Training { round: of, .. } => {
                (self.round, self.progress) = (Some(*of), None);
            }
            Notice::Progress(progress) => {
                self.round = progress.round.or(self.round);
                self.progress = Some((progress.done, progress.total));
            }
            Notice::Trained { round: of, .. } => {
                (self.round, self.progress) = (Some(*of), None);
                // It has found room.
                self.trouble = None;
            }
            Notice::Ineligible { round, reason } => self.result(*round, "not-now", reason.to_string(), now),
            Notice::Failed { round, failure } => {
                self.failed += 1;
                self.result(*round, "failed", failure.reason.clone(), now);
            }
            Notice::Receipt { round, verdict } => match verdict {
                Verdict::Accepted => {
                    self.accepted += 1;
                    self.result(*round, "accepted", String::new(), now);
                }
                Verdict::Rejected(reason) => {
                    self.rejected += 1;
                    self.result(*round, "rejected", reason.to_string(), now);
                }
                Verdict::Discarded(reason) => {
                    self.discarded += 1;
                    self.result(*round, "discarded", reason.to_string(), now);
                }
            },
            Notice::NoRoom { reason, .. } | Notice::NoRoomForState { reason, .. } => {
                self.trouble = Some(format!("the disk is full: {reason}"));
            }
            Notice::Refused { round, reason } => {
                self.trouble = Some(format!("round {round}: the server was refused: {reason}"));
            }
            Notice::Hidden { devices, .. } => self.hidden_among = Some(*devices),
            Notice::Untested { .. }
            | Notice::State { .. }
            | Notice::ServerKey { .. }
            | Notice::Servers { .. }
            | Notice::Hiding { .. }
            | Notice::Alive => {}
        }
        self.line.handle(notice);
        self.line.line().clone_into(&mut self.doing);
        if (self.round, self.line.kind()) != before {
            self.since = now;
        }
        !matches!(notice, Notice::Alive | Notice::Progress(_) | Notice::Receiving { .. })
    }

    /// The process ends, and why.
    pub fn end(&mut self, why: &str, now: i64) {
        (self.told, self.since) = (now, now);
        (self.connected, self.next_attempt, self.round, self.progress) = (None, None, None, None);
        "ended".clone_into(&mut self.doing);
        self.ended = Some(why.to_owned());
    }

    fn result(&mut self, round: u32, result: &str, reason: String, at: i64) {
        // The receipt of a round may come while the next one is trained.
        if self.round == Some(round) {
            (self.round, self.progress) = (None, None);
        }
        self.last.insert(0, RoundResult { round, result: result.to_owned(), reason, at });
        self.last.truncate(KEPT);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shared::message::{Progress, Rejection, TaskKind, TrainReport};

    use super::*;

    #[test]
    fn the_status_follows_the_notices() {
        let mut status = DeviceStatus::begin(ClientId::from_bytes([7; 16]), "lab:4433", 1_000);
        assert_eq!((status.doing.as_str(), status.since), ("connecting to lab:4433", 1_000));
        let reason = "no answer".to_owned();
        let retry = Duration::from_secs(2);
        let lost = Notice::Disconnected { server: "lab:4433".to_owned(), reason, retry };
        assert!(status.handle(&lost, 2_000));
        assert_eq!((status.connected, status.next_attempt), (None, Some(4_000)));
        assert_eq!(status.trouble.as_deref(), Some("no answer"));
        status.handle(&Notice::Connected { server: "lab:4433".to_owned() }, 4_000);
        assert_eq!((status.connected, status.next_attempt, &status.trouble), (Some(4_000), None, &None));
        status.handle(&Notice::Training { round: 3, work: TaskKind::TRAIN }, 5_000);
        let progress = |done| Notice::Progress(Progress { round: Some(3), done, total: 10 });
        assert!(!status.handle(&progress(4), 6_000), "it is known that it trains");
        assert_eq!((status.round, status.progress, status.since), (Some(3), Some((4, 10)), 5_000));
        assert!(status.doing.contains("round 3: training"), "{}", status.doing);
        status.handle(&Notice::Receiving { round: 4, received: 1, total: 9 }, 6_500);
        status.handle(&Notice::Receipt { round: 2, verdict: Verdict::Accepted }, 6_600);
        assert_eq!((status.round, status.progress, status.since), (Some(3), Some((4, 10)), 5_000));
        let report = TrainReport::default();
        status.handle(&Notice::Trained { round: 3, work: TaskKind::TRAIN, report, bytes: 10 }, 7_000);
        assert_eq!((status.since, status.progress), (7_000, None));
        status.handle(&Notice::Receipt { round: 3, verdict: Verdict::Accepted }, 8_000);
        let rejected = Verdict::Rejected(Rejection::NotInCohort { round: 4 });
        status.handle(&Notice::Receipt { round: 4, verdict: rejected }, 9_000);
        assert_eq!((status.accepted, status.rejected, status.round), (2, 1, None));
        let last: Vec<_> = status.last.iter().map(|last| (last.round, last.result.as_str())).collect();
        assert_eq!(last, [(4, "rejected"), (3, "accepted"), (2, "accepted")]);
        for round in 5..20 {
            status.handle(&Notice::Receipt { round, verdict: Verdict::Accepted }, 10_000);
        }
        assert_eq!((status.last.len(), status.last[0].round), (KEPT, 19));
        status.end("the run is over", 11_000);
        assert_eq!((status.doing.as_str(), status.connected), ("ended", None));
        // What a program reads.
        let json = serde_json::to_string(&status).expect("JSON");
        let read: DeviceStatus = serde_json::from_str(&json).expect("the same");
        assert_eq!(read.last, status.last);
    }
}
