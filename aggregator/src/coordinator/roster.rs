//! The roster: who was ever here, and who is.
//!
//! Every client that ever said hello is on the roster: it is waited for after a restart, and the largest
//! number of samples on it sets the resolution of the sums. Since anybody can say hello under any number of
//! names, the roster ends at [`ROSTER`]: a newcomer then takes the place of the client that has been away for
//! the longest time and is not in the open round's cohort; if there is none, it has to come again later. A
//! federation of fewer clients never gets there, so that its cohorts and its model do not depend on this. Nor
//! do a larger one's cohorts: they are drawn among the clients that are connected. A client that is revoked leaves it.
//!
//! What is on the roster when a round opens is part of that round, and durable with it. What becomes of the roster afterwards is
//! made durable by itself ([`Known`]): otherwise the round after a restart would be made for those that happen to come back.

use std::collections::BTreeMap;
use std::time::Duration;

use shared::id::ClientId;
use shared::message::Progress;

use super::{Action, Coordinator, Known, Owed, PeerId, State};

/// Clients on the roster, or twice as many as the first round waits for, if that is more. A client is about 100
/// bytes in memory and 55 in the opening record of every round, or 130 if it owes an update: 0.4 MB and 0.5 MB.
pub const ROSTER: usize = 4096;

/// A client that was seen in this run.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) samples: u64,
    pub(super) link: Option<Link>,
    /// When it was last heard on its previous connection.
    pub(super) seen: Duration,
    /// Where late updates count: what it was asked for in a round that is over, if that may still come.
    pub(super) owes: Option<Owed>,
    /// The round of its last update that counts, until it has come without that.
    pub(super) counted: Option<u32>,
    /// It said that it was not in a state to train: until then others are drawn, if there are enough.
    pub(super) unready: Option<Duration>,
}

impl Member {
    /// One that is not connected.
    pub(super) fn away(samples: u64, owes: Option<Owed>, now: Duration) -> Self {
        Self { samples, link: None, seen: now, owes, counted: None, unready: None }
    }
}

/// Whether the roster is durable as it is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Memory {
    /// It has changed since it was last to be made durable, by itself or with an opening.
    pub(super) outdated: bool,
    /// So many [`Action::Remember`] are not done.
    pub(super) under_way: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) peer: PeerId,
    pub(super) heard: Duration,
    pub(super) progress: Progress,
    /// The round that it has trained in, as far as its signs of life tell.
    pub(super) trained: Option<u32>,
}

impl Coordinator {
    /// Every known client, connected or not.
    pub fn known(&self) -> impl Iterator<Item = ClientId> {
        self.members.keys().copied()
    }

    /// The connections that clients were last heard on, unless it is known that they are gone.
    #[must_use]
    pub fn connections(&self) -> &BTreeMap<PeerId, ClientId> {
        &self.peers
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
            self.drop_waiting_of(peer, client);
            if let Some(round) = self.state.round_mut() {
                round.away(client);
            }
        }
    }

    /// The client may not take part any more.
    pub(super) fn revoked(&mut self, client: ClientId) {
        let Some(member) = self.members.get(&client) else { return };
        if let Some(link) = member.link {
            self.forget(link.peer);
            self.send_away(link.peer);
        }
        self.members.remove(&client);
        self.memory.outdated = true;
        if let Some(round) = self.state.round_mut() {
            round.revoked(client);
        }
    }

    /// Is there a place on the roster for `client`? Made for a newcomer if need be.
    pub(super) fn has_place(&mut self, client: ClientId) -> bool {
        let places = ROSTER.max(self.policy.start.saturating_mul(2));
        if self.members.contains_key(&client) || self.members.len() < places {
            return true;
        }
        let round = self.state.round();
        let asked = |client: ClientId| round.is_some_and(|round| round.stage(client).is_some());
        let away = self.members.iter().filter(|(client, member)| member.link.is_none() && !asked(**client));
        let longest = away.min_by_key(|(client, member)| (member.seen, **client)).map(|(client, _)| *client);
        longest.is_some_and(|ghost| self.members.remove(&ghost).is_some())
    }

    /// Whoever is connected counts as heard so much later, but not later than `now`.
    pub(super) fn hear_all_later(&mut self, now: Duration, by: Duration) {
        self.heard.clear();
        for link in self.members.values_mut().filter_map(|member| member.link.as_mut()) {
            link.heard = link.heard.saturating_add(by).min(now);
            self.heard.insert((link.heard, link.peer));
        }
    }

    /// Whether there was anybody.
    pub(super) fn drop_silent(&mut self, now: Duration) -> bool {
        let limit = self.policy.lost_after;
        let mut any = false;
        while self.heard.first().is_some_and(|(heard, _)| now >= *heard + limit)
            && let Some((_, peer)) = self.heard.pop_first()
        {
            self.forget(peer);
            self.send_away(peer);
            any = true;
        }
        any
    }

    pub(super) fn present(&self) -> impl Iterator<Item = (ClientId, u64)> {
        self.members
            .iter()
            .filter(|(_, member)| member.link.is_some())
            .map(|(client, member)| (*client, member.samples))
    }

    /// What clients owe that may still count.
    pub(super) fn owed(&self) -> BTreeMap<ClientId, Owed> {
        let owed = self.members.keys().map(|client| (*client, self.behind(*client)));
        owed.filter_map(|(client, owed)| Some((client, owed?))).collect()
    }

    /// The last rounds that updates of clients count in that are away, and may not know it.
    pub(super) fn counted(&self) -> BTreeMap<ClientId, u32> {
        let away = self.members.iter().filter(|(_, member)| member.link.is_none());
        away.filter_map(|(client, member)| Some((*client, member.counted?))).collect()
    }

    pub(super) fn roster(&self) -> BTreeMap<ClientId, u64> {
        self.members.iter().map(|(client, member)| (*client, member.samples)).collect()
    }

    /// Has the roster made durable if it has changed.
    pub(super) fn remember(&mut self) {
        if !std::mem::take(&mut self.memory.outdated) {
            return;
        }
        let since = match &self.state {
            State::Open { round } | State::Opening { round, .. } => round.number(),
            State::Closing { .. } => self.closed + 1,
            State::Gathering { .. } | State::Finished => self.closed,
        };
        self.memory.under_way += 1;
        self.actions.push_back(Action::Remember(Known { since, roster: self.roster() }));
    }

    /// The same, unless it is being written or there is no room for it: however many come at a time, one list is under way.
    pub(super) fn remember_in_time(&mut self) {
        let over = matches!(self.state, State::Finished);
        if !over && self.memory.under_way == 0 && self.paused.is_none() {
            self.remember();
        }
    }

    pub(super) fn connected_peers(&self) -> Vec<PeerId> {
        self.members.values().filter_map(|member| member.link).map(|link| link.peer).collect()
    }
}
