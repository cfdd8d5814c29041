//! Receipts that come when the round has closed: where updates are hidden, and where they may be lost until then. A device keeps its update
//! for as long.
//!
//! Where several servers serve the run, that is so of updates that do not count as well. Until a round has closed another server may come to
//! lead, which closes it with what its leaves have: an update that is late or unknown here may count there.

use std::collections::BTreeMap;

use shared::id::ClientId;
use shared::message::{CountedUpdate, Discard, ToClient, Verdict};

use super::open_round::OpenRound;
use super::{Closing, Coordinator, State};

/// The verdict on an update that does not count here, which waits for the close of a round.
#[derive(Debug)]
pub(super) struct Withheld {
    /// The round that the update was trained in.
    pub(super) round: u32,
    pub(super) verdict: Verdict,
    /// It is counted among those that came between rounds.
    pub(super) is_stray: bool,
}

/// Whose updates make the model of a round that closes, and which they are. They have no receipts yet.
pub(super) type Contributors = Vec<(ClientId, CountedUpdate)>;

impl Coordinator {
    /// The round in which a client has trained the update that is accepted of it and has no receipt yet: it keeps it.
    pub(super) fn kept_of(&self, client: ClientId) -> Option<u32> {
        if let State::Closing { contributors, .. } = &self.state {
            let of_client = contributors.iter().find(|(contributor, _)| *contributor == client);
            return of_client.map(|(_, update)| update.round);
        }
        self.state.round().filter(|round| round.receipts_wait())?.accepted_of(client)
    }

    /// Sends the receipts of a round that has closed. `learned`: it was one of training. Of a void round hidden updates are lost, since
    /// they come to no sum; others count for what their devices keep, as where receipts do not wait.
    pub(super) fn send_receipts(&mut self, (void, learned): (bool, bool), contributors: Contributors) {
        let is_lost = void && self.spec.secure.enabled;
        for (client, update) in contributors {
            let verdict = if is_lost { Verdict::Discarded(Discard::Void) } else { Verdict::Accepted };
            if !is_lost && learned {
                self.ledger.count(client, update);
            }
            let Some(member) = self.members.get_mut(&client) else { continue };
            member.counted = Some(update.round).filter(|_| !is_lost);
            if let Some(link) = member.link {
                if self.withheld.get(&client).is_some_and(|withheld| withheld.round == update.round) {
                    self.withheld.remove(&client);
                }
                self.send(link.peer, ToClient::Receipt { round: update.round, verdict });
            }
        }
    }

    /// Whether an update of this round, which does not count here, may still come to count: in the next round to close, if another server
    /// closes it. A late one of a device that the open round has asked does not, whichever server closes that; nor does one that was rejected
    /// for what it is.
    pub(super) fn is_unsettled(&self, client: ClientId, round: u32) -> bool {
        let next = self.closed + 1;
        let is_member = || matches!(&self.state, State::Open { round } if round.stage(client).is_some());
        // Every server that leads knows who owes an update, from the opening.
        let is_awaited = || {
            self.owes(client, round)
                || self.withheld.get(&client).is_some_and(|withheld| withheld.round == round)
        };
        self.policy.receipts_at_close
            && (round == next || self.counts_in(round, next) && !is_member() && is_awaited())
            && !self.state.round().is_some_and(|open| open.has_rejected(client, round))
    }

    /// The client's update of this round is folded after all, or wanted again, and not counted among those that are not. One of another
    /// round stays counted; its device has a newer one.
    pub(super) fn take_back(&mut self, client: ClientId, round: u32) {
        let withheld = self.withheld.remove(&client).filter(|withheld| withheld.round == round);
        let Some(Withheld { verdict, is_stray, .. }) = withheld else { return };
        let counter = self.counter(&verdict, is_stray);
        *counter = counter.saturating_sub(1);
    }

    /// Where an update that is not folded is counted: in the tally of the open round, or of the next one if it is a stray.
    pub(super) fn counter(&mut self, verdict: &Verdict, is_stray: bool) -> &mut usize {
        let (rejected, discarded) = match self.state.round_mut().filter(|_| !is_stray) {
            Some(round) => (&mut round.rejected, &mut round.discarded),
            None => (&mut self.stray_rejected, &mut self.stray_discarded),
        };
        if matches!(verdict, Verdict::Rejected(_)) { rejected } else { discarded }
    }

    /// Sends what was withheld, now that the round has closed without these updates.
    pub(super) fn send_withheld(&mut self) {
        for (client, Withheld { round, verdict, .. }) in std::mem::take(&mut self.withheld) {
            if let Some(link) = self.members.get(&client).and_then(|member| member.link) {
                self.send(link.peer, ToClient::Receipt { round, verdict });
            }
        }
    }
}

impl OpenRound {
    /// Whose accepted updates wait for their receipts.
    pub(super) fn contributors(&self) -> Contributors {
        let accepted = self.fingerprints.iter().filter_map(|(client, fingerprint)| {
            let round = self.accepted_of(*client)?;
            Some((*client, CountedUpdate { round, fingerprint: Some(*fingerprint) }))
        });
        accepted.collect()
    }
}

/// The same of a round whose closing an earlier process has decided.
pub(super) fn decided(round: u32, closing: &Closing, fingerprints: &BTreeMap<ClientId, u32>) -> Contributors {
    let waits = fingerprints.iter().filter(|(client, _)| closing.contributors.contains(client));
    let counts = |(client, fingerprint): (&ClientId, &u32)| {
        let round = closing.late.get(client).copied().unwrap_or(round);
        (*client, CountedUpdate { round, fingerprint: Some(*fingerprint) })
    };
    waits.map(counts).collect()
}
