//! Stored snapshots of a run's status, with points in time instead of durations.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use shared::id::ClientId;

use crate::coordinator::{Doing, Status, WaitingFor};
use crate::database::moment;

/// Limit of the members that a snapshot names; of others it has only the number.
const NAMED: usize = 200;

/// A [`Status`] at a point in time. Times are in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Closed rounds.
    pub closed: u32,
    /// All rounds of training.
    pub rounds: u32,
    /// Connected clients.
    pub connected: usize,
    /// Known clients.
    pub known: usize,
    /// What the run waits for.
    pub waits_for: WaitsFor,
    /// The time since which it waits.
    pub since: i64,
    /// Whether the run is paused because the server's disk is full.
    #[serde(default)]
    pub paused: bool,
    /// Progress of the server's own training: steps done and all steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<(u64, u64)>,
}

/// What a run waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum WaitsFor {
    /// More clients.
    Clients {
        /// Connected.
        connected: usize,
        /// Needed.
        needed: usize,
    },
    /// The end of the pause after a failed round.
    Pause {
        /// Consecutive failed rounds.
        void: u32,
        /// The time of its end.
        until: i64,
    },
    /// Updates of an open round.
    Updates {
        /// The round.
        round: u32,
        /// Received updates.
        accepted: usize,
        /// Size of the cohort.
        cohort: usize,
        /// Members whose updates are missing, up to the limit.
        members: Vec<Awaited>,
        /// The number of further members.
        more: usize,
    },
    /// The disk worker of the server.
    Disk {
        /// The round.
        round: u32,
    },
    /// Nothing: the run is over.
    Nothing,
}

/// A member of the cohort whose update is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// The client.
    pub device: ClientId,
    /// Its progress.
    pub stage: Stage,
    /// The time of its last message.
    pub heard: i64,
    /// Whether it still works on an earlier round whose late update counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// The reason why it does not train now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The progress of an awaited member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// The task was sent; no message since.
    Receiving,
    /// Training: steps done and all steps.
    Training(u64, u64),
    /// Uploading its update.
    Uploading,
    /// Its update is being checked and stored.
    Checking,
    /// Not connected.
    Away,
    /// Not eligible to train.
    NotNow,
}

impl Snapshot {
    /// The status as of `now`.
    #[must_use]
    pub fn of(status: &Status, now: SystemTime) -> Self {
        let now = moment(now);
        let ago = |time: Duration| now - i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let waits_for = match &status.waiting_for {
            &WaitingFor::Clients { connected, needed } => WaitsFor::Clients { connected, needed },
            &WaitingFor::Pause { void, left } => {
                WaitsFor::Pause { void, until: now.saturating_add(now - ago(left)) }
            }
            WaitingFor::Updates { round, accepted, cohort, working, behind, away } => {
                let away_members = away.iter().map(|(client, silent)| Awaited {
                    device: *client,
                    stage: Stage::Away,
                    heard: ago(*silent),
                    late: false,
                    reason: None,
                });
                let at_work = working.iter().map(|member| (member, false));
                let at_work = at_work.chain(behind.iter().map(|member| (member, true)));
                let working_members = at_work.map(|(member, late)| Awaited {
                    device: member.client,
                    stage: member.doing.into(),
                    heard: ago(member.silent),
                    late,
                    reason: match member.doing {
                        Doing::NotNow(reason) => Some(reason.to_string()),
                        _ => None,
                    },
                });
                WaitsFor::Updates {
                    round: *round,
                    accepted: *accepted,
                    cohort: *cohort,
                    members: away_members.chain(working_members).take(NAMED).collect(),
                    more: (away.len() + working.len() + behind.len()).saturating_sub(NAMED),
                }
            }
            &WaitingFor::Disk { round } => WaitsFor::Disk { round },
            WaitingFor::Nothing => WaitsFor::Nothing,
        };
        Self {
            closed: status.closed,
            rounds: status.rounds,
            connected: status.connected,
            known: status.known,
            waits_for,
            since: ago(status.waited),
            paused: status.paused,
            own: status.own,
        }
    }

    /// Whether the two differ in more than time and progress.
    #[must_use]
    pub fn differs_from(&self, other: &Self) -> bool {
        let plain = |snapshot: &Self| {
            let mut plain = Self { since: 0, own: snapshot.own.map(|_| (0, 0)), ..snapshot.clone() };
            match &mut plain.waits_for {
                WaitsFor::Updates { members, .. } => {
                    for member in members {
                        member.heard = 0;
                        if let Stage::Training(done, total) = &mut member.stage {
                            (*done, *total) = (0, 0);
                        }
                    }
                }
                WaitsFor::Pause { until, .. } => *until = 0,
                _ => {}
            }
            plain
        };
        plain(self) != plain(other)
    }
}

impl From<Doing> for Stage {
    fn from(doing: Doing) -> Self {
        match doing {
            Doing::Receiving => Self::Receiving,
            Doing::Training { done, total } => Self::Training(done, total),
            Doing::Uploading => Self::Uploading,
            Doing::Checked => Self::Checking,
            Doing::NotNow(_) => Self::NotNow,
        }
    }
}
