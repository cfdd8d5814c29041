//! The roster: every client that has ever said hello, and its connection.
//!
//! The clients on the roster are waited for after a restart, and the largest number of samples on it sets the scale of the sums.
//! Since anyone can say hello under any number of names, the roster holds at most [`MAX_ROSTER`] clients. A newcomer then
//! replaces the client that has been away longest and is not in the open round's cohort; if there is none, it must come again
//! later. A smaller federation never reaches the limit, so neither its cohorts nor its model depend on it; a larger one's
//! cohorts do not either, since they are drawn among connected clients. A client that is revoked leaves the roster.
//!
//! The roster is part of the opening of a round and durable with it. Later changes are saved separately ([`RosterSnapshot`]):
//! otherwise the first round after a restart would be scaled for the clients that happen to have reconnected.

use std::collections::BTreeMap;
use std::time::Duration;

use shared::client_state::Stands;
use shared::id::ClientId;
use shared::message::Progress;

use super::{Action, Coordinator, OutstandingTask, PeerId, RosterSnapshot, State};

/// The greatest number of clients on the roster, unless the first round waits for more than half as many: then twice that
/// number. A client takes about 100 bytes in memory and 55 in the opening record of every round, or 130 with an outstanding
/// task: 0.4 MB and 0.5 MB in all.
pub const MAX_ROSTER: usize = 4096;

/// A client on the roster.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) samples: u64,
    pub(super) link: Option<Connection>,
    /// When it was last heard of on its previous connection.
    pub(super) seen: Duration,
    /// Where late updates count: its outstanding task of a closed round.
    pub(super) owes: Option<OutstandingTask>,
    /// The round of its last accepted update, until it has reconnected without holding that.
    pub(super) counted: Option<u32>,
    /// It said that it was not eligible to train: until then others are drawn, if there are enough.
    pub(super) unready: Option<Duration>,
}

impl Member {
    /// A client that is not connected.
    pub(super) fn away(samples: u64, owes: Option<OutstandingTask>, now: Duration) -> Self {
        Self { samples, link: None, seen: now, owes, counted: None, unready: None }
    }
}

/// Whether the roster on disk is up to date.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RosterSync {
    /// It has changed since it was last written, by itself or with an opening.
    pub(super) outdated: bool,
    /// Number of [`Action::SaveRoster`] in progress.
    pub(super) under_way: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Connection {
    pub(super) peer: PeerId,
    pub(super) heard: Duration,
    pub(super) progress: Progress,
    /// The round that it has finished training in, as far as its heartbeats tell.
    pub(super) trained: Option<u32>,
    /// Where its client state must stand, as the server has said on this connection, until the client has answered.
    pub(super) told: Option<Stands>,
}

impl Coordinator {
    /// Every known client, connected or not.
    pub fn known(&self) -> impl Iterator<Item = ClientId> {
        self.members.keys().copied()
    }

    /// All connections whose hello is here, answered or not, and their clients.
    pub fn said_hello(&self) -> impl Iterator<Item = (PeerId, ClientId)> {
        self.peers.iter().map(|(peer, client)| (*peer, *client)).chain(self.greetings.peers())
    }

