//! The simulated network: connections, and the delivery of what is sent on them.

use std::time::Duration;

use aggregator::coordinator::PeerId;
use bytes::Bytes;
use rand::RngExt as _;
use shared::message::{ResumePoint, TaskHeader, ToClient, ToServer};

use super::Simulator;
use super::queue::Happening;

/// After so much silence a device gives its connection up (the transport's idle timeout).
const IDLE: Duration = Duration::from_secs(30);

pub(super) struct Connection {
    pub(super) device: usize,
    pub(super) life: u32,
    /// Which life of the aggregator it was made to: the next one knows nothing of it.
    pub(super) server_life: u32,
    /// Deliveries in one direction keep their order.
    last: [Duration; 2],
    /// Nothing gets through any more.
    silent: bool,
    /// Nothing gets through any more but what is under way already: nothing overtakes what was lost.
    cut: bool,
}

impl Simulator {
    pub(super) fn connection_of(&self, device: usize) -> Option<PeerId> {
        let life = self.devices[device].life;
        let mut own = self.connections.iter().filter(|(_, it)| it.device == device && it.life == life);
        own.next_back().map(|(peer, _)| *peer)
    }

    pub(super) fn connect(&mut self, device: usize) {
        let peer = PeerId(self.next_peer);
        self.next_peer += 1;
        let life = self.devices[device].life;
        let (server_life, last) = (self.server_deaths, [self.now; 2]);
        self.connections
            .insert(peer, Connection { device, life, server_life, last, silent: false, cut: false });
        let delay = self.draw(self.faults.delay);
        let refused = self.server.is_none() || self.happens(self.faults.cut);
        let happening = if refused { Happening::DeviceLearnsOfCut(peer) } else { Happening::Connected(peer) };
        self.schedule(delay, happening);
    }

    /// An update goes on where an earlier connection was cut, if the aggregator still has its beginning.
    pub(super) fn whole(&mut self, peer: PeerId, round: u32, payload: Bytes) -> Bytes {
        let device = self.connections[&peer].device;
        let Some((said, beginning)) = self.begun.get(&device) else { return payload };
        let Some(offset) = said.offset_in(round, &payload) else { return payload };
        self.troubles.resumed += 1;
        [&beginning[..], &payload[offset..]].concat().into()
    }

    /// Delivers a message to a device, and a task whole or in part. A task goes on where an earlier connection was cut, also if the
    /// device was started again since.
    pub(super) fn deliver_to_device(&mut self, peer: PeerId, message: ToClient, payload: Option<Bytes>) {
        let happening = |message, payload| Happening::ToDevice { peer, message: Box::new(message), payload };
        let (Some(TaskHeader { round, .. }), Some(payload), Some(connection)) =
            (message.task(), &payload, self.connections.get(&peer))
        else {
            return self.deliver(peer, 1, happening, message, payload);
        };
        let mut whole = payload.clone();
        if let Some(kept) = self.devices[connection.device].download()
            && let Some(offset) = ResumePoint::of(kept.round, &kept.payload).offset_in(round, payload)
        {
            self.troubles.resumed_tasks += 1;
            whole = [&kept.payload[..], &payload[offset..]].concat().into();
        }
        assert!(whole == payload, "a task that goes on is not what it was");
        if self.happens(self.faults.cut) {
            let length = self.chance.random_range(1..payload.len().max(2)).min(payload.len());
            let (beginning, total) = (payload.slice(..length), payload.len() as u64);
            let delay = self.draw(self.faults.delay);
            self.schedule(delay, Happening::TaskBegun { peer, round, total, beginning });
            return self.cut(peer);
        }
        self.deliver(peer, 1, happening, message, Some(whole));
    }

    /// Payloads take a stream of their own: they neither wait for earlier messages nor hold later ones up.
    pub(super) fn deliver<M>(
        &mut self,
        peer: PeerId,
        direction: usize,
        happening: impl FnOnce(M, Option<Bytes>) -> Happening,
        message: M,
        payload: Option<Bytes>,
    ) {
        if self.connections.get(&peer).is_none_or(|connection| connection.silent || connection.cut) {
            return;
        }
        if self.happens(self.faults.silence) {
            self.troubles.silences += 1;
            self.connections.get_mut(&peer).expect("looked at above").silent = true;
            self.schedule(IDLE, Happening::DeviceLearnsOfCut(peer));
            return;
        }
        if self.happens(self.faults.cut) {
            self.cut(peer);
            return;
        }
        let mut arrival = self.now + self.draw(self.faults.delay);
        let Some(connection) = self.connections.get_mut(&peer) else { return };
        if payload.is_none() {
            arrival = arrival.max(connection.last[direction]);
            connection.last[direction] = arrival;
        }
        self.schedule(arrival.saturating_sub(self.now), happening(message, payload));
    }

    /// Delivers a device's message, and its update whole, twice, or in part.
    pub(super) fn deliver_to_server(&mut self, peer: PeerId, message: ToServer, payload: Option<Bytes>) {
        let happening = |message, payload| Happening::ToServer { peer, message, payload };
        let (ToServer::Update(header), Some(payload)) = (&message, &payload) else {
            return self.deliver(peer, 0, happening, Box::new(message), payload);
        };
        let whole = self.whole(peer, header.round, payload.clone());
        assert!(whole == payload, "an update that goes on is not what it was");
        if self.happens(self.faults.cut) {
            let length = self.chance.random_range(1..payload.len().max(2)).min(payload.len());
            let beginning = payload.slice(..length);
            let partial = ResumePoint::of(header.round, &beginning);
            let delay = self.draw(self.faults.delay);
            self.schedule(delay, Happening::Begun { peer, partial, beginning });
            return self.cut(peer);
        }
        if self.happens(self.faults.twice) {
            self.troubles.twice += 1;
            self.deliver(peer, 0, happening, Box::new(message.clone()), Some(payload.clone()));
        }
        self.deliver(peer, 0, happening, Box::new(message), Some(whole));
    }

    /// Nothing gets through from now on.
    pub(super) fn silence(&mut self, peer: PeerId) {
        if let Some(connection) = self.connections.get_mut(&peer) {
            connection.silent = true;
        }
    }

    /// Both sides learn of it in their own time; what is under way is lost when they do. On a silent connection the device
    /// learns nothing from the other side.
    pub(super) fn cut(&mut self, peer: PeerId) {
        self.troubles.cuts += 1;
        if let Some(connection) = self.connections.get_mut(&peer) {
            connection.cut = true;
        }
        let (soon, later) = (self.draw(self.faults.delay), self.draw(self.faults.delay));
        self.schedule(soon, Happening::ServerLearnsOfCut(peer));
        if self.connections.get(&peer).is_none_or(|connection| !connection.silent) {
            self.schedule(later, Happening::DeviceLearnsOfCut(peer));
        }
    }
}
