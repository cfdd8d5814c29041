//! What a run waits for, as whoever asks later reads it: with moments instead of durations.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use shared::id::ClientId;

use crate::coordinator::{Doing, Status, WaitingFor};
use crate::database::moment;

/// So many members are named; of more there is the number.
const NAMED: usize = 200;

/// A [`Status`] at a moment. Moments are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Rounds closed.
    pub closed: u32,
    /// Rounds of training in all.
    pub rounds: u32,
    /// Connected clients.
    pub connected: usize,
    /// Known clients.
    pub known: usize,
    /// What has to happen next.
    pub waits_for: WaitsFor,
    /// Since when it is waited for.
    pub since: i64,
    /// Whether nothing goes on for want of room on the server's disk.
    #[serde(default)]
    pub paused: bool,
    /// The server's own training, if it is at work: steps done and to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<(u64, u64)>,
}

/// What has to happen next.
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
    /// The end of the pause after a void round.
    Pause {
        /// Void rounds in a row.
        void: u32,
        /// When it ends.
        until: i64,
    },
    /// Updates of an open round.
    Updates {
        /// The round.
        round: u32,
        /// Updates that are in.
        accepted: usize,
        /// Size of the cohort.
        cohort: usize,
        /// Members whose updates are not in, as many as are named.
        members: Vec<Awaited>,
        /// How many more there are.
        more: usize,
    },
    /// A durable step of this machine.
    Disk {
        /// The round.
        round: u32,
    },
    /// Nothing: the run is over.
    Nothing,
}

/// A member of the cohort whose update is not in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited {
    /// Who.
    pub device: ClientId,
    /// What it is at.
    pub stage: Stage,
    /// When it was last heard.
    pub heard: i64,
    /// Whether it is at an earlier round, whose update counts all the same.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// Why it does not train now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What an awaited member is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// It was sent the task and has not said more.
    Receiving,
    /// It trains: steps done and to do.
    Training(u64, u64),
    /// It has trained, and its update is under way.
    Uploading,
    /// Its update is being checked and written down.
    Checking,
    /// It is not connected.
    Away,
    /// It is not in a state to train.
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

    /// Whether more than time and progress tells the two apart.
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
