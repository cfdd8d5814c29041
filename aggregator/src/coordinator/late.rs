//! Updates of rounds that are over, where these count ([`Lateness`](crate::round::Lateness)).
//!
//! A member whose update was not in when its round closed *owes* it, and is *behind* for as long as that may count. It is not
//! called off: no cohort that is to train has it, until its update is in or it says that there will be none. An update counts if
//! it is owed, and then it is owed no more: none counts twice, and nobody's that was not asked. What is owed is part of every
//! opening. An update that comes while no round is open waits for the next one to be opened, on the connection that it came on.

use std::time::Duration;

use shared::id::ClientId;
use shared::message::{Discard, Hello, TrainReport, Verdict};

use super::open_round::{Behind, Offer, OpenRound, Stage};
use super::{Action, Coordinator, Member, Owed, PeerId, State, UploadId};

/// It does not count any more, or never did.
const LATE: Offer = Offer::Settled(Verdict::Discarded(Discard::Late));

/// A late update that came between two rounds.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) peer: PeerId,
    pub(super) round: u32,
    pub(super) report: TrainReport,
    pub(super) upload: UploadId,
}

impl Coordinator {
    /// The round that takes in what comes next: the open one, or the next to open. A round that is closing takes nothing more in.
    pub(super) fn takes_in(&self) -> u32 {
        self.closed + if matches!(self.state, State::Closing { .. }) { 2 } else { 1 }
    }

    /// What a client owes, if that would count in the open round or the next to open.
    pub(super) fn behind(&self, client: ClientId) -> Option<Owed> {
        self.behind_is(self.members.get(&client)?)
    }

    fn behind_is(&self, member: &Member) -> Option<Owed> {
        member.owes.filter(|owed| self.counts_in(owed.round, self.closed + 1))
    }

    /// Whether an update of `round` would count in round `open`.
    fn counts_in(&self, round: u32, open: u32) -> bool {
        let trains = || self.spec.work_after(open - 1, self.last).is_some_and(|work| work.train);
        let late = self.policy.late.and_then(|lateness| lateness.staleness(round, open));
        late.is_some_and(|late| late > 0) && trains()
    }

    /// Whether it matters what a client says of this round: of the open one or the next to open, the one that closed last, and
    /// those whose late updates count. Of any other round clients may make up what they like.
    #[must_use]
    pub fn concerns(&self, round: u32) -> bool {
        let open = self.closed + 1;
        round > 0 && (round == open || round == self.closed || self.counts_in(round, open))
    }

    /// The clients of which the open round may still hear.
    pub(super) fn expected_late(&self, round: &OpenRound) -> Behind {
        let mut behind = Behind::default();
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

    /// The connected clients that are behind.
    pub(super) fn behind_here(&self) -> usize {
        let here = self.members.values().filter(|member| member.link.is_some());
        here.filter(|member| self.behind_is(member).is_some()).count()
    }

    /// What a client that comes back still owes: what it is known to owe, if it holds that.
    pub(super) fn still_owes(&self, hello: &Hello) -> Option<Owed> {
        let held = hello.holds.filter(|held| held.run == self.spec.run)?.round;
        let owed = self.members.get(&hello.client)?.owes.filter(|owed| owed.round == held)?;
        self.counts_in(held, self.takes_in()).then_some(owed)
    }

    /// The members whose updates the closing round does without are behind from now on.
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

    /// There will be no update of this round, or it is in.
    pub(super) fn owes_no_more(&mut self, client: ClientId, round: u32) {
        if let Some(member) = self.members.get_mut(&client)
            && member.owes.is_some_and(|owed| owed.round == round)
        {
            member.owes = None;
        }
    }

    /// An update of a round that is over, or is closing.
    pub(super) fn offered_late(&mut self, client: ClientId, round: u32, report: &TrainReport) -> Offer {
        let owes = self.members.get(&client).and_then(|member| member.owes);
        let Some(owed) = owes.filter(|owed| owed.round == round) else { return LATE };
        if !self.counts_in(round, self.takes_in()) {
            return LATE;
        }
        match &mut self.state {
            State::Open { round: open } | State::Opening { round: open, .. } => {
                let spec = &self.spec;
                open.offer_late(client, owed, report, |samples| spec.samples_in(round, samples))
            }
            State::Gathering { .. } | State::Closing { .. } => Offer::Wait,
            State::Finished => LATE,
        }
    }

    /// The next round to open will be offered this.
    pub(super) fn wait(&mut self, client: ClientId, waiting: Waiting) {
        if let Some(earlier) = self.waiting.insert(client, waiting) {
            self.stray_discarded += 1;
            self.actions.push_back(Action::Drop { upload: earlier.upload });
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

    /// The connection is gone on which the client's update came that waits. The client has it still.
    pub(super) fn drop_waiting_of(&mut self, peer: PeerId, client: ClientId) {
        if self.waiting.get(&client).is_some_and(|waiting| waiting.peer == peer)
            && let Some(waiting) = self.waiting.remove(&client)
        {
            self.actions.push_back(Action::Drop { upload: waiting.upload });
        }
    }

    /// Makes room on the disk: what waits there is taken again when its clients come back.
    pub(super) fn turn_waiting_away(&mut self) {
        let peers: Vec<PeerId> = self.waiting.values().map(|waiting| waiting.peer).collect();
        for peer in peers {
            self.forget(peer);
            self.send_away(peer);
        }
        self.drop_waiting();
    }

    /// There is no round to come that it could count in.
    pub(super) fn drop_waiting(&mut self) {
        for waiting in std::mem::take(&mut self.waiting).into_values() {
            self.actions.push_back(Action::Drop { upload: waiting.upload });
        }
    }
}

impl OpenRound {
    /// The members whose updates may still come.
    fn missing(&self) -> Vec<(ClientId, Owed)> {
        let asked = self.stages().filter(|(_, stage)| **stage == Stage::Asked);
        let owed = |client| Some((client, Owed { round: self.number(), samples: self.samples(client)? }));
        asked.filter_map(|(client, _)| owed(client)).collect()
    }
}
