//! Status of a run: what it waits for, and since when.
//!
//! The state machine has no calendar, so its status says how long ago things were, as a [`Duration`]; [`Status::at`] turns that
//! into moments, in milliseconds since 1970 (UTC), for the record of the run.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shared::id::ClientId;

use crate::commands::command;
use crate::names::called;

use super::open_round::{KeyExchange, MemberState, OpenRound};
use super::roster::Connection;
use super::{Coordinator, State};

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

impl Coordinator {
    /// What the run waits for at `now`.
    #[must_use]
    pub fn status(&self, now: Duration) -> Status {
        let connected = self.peers.len();
        let (waiting_for, since) = match &self.state {
            State::Gathering { since, pause_until, .. } if now < *pause_until => {
                (WaitingFor::Pause { void: self.void, until: pause_until.saturating_sub(now) }, *since)
            }
            State::Gathering { since, need, known_until, .. } => {
                let needed = if now < *known_until { self.members.len().max(*need) } else { *need };
                (WaitingFor::Clients { connected, needed: needed.max(1) }, *since)
            }
            State::Opening { round, since } => (WaitingFor::Disk { round: round.number() }, *since),
            State::Open { round } if round.exchange.as_ref().is_some_and(KeyExchange::is_decided) => {
                (self.masks_awaited(round, now), round.opened())
            }
            State::Open { round } => {
                let waiting = WaitingFor::Updates {
                    round: round.number(),
                    accepted: round.accepted(),
                    cohort: if self.policy.late.is_some() { round.wanted() } else { round.cohort_len() },
                    members: self.awaited(round, now),
                    more: 0,
                };
                (waiting, round.opened())
            }
            State::Closing { since, .. } => (WaitingFor::Disk { round: self.closed + 1 }, *since),
            State::Finished => (WaitingFor::Nothing, now),
        };
        Status {
            closed: self.closed,
            // Early stopping is no other plan.
            rounds: self.spec.rounds.saturating_add(self.failed),
            failed: self.failed,
            connected,
            known: self.members.len(),
            waiting_for,
            since: now.saturating_sub(since),
            paused: self.paused.is_some(),
            held: self.held,
            own: None,
            load: None,
        }
    }

    /// What a round waits for whose masks are taken away.
    fn masks_awaited(&self, round: &OpenRound, now: Duration) -> WaitingFor {
        let exchange = round.exchange.as_ref();
        let unanswered = |client: &ClientId| {
            round.has_accepted(*client) && exchange.is_some_and(|exchange| exchange.awaits(*client))
        };
        let awaited = |client: ClientId| {
            let member = self.members.get(&client);
            let link = member.and_then(|member| member.link);
            let activity = if link.is_some() { Activity::Unmasking } else { Activity::Away };
            let heard = link.map(|link| link.heard).or(member.map(|member| member.seen));
            let heard = now.saturating_sub(heard.unwrap_or(round.opened()));
            Awaited { client, activity, heard, late: false, reason: None }
        };
        let clients = round.stages().map(|(client, _)| client).filter(unanswered);
        let (away, here): (Vec<_>, Vec<_>) =
            clients.map(awaited).partition(|member| member.activity == Activity::Away);
        WaitingFor::Masks {
            round: round.number(),
            answered: exchange.map_or(0, KeyExchange::answers),
            asked: round.accepted(),
            members: away.into_iter().chain(here).collect(),
            more: 0,
        }
    }

    /// The clients whose updates the round awaits: those away, those at work, and those at work for an earlier round.
    fn awaited(&self, round: &OpenRound, now: Duration) -> Vec<Awaited> {
        let (mut away, mut at_work) = (Vec::new(), Vec::new());
        for (client, stage) in round.stages() {
            let reason =
                if let MemberState::NotNow(reason, _) = stage { Some(reason.to_string()) } else { None };
            if reason.is_none() && !matches!(stage, MemberState::Asked | MemberState::Folding) {
                continue;
            }
            let member = self.members.get(&client);
            if let Some(link) = member.and_then(|member| member.link) {
                let activity = link.activity(round.number(), stage);
                let heard = now.saturating_sub(link.heard);
                at_work.push(Awaited { client, activity, heard, late: false, reason });
            } else if reason.is_none() {
                let heard = now.saturating_sub(member.map_or(round.opened(), |member| member.seen));
                away.push(Awaited { client, activity: Activity::Away, heard, late: false, reason });
            }
        }
        let stragglers = self.present().map(|(client, _)| client).filter(|client| !round.has_late(*client));
        let stragglers = stragglers.filter_map(|client| {
            let link = self.members.get(&client)?.link?;
            let activity = link.activity(self.behind(client)?.round, &MemberState::Asked);
            Some(Awaited {
                client,
                activity,
                heard: now.saturating_sub(link.heard),
                late: true,
                reason: None,
            })
        });
        away.into_iter().chain(at_work).chain(stragglers).collect()
    }
}