    /// The open connections and their clients.
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
        self.greetings.remove(peer);
        if let Some(client) = self.peers.remove(&peer)
            && let Some(member) = self.members.get_mut(&client)
            && let Some(link) = member.link.take()
        {
            self.heard.remove(&(link.heard, link.peer));
            member.seen = link.heard;
            self.drop_deferred_of(peer, client);
            if let Some(round) = self.state.round_mut() {
                round.away(client);
            }
        }
    }

    /// Removes a client that was revoked.
    pub(super) fn revoked(&mut self, client: ClientId) {
        self.drop_greetings_of(client);
        let Some(member) = self.members.get(&client) else { return };
        if let Some(link) = member.link {
            self.forget(link.peer);
            self.disconnect(link.peer);
        }
        self.members.remove(&client);
        self.withheld.remove(&client);
        self.memory.outdated = true;
        if let Some(round) = self.state.round_mut() {
            round.revoked(client);
        }
    }

    /// For how many clients the private run is, if more are known.
    pub(super) fn outgrows(&self) -> Option<u32> {
        let known = self.members.len();
        let (asked, devices) = match (self.policy.poisson, self.spec.device_noise) {
            (Some(poisson), _) => (known, poisson.devices),
            // Their sums are divided by a cohort.
            (None, Some(noise)) => (self.policy.cohort(known), noise.over),
            (None, None) => return None,
        };
        (asked > devices as usize).then_some(devices)
    }

    /// Warns once if more clients are known than the private run is for.
    pub(super) fn warn_if_outgrown(&mut self) {
        if let Some(devices) = self.outgrows()
            && !std::mem::replace(&mut self.outgrown, true)
        {
            self.actions.push_back(Action::Outgrown { known: self.members.len(), devices });
        }
    }

    /// Whether there is a place on the roster for `client`; evicts another client for a newcomer if need be.
    pub(super) fn has_place(&mut self, client: ClientId) -> bool {
        let places = MAX_ROSTER.max(self.policy.start.saturating_mul(2));
        if self.members.contains_key(&client) || self.members.len() < places {
            return true;
        }
        let round = self.state.round();
        let asked = |client: ClientId| round.is_some_and(|round| round.stage(client).is_some());
        let away = self.members.iter().filter(|(client, member)| member.link.is_none() && !asked(**client));
        let longest = away.min_by_key(|(client, member)| (member.seen, **client)).map(|(client, _)| *client);
        longest.is_some_and(|ghost| {
            self.withheld.remove(&ghost);
            self.members.remove(&ghost).is_some()
        })
    }

    /// Shifts the time when each connected client was last heard by `by`, but not beyond `now`.
    pub(super) fn shift_heard(&mut self, now: Duration, by: Duration) {
        self.heard.clear();
        for link in self.members.values_mut().filter_map(|member| member.link.as_mut()) {
            link.heard = link.heard.saturating_add(by).min(now);
            self.heard.insert((link.heard, link.peer));
        }
    }

    /// Disconnects the clients that were silent too long; returns whether there were any.
    pub(super) fn drop_silent(&mut self, now: Duration) -> bool {
        let limit = self.policy.connection_timeout;
        let mut any = false;
        while self.heard.first().is_some_and(|(heard, _)| now >= *heard + limit)
            && let Some((_, peer)) = self.heard.pop_first()
        {
            self.forget(peer);
            self.disconnect(peer);
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

    /// The outstanding tasks whose updates may still count.
    pub(super) fn owed(&self) -> BTreeMap<ClientId, OutstandingTask> {
        let owed = self.members.keys().map(|client| (*client, self.behind(*client)));
        owed.filter_map(|(client, owed)| Some((client, owed?))).collect()
    }

    /// Clients that are away and may not know that their last update was accepted, with its round.
    pub(super) fn counted(&self) -> BTreeMap<ClientId, u32> {
        let away = self.members.iter().filter(|(_, member)| member.link.is_none());
        away.filter_map(|(client, member)| Some((*client, member.counted?))).collect()
    }

    pub(super) fn roster(&self) -> BTreeMap<ClientId, u64> {
        self.members.iter().map(|(client, member)| (*client, member.samples)).collect()
    }

    /// Has the roster saved if it has changed.
    pub(super) fn save_roster(&mut self) {
        if !std::mem::take(&mut self.memory.outdated) {
            return;
        }
        let since = match &self.state {
            State::Open { round } | State::Opening { round, .. } => round.number(),
            State::Closing { .. } => self.closed + 1,
            State::Gathering { .. } | State::Finished => self.closed,
        };
        self.memory.under_way += 1;
        self.actions.push_back(Action::SaveRoster(RosterSnapshot { since, roster: self.roster() }));
    }

    /// The same, unless it is being written, or the run is paused: one roster is under way at a time.
    pub(super) fn save_roster_in_time(&mut self) {
        let over = matches!(self.state, State::Finished);
        if !over && self.memory.under_way == 0 && !self.pauses.are_any() {
            self.save_roster();
        }
    }

    pub(super) fn connected_peers(&self) -> Vec<PeerId> {
        self.members.values().filter_map(|member| member.link).map(|link| link.peer).collect()
    }
}
