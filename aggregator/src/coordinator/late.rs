//! Updates of rounds that are over, where these count ([`Lateness`](crate::config::Lateness)).
//!
//! A client is *behind* while it is at work for an earlier round that is not too long ago. It is not called off: no cohort has it,
//! until its update is in or it says that there will be none. One that comes while no round is open waits for the next one to be
//! opened. No update is taken twice: those that count of one client are of ever newer rounds, and the newest is part of every
//! opening.

use std::time::Duration;

use shared::id::ClientId;
use shared::message::{Discard, Hello, TrainReport, Verdict};

use super::open_round::{Offer, OpenRound, Stage};
use super::{Action, Coordinator, PeerId, State, UploadId};

/// A late update that came between two rounds.
#[derive(Debug)]
pub(super) struct Waiting {
    peer: PeerId,
    round: u32,
    report: TrainReport,
    upload: UploadId,
}

impl Coordinator {
    /// The round for which a client is still at work, if its update would count in the open round or the next to open.
    pub(super) fn behind(&self, client: ClientId) -> Option<u32> {
        let lateness = self.policy.late?;
        let owed = self.members.get(&client)?.owes?;
        lateness.staleness(owed, self.closed + 1).filter(|late| *late > 0).map(|_| owed)
    }

    /// The connected clients that are behind.
    pub(super) fn all_behind(&self) -> Vec<ClientId> {
        if self.policy.late.is_none() {
            return Vec::new();
        }
        let here = self.present().map(|(client, _)| client);
        here.filter(|client| self.behind(*client).is_some()).collect()
    }

    /// Those of them that the open round may still hear of.
    pub(super) fn expected_late(&self, round: &OpenRound) -> usize {
        let late = self.all_behind();
        late.into_iter().filter(|client| !round.has_late(*client) && round.stage(*client).is_none()).count()
    }

    /// The round that a client was at work for when it came back: wanted, if it counts.
    pub(super) fn still_owes(&self, hello: &Hello) -> Option<u32> {
        let lateness = self.policy.late?;
        let held = hello.holds.filter(|held| held.run == self.spec.run)?.round;
        let delivered = self.members.get(&hello.client).map_or(0, |member| member.delivered);
        let training = self.spec.work_after(self.closed, self.last).is_some_and(|work| work.train);
        let over = if matches!(self.state, State::Closing { .. }) { self.closed + 1 } else { self.closed };
        let counts = training && held > delivered && held <= over;
        (counts && lateness.staleness(held, over + 1).is_some()).then_some(held)
    }

    /// The members whose updates the closing round does without are behind from now on.
    pub(super) fn leave_behind(&mut self) {
        let State::Open { round } = &self.state else { return };
        if self.policy.late.is_none() {
            return;
        }
        let number = round.number();
        let asked = round.stages().filter(|(_, stage)| **stage == Stage::Asked);
        for client in asked.map(|(client, _)| client).collect::<Vec<_>>() {
            if let Some(member) = self.members.get_mut(&client) {
                member.owes = Some(number);
            }
        }
    }

    /// There will be no update of this round.
    pub(super) fn owes_no_more(&mut self, client: ClientId, round: u32) {
        if let Some(member) = self.members.get_mut(&client)
            && member.owes == Some(round)
        {
            member.owes = None;
        }
    }

    /// An update of a round that is over, or is closing. `None`: there will be a verdict later.
    pub(super) fn offered_late(
        &mut self,
        peer: PeerId,
        client: ClientId,
        (round, report): (u32, TrainReport),
        upload: UploadId,
    ) -> Option<Verdict> {
        let late = Some(Verdict::Discarded(Discard::Late));
        let Some(lateness) = self.policy.late else { return late };
        let Some(member) = self.members.get(&client) else { return late };
        if round <= member.delivered {
            return Some(Verdict::Discarded(Discard::Duplicate));
        }
        let samples = member.samples;
        // A round that is closing takes nothing more in.
        let counts_in = self.closed + if matches!(self.state, State::Closing { .. }) { 2 } else { 1 };
        let training = self.spec.work_after(counts_in - 1, self.last).is_some_and(|work| work.train);
        if !training || lateness.staleness(round, counts_in).is_none() {
            self.owes_no_more(client, round);
            return late;
        }
        let offer = match &mut self.state {
            State::Open { round: open } | State::Opening { round: open } => {
                let spec = &self.spec;
                open.offer_late(client, samples, (round, &report), |samples| spec.samples_in(round, samples))
            }
            State::Gathering { .. } | State::Closing { .. } => {
                let waiting = Waiting { peer, round, report, upload };
                if let Some(earlier) = self.waiting.insert(client, waiting) {
                    self.actions.push_back(Action::Drop { upload: earlier.upload });
                }
                return None;
            }
            State::Finished => return late,
        };
        match offer {
            Offer::Fold => {
                let round = self.closed + 1;
                self.actions.push_back(Action::Fold { round, client, report, upload });
                None
            }
            Offer::Again => {
                self.actions.push_back(Action::Drop { upload });
                None
            }
            Offer::Settled(verdict) => {
                self.owes_no_more(client, round);
                Some(verdict)
            }
        }
    }

    /// A round is open again: what has waited for that is offered once more.
    pub(super) fn offer_waiting(&mut self, now: Duration) {
        for (client, Waiting { peer, round, report, upload }) in std::mem::take(&mut self.waiting) {
            if self.peers.get(&peer) == Some(&client) {
                self.uploaded(now, peer, round, report, upload);
            } else {
                self.actions.push_back(Action::Drop { upload });
            }
        }
    }

    /// There is no round to come that it could count in.
    pub(super) fn drop_waiting(&mut self) {
        for waiting in std::mem::take(&mut self.waiting).into_values() {
            self.actions.push_back(Action::Drop { upload: waiting.upload });
        }
    }
}
