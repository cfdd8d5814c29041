//! Hellos that wait, where several servers serve the run: a server answers only while no other one can lead it.
//!
//! One that was stopped, or does not reach the store, does not know of rounds that another one has opened since. It would tell devices that
//! what they have trained for these is not wanted, and they would drop it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use shared::id::ClientId;
use shared::message::Hello;

use super::{Coordinator, PeerId};

/// For how long a hello waits. Then its device is to try another server: connections that are not welcome yet have few places.
const PATIENCE: Duration = Duration::from_secs(5);

/// The hellos that wait.
#[derive(Debug)]
pub(super) struct Greetings {
    /// No other server leads before this moment.
    leads_until: Duration,
    /// When the store was asked that last.
    asked: Duration,
    /// With the moments at which they came.
    waiting: BTreeMap<PeerId, (Duration, Hello)>,
    /// The same by these moments: thousands may wait.
    since: BTreeSet<(Duration, PeerId)>,
}

impl Greetings {
    /// Of a server that is the only one, or has to be told that it leads.
    pub(super) fn new(alone: bool, now: Duration) -> Self {
        let leads_until = if alone { Duration::MAX } else { now };
        Self { leads_until, asked: Duration::ZERO, waiting: BTreeMap::new(), since: BTreeSet::new() }
    }

    pub(super) fn are_none(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether no other server leads now.
    pub(super) fn may_be_answered(&self, now: Duration) -> bool {
        now < self.leads_until
    }

    /// Since when another server may lead, if one may now.
    pub(super) fn lapsed(&self, now: Duration) -> Option<Duration> {
        (!self.may_be_answered(now)).then_some(self.leads_until)
    }

    /// Whether this connection has said hello and waits.
    pub(super) fn has(&self, peer: PeerId) -> bool {
        self.waiting.contains_key(&peer)
    }

    fn wait(&mut self, since: Duration, peer: PeerId, hello: Hello) {
        self.waiting.insert(peer, (since, hello));
        self.since.insert((since, peer));
    }

    /// The connection has ended.
    pub(super) fn remove(&mut self, peer: PeerId) {
        if let Some((since, _)) = self.waiting.remove(&peer) {
            self.since.remove(&(since, peer));
        }
    }

    /// When the next one has waited for long enough.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.since.first().map(|(since, _)| *since + PATIENCE)
    }

    /// Which connections wait, and whose they are.
    pub(super) fn peers(&self) -> impl Iterator<Item = (PeerId, ClientId)> {
        self.waiting.iter().map(|(peer, (_, hello))| (*peer, hello.client))
    }
}

impl Coordinator {
    /// The store, asked at this moment, has said that no other server leads the run before `until`: the hellos that wait are answered.
    pub(super) fn leads(&mut self, now: Duration, asked: Duration, until: Duration) {
        self.greetings.leads_until = self.greetings.leads_until.max(until);
        self.greetings.asked = self.greetings.asked.max(asked);
        if !self.greetings.may_be_answered(now) {
            return;
        }
        self.end_pause(now);
        self.greetings.since.clear();
        for (peer, (since, hello)) in std::mem::take(&mut self.greetings.waiting) {
            self.greet(now, peer, (since, hello));
        }
    }

    /// Answers a hello that came at `since`, if it may be answered now.
    pub(super) fn greet(&mut self, now: Duration, peer: PeerId, (since, hello): (Duration, Hello)) {
        // Of a later round its device has the task of another server, which leads or has led, unless the store was set back.
        let held = hello.holds.filter(|held| held.run == self.spec.run && held.round > self.closed);
        let is_dropped = || held.is_some_and(|held| !self.is_unsettled(hello.client, held.round));
        let is_behind = self.policy.receipts_at_close && self.greetings.asked <= since && is_dropped();
        if self.greetings.may_be_answered(now) && !is_behind {
            self.hello(now, peer, &hello);
        } else {
            self.greetings.wait(since, peer, hello);
        }
    }

    /// Disconnects those whose hello has waited for too long.
    pub(super) fn give_up_greetings(&mut self, now: Duration) {
        while self.greetings.deadline().is_some_and(|deadline| now >= deadline)
            && let Some((_, peer)) = self.greetings.since.pop_first()
        {
            self.greetings.waiting.remove(&peer);
            self.disconnect(peer);
            self.pauses.have_cut_off();
        }
    }

    /// Disconnects the connections of a client whose hello waits.
    pub(super) fn drop_greetings_of(&mut self, client: ClientId) {
        let peers: Vec<_> = self.greetings.peers().filter(|(_, of)| *of == client).collect();
        for (peer, _) in peers {
            self.greetings.remove(peer);
            self.disconnect(peer);
        }
    }
}
