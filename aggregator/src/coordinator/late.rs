//! Late updates: of rounds that are over, where these count ([`Lateness`](crate::round::Lateness)).
//!
//! A member whose update had not arrived when its round closed has an *outstanding task*, and is a *straggler* for as long as
//! the update may count. It goes on training; no cohort that trains includes it until the update arrives or the client says
//! that there will be none. An update counts once, and only from a client that was asked for it. Outstanding tasks are part of
//! every opening. An update that arrives while no round is open is deferred until the next one opens, provided that its
//! connection lasts.

use std::time::Duration;

use shared::id::ClientId;
use shared::message::{Discard, Hello, UpdateHeader, Verdict};

use super::open_round::{MemberState, Offer, OpenRound, Stragglers};
use super::{Action, Arrival, Coordinator, Member, OutstandingTask, PeerId, State};

/// The answer to an update that does not count, or no longer.
const LATE: Offer = Offer::Settled(Verdict::Discarded(Discard::Late));

impl Coordinator {
    /// The round that accepts the next update: the open one, or the next to open. A round that is closing accepts none.
    pub(super) fn takes_in(&self) -> u32 {
        self.closed + if matches!(self.state, State::Closing { .. }) { 2 } else { 1 }
    }

    /// The outstanding task of a straggler: one whose update would count in the open round or the next to open.
    pub(super) fn behind(&self, client: ClientId) -> Option<OutstandingTask> {
        self.behind_is(self.members.get(&client)?)
    }

    fn behind_is(&self, member: &Member) -> Option<OutstandingTask> {
        member.owes.filter(|owed| self.counts_in(owed.round, self.closed + 1))
    }

    /// Whether an update of `round` would count in round `open`.
    pub(super) fn counts_in(&self, round: u32, open: u32) -> bool {
        let trains = || self.spec.work_after(open - 1, self.last).is_some_and(|work| work.train);
        let late = self.policy.late.and_then(|lateness| lateness.staleness(round, open));
        late.is_some_and(|late| late > 0) && trains()
    }

    /// Whether messages about this round are worth recording: it is open or next to open, was closed last, or its late updates
    /// count. About any other round clients could make up anything.
    #[must_use]
    pub fn is_current(&self, round: u32) -> bool {
        let open = self.closed + 1;
        round > 0 && (round == open || round == self.closed || self.counts_in(round, open))
    }

    /// The stragglers whose updates may still come in the open round.
    pub(super) fn stragglers_of(&self, round: &OpenRound) -> Stragglers {
        let mut behind = Stragglers::default();
        if self.policy.late.is_none() {
            return behind;
        }
        let owing = self.members.iter().filter(|(_, member)| self.behind_is(member).is_some());
        for (client, member) in owing {
            if !round.has_late(*client) && round.stage(*client).is_none() {
                *if member.link.is_some() { &mut behind.here } else { &mut behind.away } += 1;
            }
        }
        behind
    }

    /// Number of connected stragglers.
    pub(super) fn connected_stragglers(&self) -> usize {
        let here = self.members.values().filter(|member| member.link.is_some());
        here.filter(|member| self.behind_is(member).is_some()).count()
    }

    /// The outstanding task of a client that reconnects, if it still holds the task, and its update would count in the open round or the next
    /// to open.
    pub(super) fn still_owes(&self, hello: &Hello) -> Option<OutstandingTask> {
        let held = hello.holds.filter(|held| held.run == self.spec.run)?.round;
        let owed = self.members.get(&hello.client)?.owes.filter(|owed| owed.round == held)?;
        [self.closed + 1, self.takes_in()].iter().any(|open| self.counts_in(held, *open)).then_some(owed)
    }

    /// Whether this is the round of the client's outstanding task.
    pub(super) fn owes(&self, client: ClientId, round: u32) -> bool {
        let owed = self.members.get(&client).and_then(|member| member.owes);
        owed.is_some_and(|owed| owed.round == round)
    }

    /// Makes stragglers of the members that the closing round does without.
    pub(super) fn leave_behind(&mut self) {
        let State::Open { round } = &self.state else { return };
        if self.policy.late.is_none() {
            return;
        }
        for (client, owed) in round.missing() {
            if let Some(member) = self.members.get_mut(&client) {
                member.owes = Some(owed);
            }
        }
    }

    /// The update of this round has arrived, or will not.
    pub(super) fn owes_no_more(&mut self, client: ClientId, round: u32) {
        if let Some(member) = self.members.get_mut(&client)
            && member.owes.is_some_and(|owed| owed.round == round)
        {
            member.owes = None;
        }
    }

    /// Judges an update of a round that is over or closing.
    pub(super) fn offered_late(&mut self, client: ClientId, header: &UpdateHeader) -> Offer {
        let round = header.round;
        let owes = self.members.get(&client).and_then(|member| member.owes);
        let Some(owed) = owes.filter(|owed| owed.round == round) else { return LATE };
        if !self.counts_in(round, self.takes_in()) {
            return LATE;
        }
        match &mut self.state {
            State::Open { round: open } | State::Opening { round: open, .. } => {
                let spec = &self.spec;
                open.offer_late(client, owed, &header.report, |samples| spec.samples_in(round, samples))
            }
            State::Gathering { .. } | State::Closing { .. } => Offer::Wait,
            State::Finished => LATE,
        }
    }

    /// Keeps an update for the next round to open.
    pub(super) fn defer(&mut self, client: ClientId, update: Arrival) {
        if let Some(earlier) = self.deferred.insert(client, update) {
            self.stray_discarded += 1;
            self.actions.push_back(Action::Drop { upload: earlier.upload });
        }
    }

    /// Offers the deferred updates to the round that has opened.
    pub(super) fn offer_deferred(&mut self, now: Duration) {
        // The deferred updates of connections that end are dropped with them.
        for update in std::mem::take(&mut self.deferred).into_values() {
            self.uploaded(now, update);
        }
    }

    /// Drops the deferred update of a connection that has ended. The client still has it.
    pub(super) fn drop_deferred_of(&mut self, peer: PeerId, client: ClientId) {
        if self.deferred.get(&client).is_some_and(|update| update.peer == peer)
            && let Some(Arrival { upload, .. }) = self.deferred.remove(&client)
        {
            self.actions.push_back(Action::Drop { upload });
        }
    }

    /// Frees disk space: drops the deferred updates, whose clients offer them again when they reconnect.
    pub(super) fn reject_deferred(&mut self) {
        let peers: Vec<PeerId> = self.deferred.values().map(|update| update.peer).collect();
        for peer in peers {
            self.forget(peer);
            self.disconnect(peer);
        }
        self.drop_deferred();
    }

    /// Drops the deferred updates: no round follows.
    pub(super) fn drop_deferred(&mut self) {
        for Arrival { upload, .. } in std::mem::take(&mut self.deferred).into_values() {
            self.actions.push_back(Action::Drop { upload });
        }
    }
}

impl OpenRound {
    /// The members whose updates have not arrived, with their tasks.
    fn missing(&self) -> Vec<(ClientId, OutstandingTask)> {
        let is_asked = |client: ClientId| self.stage(client) == Some(&MemberState::Asked);
        let members = self.opening.cohort.iter().filter(|(client, _)| is_asked(**client));
        members
            .map(|(&client, &samples)| (client, OutstandingTask { round: self.number(), samples }))
            .collect()
    }
}
