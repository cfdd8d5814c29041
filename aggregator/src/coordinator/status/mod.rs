//! Status of a run: what it waits for, and since when.
//!
//! The state machine has no calendar, so its status says how long ago things were, as a [`Duration`]; [`Status::at`] turns that
//! into moments, in milliseconds since 1970 (UTC), for the record of the run.
//!
//! * `waiting`: what the coordinator waits for;
//! * `sentence`: the status as an operator reads it.

mod sentence;
mod waiting;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use shared::id::ClientId;

/// Members that a stored status names; of more there is the number.
const MAX_NAMED: usize = 200;

/// A snapshot for the operator, with times of type `T`: how long ago, or a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status<T = Duration> {
    /// Rounds closed.
    pub closed: u32,
    /// The number of the last round of training: those that the run is to have, and one more for each that failed.
    pub rounds: u32,
    /// Closed rounds of training without a result.
    #[serde(default)]
    pub failed: u32,
    /// Connected clients.
    pub connected: usize,
    /// Known clients.
    pub known: usize,
    /// What has to happen next.
    #[serde(rename = "waits_for")]
    pub waiting_for: WaitingFor<T>,
    /// Since when it is waited for.
    pub since: T,
    /// Whether the run is paused because the server's disk is full.
    #[serde(default)]
    pub paused: bool,
    /// Whether the run is paused until the database says that this server leads it, where others may.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unconfirmed: bool,
    /// Whether no new round is opened, because the operator has asked for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub held: bool,
    /// The server's own training, if it is running: steps done and to do. The coordinator does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own: Option<(u64, u64)>,
    /// What the listener is at, if that is known. The coordinator does not know it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
}

/// What the listener is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Connections refused since it began to listen: too many came at once.
    pub refused: u64,
    /// Updates that are received, or were received and wait for the driver.
    pub uploading: usize,
    /// Updates that wait for their turn to be received.
    pub waiting: usize,
    /// Updates that are checked and folded.
    #[serde(default)]
    pub checking: usize,
}

/// What has to happen next.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum WaitingFor<T = Duration> {
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
        /// When it ends: how long it still lasts, or the moment.
        until: T,
    },
    /// Updates of an open round.
    Updates {
        /// The round.
        round: u32,
        /// Updates accepted so far.
        accepted: usize,
        /// Size of the cohort; where late updates count, the number of updates at which the round closes at once.
        cohort: usize,
        /// The clients whose updates are awaited: members that are not connected, then those that are, then clients that are
        /// still at work for an earlier round.
        members: Vec<Awaited<T>>,
        /// How many more there are.
        more: usize,
    },
    /// Answers with which the masks of a sum are taken away.
    Masks {
        /// The round.
        round: u32,
        /// Devices that have answered.
        answered: usize,
        /// Devices whose updates count, of which not all need answer.
        asked: usize,
        /// Those that have not answered: first those that are not connected.
        members: Vec<Awaited<T>>,
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

/// A client whose update is awaited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Awaited<T = Duration> {
    /// The client.
    #[serde(rename = "device")]
    pub client: ClientId,
    /// What it is doing.
    #[serde(rename = "stage")]
    pub activity: Activity,
    /// When it was last heard of.
    pub heard: T,
    /// Whether it works for an earlier round, whose update still counts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
    /// Why it does not train now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What a client whose update is awaited is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activity {
    /// It was sent the task and has not reported any progress.
    Receiving,
    /// It trains: steps done, never more than the second number, and steps to do.
    Training(u64, u64),
    /// It has finished training, and its update is on the way.
    Uploading,
    /// Its update is being checked and written to disk.
    Checking,
    /// It is not connected.
    Away,
    /// It is not eligible to train now. It is asked again if the round needs it.
    NotNow,
    /// It was asked for its part of the masks.
    Unmasking,
}

impl<T> WaitingFor<T> {
    /// The round that is open.
    #[must_use]
    pub fn round(&self) -> Option<u32> {
        match *self {
            Self::Updates { round, .. } | Self::Masks { round, .. } | Self::Disk { round } => Some(round),
            Self::Clients { .. } | Self::Pause { .. } | Self::Nothing => None,
        }
    }

