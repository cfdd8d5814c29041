//! The roster: who was ever here, and who is.
//!
//! Every client that ever said hello is on the roster: it is waited for after a restart, and the largest
//! number of samples on it sets the resolution of the sums. Since anybody can say hello under any number of
//! names, the roster ends at [`ROSTER`]: a newcomer then takes the place of the client that has been away for
//! the longest time and is not in the open round's cohort; if there is none, it has to come again later. A
//! federation of fewer clients never gets there, so that its cohorts and its model do not depend on this. Nor
//! do a larger one's cohorts: they are drawn among the clients that are connected.

use std::collections::BTreeMap;
use std::time::Duration;

use shared::id::ClientId;
use shared::message::Progress;

use super::{Action, Coordinator, PeerId, State};

/// Clients on the roster, or twice as many as the first round waits for, if that is more. A client is about 100
/// bytes in memory and 55 in the opening record of every round: 0.4 MB and 0.25 MB.
pub const ROSTER: usize = 4096;

/// A client that was seen in this run.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) samples: u64,
    pub(super) link: Option<Link>,
    /// When it was last heard on its previous connection.
    pub(super) seen: Duration,
    /// Where late updates count: the newest round whose update of it is in; 0 if none is.
    pub(super) delivered: u32,
    /// The earlier round that it is still at work for, as far as is known.
    pub(super) owes: Option<u32>,
}

impl Member {
    /// One that is not connected.
    pub(super) fn away(samples: u64, delivered: u32, now: Duration) -> Self {
        Self { samples, link: None, seen: now, delivered, owes: None }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) peer: PeerId,
    pub(super) heard: Duration,
    pub(super) progress: Progress,
    /// The round that it has trained in, as far as its signs of life tell.
    pub(super) trained: Option<u32>,
    /// It said that it was not in a state to train: until then others are drawn, if there are enough.
    pub(super) unready: Option<Duration>,
}

impl Coordinator {
    /// Known clients that are not connected.
    #[must_use]
    pub fn away(&self) -> Vec<ClientId> {
        let away = self.members.iter().filter(|(_, member)| member.link.is_none());
        away.map(|(client, _)| *client).collect()
    }

    pub(super) fn heard(&mut self, now: Duration, client: ClientId) {
        if let Some(link) = self.members.get_mut(&client).and_then(|member| member.link.as_mut()) {
            self.heard.remove(&(link.heard, link.peer));
            link.heard = now;
            self.heard.insert((now, link.peer));
        }
    }

    pub(super) fn forget(&mut self, peer: PeerId) {
        if let Some(client) = self.peers.remove(&peer)
            && let Some(member) = self.members.get_mut(&client)
            && let Some(link) = member.link.take()
        {
            self.heard.remove(&(link.heard, link.peer));
            member.seen = link.heard;
        }
    }

    /// Is there a place on the roster for `client`? Made for a newcomer if need be.
    pub(super) fn has_place(&mut self, client: ClientId) -> bool {
        let places = ROSTER.max(self.policy.start.saturating_mul(2));
        if self.members.contains_key(&client) || self.members.len() < places {
            return true;
        }
        let round = match &self.state {
            State::Open { round } | State::Opening { round } => Some(round),
            _ => None,
        };
        let asked = |client: ClientId| round.is_some_and(|round| round.stage(client).is_some());
        let away = self.members.iter().filter(|(client, member)| member.link.is_none() && !asked(**client));
        let longest = away.min_by_key(|(client, member)| (member.seen, **client)).map(|(client, _)| *client);
        longest.is_some_and(|ghost| self.members.remove(&ghost).is_some())
    }

    pub(super) fn drop_silent(&mut self, now: Duration) {
        let limit = self.policy.lost_after;
        while self.heard.first().is_some_and(|(heard, _)| now >= *heard + limit) {
            let Some((_, peer)) = self.heard.pop_first() else { return };
            self.forget(peer);
            self.actions.push_back(Action::Disconnect { peer });
        }
    }

    /// The connected ones among which a cohort is drawn at `now`: without those that are behind, and without those that said a short while ago that they were not in a
    /// state to train, if that leaves `needed`. To ask one costs it the model's way there.
    pub(super) fn ready(&self, now: Duration, needed: usize) -> Vec<(ClientId, u64)> {
        let resting = |client: &ClientId| {
            let link = self.members.get(client).and_then(|member| member.link);
            link.and_then(|link| link.unready).is_some_and(|until| now < until)
        };
        let free: Vec<_> = self.present().filter(|(client, _)| self.behind(*client).is_none()).collect();
        let ready: Vec<_> = free.iter().copied().filter(|(client, _)| !resting(client)).collect();
        if ready.len() >= needed.max(1) { ready } else { free }
    }

    pub(super) fn present(&self) -> impl Iterator<Item = (ClientId, u64)> {
        self.members
            .iter()
            .filter(|(_, member)| member.link.is_some())
            .map(|(client, member)| (*client, member.samples))
    }

    /// The newest round whose update of each client is in, where that matters.
    pub(super) fn delivered(&self) -> BTreeMap<ClientId, u32> {
        let delivered = self.members.iter().map(|(client, member)| (*client, member.delivered));
        delivered.filter(|(_, round)| self.policy.late.is_some() && *round > 0).collect()
    }

    pub(super) fn roster(&self) -> BTreeMap<ClientId, u64> {
        self.members.iter().map(|(client, member)| (*client, member.samples)).collect()
    }

    pub(super) fn connected_peers(&self) -> Vec<PeerId> {
        self.members.values().filter_map(|member| member.link).map(|link| link.peer).collect()
    }
}
