//! What the coordinator waits for, and for whom.

use std::time::Duration;

use shared::id::ClientId;

use super::super::open_round::{KeyExchange, MemberState, OpenRound};
use super::super::roster::Connection;
use super::super::{Coordinator, State};
use super::{Activity, Awaited, Status, WaitingFor};

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
            paused: self.pauses.is_disk_full(),
            unconfirmed: !self.greetings.may_be_answered(now),
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