    /// The devices that are waited for, and how many more there are.
    #[must_use]
    pub fn members(&self) -> (&[Awaited<T>], usize) {
        match self {
            Self::Updates { members, more, .. } | Self::Masks { members, more, .. } => (members, *more),
            Self::Clients { .. } | Self::Pause { .. } | Self::Disk { .. } | Self::Nothing => (&[], 0),
        }
    }
}

impl<T> Status<T> {
    /// Updates that are checked and folded. A [stored](Status::at) status may name fewer.
    #[must_use]
    pub fn checking(&self) -> usize {
        let (members, _) = self.waiting_for.members();
        members.iter().filter(|member| member.activity == Activity::Checking).count()
    }
}

impl Status {
    /// The same with moments, as of `now`, in milliseconds since 1970. Names at most `MAX_NAMED` members.
    #[must_use]
    pub fn at(&self, now: i64) -> Status<i64> {
        let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let ago = |time: Duration| now.saturating_sub(millis(time));
        let named = |members: &[Awaited]| {
            members.iter().take(MAX_NAMED).map(|member| member.at(ago(member.heard))).collect()
        };
        let waiting_for = match &self.waiting_for {
            &WaitingFor::Clients { connected, needed } => WaitingFor::Clients { connected, needed },
            &WaitingFor::Pause { void, until } => {
                WaitingFor::Pause { void, until: now.saturating_add(millis(until)) }
            }
            WaitingFor::Updates { round, accepted, cohort, members, more } => WaitingFor::Updates {
                round: *round,
                accepted: *accepted,
                cohort: *cohort,
                members: named(members),
                more: more + members.len().saturating_sub(MAX_NAMED),
            },
            WaitingFor::Masks { round, answered, asked, members, more } => WaitingFor::Masks {
                round: *round,
                answered: *answered,
                asked: *asked,
                members: named(members),
                more: more + members.len().saturating_sub(MAX_NAMED),
            },
            &WaitingFor::Disk { round } => WaitingFor::Disk { round },
            WaitingFor::Nothing => WaitingFor::Nothing,
        };
        Status {
            closed: self.closed,
            rounds: self.rounds,
            failed: self.failed,
            connected: self.connected,
            known: self.known,
            waiting_for,
            since: ago(self.since),
            paused: self.paused,
            unconfirmed: self.unconfirmed,
            held: self.held,
            own: self.own,
            load: self.load,
        }
    }
}

impl<T: Clone + Default + PartialEq> Status<T> {
    /// Whether the two differ in more than time and progress.
    #[must_use]
    pub fn differs_from(&self, other: &Self) -> bool {
        self.without_progress() != other.without_progress()
    }

    fn without_progress(&self) -> Self {
        let own = self.own.map(|_| (0, 0));
        let mut plain = Self { since: T::default(), own, load: None, ..self.clone() };
        match &mut plain.waiting_for {
            WaitingFor::Updates { members, .. } | WaitingFor::Masks { members, .. } => {
                for member in members {
                    member.heard = T::default();
                    if let Activity::Training(done, total) = &mut member.activity {
                        (*done, *total) = (0, 0);
                    }
                }
            }
            WaitingFor::Pause { until, .. } => *until = T::default(),
            _ => {}
        }
        plain
    }
}

impl<T> Awaited<T> {
    fn at<U>(&self, heard: U) -> Awaited<U> {
        let Self { client, activity, late, reason, .. } = self;
        Awaited { client: *client, activity: *activity, heard, late: *late, reason: reason.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_that_are_checked_are_counted_beyond_the_names_that_are_kept() {
        let member = |byte: u8, activity| Awaited {
            client: ClientId::from_bytes([byte; 16]),
            activity,
            heard: Duration::ZERO,
            late: false,
            reason: None,
        };
        let away = (0..=u8::MAX).map(|byte| member(byte, Activity::Away));
        let members: Vec<_> =
            away.chain([member(1, Activity::Checking), member(2, Activity::Checking)]).collect();
        let status = Status {
            closed: 0,
            rounds: 1,
            failed: 0,
            connected: 2,
            known: 258,
            waiting_for: WaitingFor::Updates { round: 1, accepted: 0, cohort: 258, members, more: 0 },
            since: Duration::ZERO,
            paused: false,
            unconfirmed: false,
            held: false,
            own: None,
            load: None,
        };
        assert_eq!((status.checking(), status.at(0).checking()), (2, 0));
    }
}