impl Connection {
    /// What a connected client is doing whose update of `round` is not in.
    fn activity(&self, round: u32, stage: &MemberState) -> Activity {
        if matches!(stage, MemberState::NotNow(..)) {
            Activity::NotNow
        } else if *stage == MemberState::Folding {
            Activity::Checking
        } else if self.progress.round == Some(round) {
            // The client's numbers are not to be trusted.
            Activity::Training(self.progress.done.min(self.progress.total), self.progress.total)
        } else if self.trained == Some(round) {
            Activity::Uploading
        } else {
            Activity::Receiving
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // First, since a narrow terminal cuts the end.
        if self.paused {
            write!(out, "PAUSED, no room on the disk; ")?;
        }
        if self.held {
            write!(out, "PAUSED on request (`{}`); ", command("resume"))?;
        }
        match &self.waiting_for {
            WaitingFor::Clients { connected, needed } => {
                write!(out, "waiting for clients: {connected} of {needed} connected")?;
            }
            WaitingFor::Pause { void, until } => {
                let rounds = if *void == 1 { "a round" } else { "rounds in a row" };
                let many = if *void == 1 { String::new() } else { format!("{void} ") };
                let left = until.as_secs_f64().ceil();
                write!(out, "pausing after {many}{rounds} without enough acceptable updates: {left} s left")?;
                return Ok(());
            }
            WaitingFor::Updates { round, accepted, cohort, members, .. } => {
                write!(out, "round {round}: {accepted} of {cohort} updates in")?;
                let of = |is: fn(&Awaited) -> bool| -> Vec<&Awaited> {
                    members.iter().filter(|member| is(member)).collect()
                };
                let at_work = of(|member| {
                    !member.late && !matches!(member.activity, Activity::Away | Activity::NotNow)
                });
                if let Some(first) = at_work.first() {
                    write!(out, ", {} at work ({}", at_work.len(), called(first.client))?;
                    if let Activity::Training(done, total @ 1..) = first.activity {
                        write!(out, " {} %", 100 * u128::from(done) / u128::from(total))?;
                    }
                    write!(out, "{}", if at_work.len() > 1 { ", ...)" } else { ")" })?;
                }
                let ineligible = of(|member| member.activity == Activity::NotNow);
                if let Some(first) = ineligible.first() {
                    let (count, reason) = (ineligible.len(), first.reason.as_deref().unwrap_or_default());
                    write!(out, ", {count} not in a state to train ({}: {reason}", called(first.client))?;
                    write!(out, "{}", if count > 1 { "; ...)" } else { ")" })?;
                }
                let stragglers = of(|member| member.late);
                let away = of(|member| member.activity == Activity::Away);
                for (members, what) in [(stragglers, "at an earlier round"), (away, "not connected")] {
                    if let Some(first) = members.first() {
                        let more = if members.len() > 1 { ", ..." } else { "" };
                        write!(out, ", {} {what} ({}{more})", members.len(), called(first.client))?;
                    }
                }
            }
            WaitingFor::Masks { round, answered, asked, members, .. } => {
                write!(out, "round {round}: taking masks away, {answered} of {asked} devices have answered")?;
                let away: Vec<_> =
                    members.iter().filter(|member| member.activity == Activity::Away).collect();
                if let Some(first) = away.first() {
                    let more = if away.len() > 1 { ", ..." } else { "" };
                    write!(out, ", {} not connected ({}{more})", away.len(), called(first.client))?;
                }
            }
            WaitingFor::Disk { round } if self.own.is_some() => {
                write!(out, "round {round}: waiting for the server's own training")?;
            }
            WaitingFor::Disk { round } => write!(out, "round {round}: writing to disk")?,
            WaitingFor::Nothing => write!(out, "the run is over")?,
        }
        if let Some((done, total)) = self.own {
            write!(out, ", the server itself at {} %", 100 * u128::from(done) / u128::from(total.max(1)))?;
        }
        if self.since >= Duration::from_secs(2) {
            write!(out, ", for {} s", self.since.as_secs())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_the_first_thing_that_is_said() {
        let status = Status {
            closed: 35,
            rounds: 400,
            connected: 0,
            known: 1,
            waiting_for: WaitingFor::Disk { round: 36 },
            since: Duration::from_secs(4),
            paused: true,
            held: false,
            failed: 0,
            own: None,
            load: None,
        };
        assert_eq!(status.to_string(), "PAUSED, no room on the disk; round 36: writing to disk, for 4 s");
    }

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
            held: false,
            own: None,
            load: None,
        };
        assert_eq!((status.checking(), status.at(0).checking()), (2, 0));
    }

    #[test]
    fn the_servers_own_training_is_shown_and_waited_for() {
        let status = |waiting_for, own| Status {
            closed: 2,
            rounds: 5,
            failed: 0,
            connected: 4,
            known: 4,
            waiting_for,
            since: Duration::ZERO,
            paused: false,
            held: false,
            own,
            load: None,
        };
        let updates =
            || WaitingFor::Updates { round: 3, accepted: 1, cohort: 4, members: Vec::new(), more: 0 };
        let said = |waiting_for, own| status(waiting_for, own).to_string();
        assert_eq!(said(updates(), None), "round 3: 1 of 4 updates in");
        assert_eq!(said(updates(), Some((30, 40))), "round 3: 1 of 4 updates in, the server itself at 75 %");
        let disk = || WaitingFor::Disk { round: 3 };
        assert_eq!(said(disk(), None), "round 3: writing to disk");
        assert_eq!(
            said(disk(), Some((u64::MAX - 1, u64::MAX))),
            "round 3: waiting for the server's own training, the server itself at 99 %"
        );
    }
}
