//! Devices of several servers, and their connections.

use std::time::Duration;

use aggregator::coordinator::PeerId;
use aggregator::leaves::shown::folder_of;
use aggregator::peer::{FromPeer, ToPeer};
use aggregator::run::Upload;
use aggregator::run::directory::RunDirectory;
use aggregator::storage::FileLayer as _;
use aggregator::storage::checksum::Checksum;
use bytes::Bytes;
use edge_client::address_book::Pass;
use edge_client::session::Event;
use shared::frame;
use shared::message::{ToClient, ToServer, UpdateHeader, Verdict};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::queue::{Happening, Life};
use super::{Several, name};
use crate::device::Effect;
use crate::simulator::across;

/// So long a device waits for a server that does not answer, before it tries the next.
const NO_ANSWER: Duration = Duration::from_secs(3);

/// A connection of a device to a server.
pub(super) struct Connection {
    device: usize,
    life: u32,
    pub(super) server: Life,
    /// What the server has to say.
    commands: Option<UnboundedReceiver<ToPeer>>,
    last: [Duration; 2],
    cut: bool,
}

impl Several {
    /// A device tries the servers in its order.
    fn connect(&mut self, device: usize, pass: Pass) {
        let client = self.devices[device].client();
        let order = self.books[device].begin(pass, client);
        let mut takes = self.draw(self.faults.delay);
        let mut found = None;
        for (place, address) in order.iter().enumerate() {
            let Some(server) = self.servers.iter().find(|server| name(server.index) == *address) else {
                continue;
            };
            let (life, runs, up) = (server.now(), server.runs(), server.up);
            if runs && !self.happens(self.faults.cut) {
                found = Some((place, life));
                break;
            }
            takes += if up { NO_ANSWER } else { Duration::ZERO };
        }
        let peer = self.number();
        let life = self.devices[device].life;
        let server = found.map_or(Life { server: 0, life: 0 }, |(_, server)| server);
        let (commands, last) = (None, [self.now; 2]);
        self.connections
            .insert(peer, Connection { device, life, server, commands, last, cut: found.is_none() });
        let Some((place, server)) = found else {
            return self.schedule(takes, Happening::DeviceLosesServer(peer));
        };
        let last = self.books[device].last().is_some_and(|last| *last != name(server.server));
        self.troubles.moves += usize::from(last);
        self.books[device].answered(&order[..=place]);
        self.schedule(takes, Happening::Connected(peer));
    }

    pub(super) fn connected(&mut self, peer: u64) {
        let Some(connection) = self.connections.get_mut(&peer).filter(|connection| !connection.cut) else {
            return;
        };
        let server = &self.servers[connection.server.server];
        if server.life != connection.server.life || !server.runs() {
            return self.device_loses_server(peer);
        }
        let (sender, commands) = unbounded_channel();
        connection.commands = Some(commands);
        let index = connection.server.server;
        self.leaf_said(index, FromPeer::Connected { peer: PeerId(peer), commands: sender });
        self.flush(index);
        self.device_event(peer, Event::Connected);
    }

    /// Something arrives at a server.
    pub(super) fn arrives(&mut self, peer: u64, life: Life, message: ToServer, payload: Option<Bytes>) {
        let event = match (message, payload) {
            (ToServer::Update(header), Some(payload)) => {
                match self.spool(peer, life.server, header, &payload) {
                    Ok(event) => event,
                    Err(error) => return self.fails(life.server, &error.to_string()),
                }
            }
            (message, _) => FromPeer::Message { peer: PeerId(peer), message, bytes: 0, place: None },
        };
        self.leaf_said(life.server, event);
        self.flush(life.server);
    }

    /// Spools an update, as the transport does.
    fn spool(
        &mut self,
        peer: u64,
        index: usize,
        header: UpdateHeader,
        payload: &[u8],
    ) -> std::io::Result<FromPeer> {
        let number = self.number();
        let server = &self.servers[index];
        let folder = RunDirectory::new(folder_of(&server.runs, &self.run.name));
        let path = folder.spool().join(format!("{number}.upload"));
        let mut bytes = frame::encode(&ToServer::Update(header), payload.len() as u64);
        bytes.extend_from_slice(payload);
        let mut sum = Checksum::default();
        sum.update(&bytes);
        bytes.extend_from_slice(sum.trailer().as_bytes());
        let mut file = server.disk.create(&path)?;
        file.write_all(&bytes)?;
        file.sync()?;
        let (upload, bytes) = (Upload::File(path), bytes.len() as u64);
        Ok(FromPeer::Uploaded { peer: PeerId(peer), header, upload, turn: None, bytes })
    }

    pub(super) fn server_loses_device(&mut self, peer: u64, life: Life) {
        let reason = "cut".to_owned();
        self.leaf_said(life.server, FromPeer::Disconnected { peer: PeerId(peer), reason, parted: false });
        self.flush(life.server);
    }

    pub(super) fn device_loses_server(&mut self, peer: u64) {
        let event = Event::Disconnected { reason: "cut".to_owned(), elsewhere: false };
        self.device_event(peer, event);
        self.connections.remove(&peer);
    }

    pub(super) fn device_hears(&mut self, peer: u64, message: ToClient, payload: Option<Bytes>) {
        let Some(connection) = self.connections.get(&peer) else { return };
        let device = connection.device;
        if self.devices[device].life != connection.life || !self.devices[device].alive() {
            return;
        }
        let (mut message, mut receipt) = (message, None);
        match (&message, payload) {
            (ToClient::Receipt { round, verdict }, _) => {
                if *verdict == Verdict::Accepted {
                    self.promised.insert((*round, self.devices[device].client()));
                }
                receipt = Some((*round, verdict.counts()));
            }
            (ToClient::Welcome { .. }, _) => self.books[device].admitted(),
            (_, Some(payload)) => {
                if let Some(task) = message.task() {
                    self.devices[device].receive(task.failed, payload);
                    message = ToClient::Task { round: task.round, work: task.work };
                }
            }
            _ => {}
        }
        let taken = self.device_event(peer, Event::Message(message));
        if let Some((round, counts)) = receipt.filter(|_| taken) {
            self.receipts.entry((round, self.devices[device].client())).or_insert(counts);
        }
    }

    /// Whether the device has taken it: it may be dead, or die of it.
    fn device_event(&mut self, peer: u64, event: Event) -> bool {
        let Some(connection) = self.connections.get(&peer) else { return false };
        let (device, life) = (connection.device, connection.life);
        if self.devices[device].life != life || !self.devices[device].alive() {
            return false;
        }
        if self.happens(self.faults.device_crash) {
            self.devices[device].crash();
            self.troubles.device_deaths += 1;
            self.cut(peer);
            let downtime = self.draw(self.faults.downtime);
            self.schedule(downtime, Happening::DeviceStarts(device));
            return false;
        }
        self.give_device(device, event);
        true
    }

    pub(super) fn give_device(&mut self, device: usize, event: Event) {
        let now = self.now.saturating_sub(self.begun[device]);
        let effects = self.devices[device].handle(now, event);
        self.device_effects(device, effects);
    }

    pub(super) fn device_effects(&mut self, device: usize, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Connect(pass) => self.connect(device, pass),
                Effect::Deliver(message, payload) => {
                    if let Some(peer) = self.connection_of(device) {
                        // A round that another server has opened again may need an update that was late.
                        if let ToServer::Update(header) = &*message {
                            self.receipts.remove(&(header.round, self.devices[device].client()));
                        }
                        let message = Box::new(across(&*message));
                        let life = self.connections[&peer].server;
                        self.deliver(peer, 0, Happening::ToServer(peer, life, message, payload));
                    }
                }
                Effect::Train(trained) => {
                    let takes = self.draw(self.faults.training);
                    self.schedule(takes, Happening::Trained(device, Box::new(trained)));
                }
                Effect::Cut => {
                    if let Some(peer) = self.connection_of(device) {
                        self.cut(peer);
                    }
                }
                Effect::Die => unreachable!("memory does not fail"),
            }
        }
    }

    fn connection_of(&self, device: usize) -> Option<u64> {
        let life = self.devices[device].life;
        let mut own = self.connections.iter().filter(|(_, it)| it.device == device && it.life == life);
        own.next_back().map(|(peer, _)| *peer)
    }

    /// The connections of devices at a server.
    fn connections_at(&self, life: Life) -> Vec<u64> {
        self.connections
            .iter()
            .filter(|(_, connection)| connection.server == life)
            .map(|(peer, _)| *peer)
            .collect()
    }

    /// Cuts what a server has: its links, whose other ends notice it after this time, and the connections of its devices.
    pub(super) fn cut_all(&mut self, life: Life, notice: Duration) {
        let links: Vec<u64> =
            self.links.iter().filter(|(_, link)| link.is_of(life)).map(|(link, _)| *link).collect();
        for link in links {
            self.cut_link(link, notice);
        }
        for peer in self.connections_at(life) {
            self.cut(peer);
        }
    }

    /// Sends what servers say to devices on its way.
    pub(super) fn flush_devices(&mut self, life: Life) {
        for peer in self.connections_at(life) {
            while let Some(command) = self
                .connections
                .get_mut(&peer)
                .and_then(|connection| connection.commands.as_mut()?.try_recv().ok())
            {
                match command {
                    ToPeer::Message(message) => {
                        let message = Box::new(across(&message));
                        self.deliver(peer, 1, Happening::ToDevice(peer, message, None));
                    }
                    ToPeer::Task(delivery) => match delivery.model.read() {
                        Ok(payload) => {
                            let message = Box::new(delivery.task());
                            self.deliver(peer, 1, Happening::ToDevice(peer, message, Some(payload)));
                        }
                        // Its round is over meanwhile.
                        Err(_) => self.cut(peer),
                    },
                    ToPeer::Frozen(..) => unreachable!("no run of the simulation has frozen parameters"),
                    ToPeer::Disconnect => self.cut(peer),
                }
            }
        }
    }

    fn deliver(&mut self, peer: u64, way: usize, happening: Happening) {
        if self.connections.get(&peer).is_none_or(|connection| connection.cut) {
            return;
        }
        if self.happens(self.faults.cut) {
            return self.cut(peer);
        }
        let arrival = self.now + self.draw(self.faults.delay);
        let Some(connection) = self.connections.get_mut(&peer) else { return };
        let arrival = arrival.max(connection.last[way]);
        connection.last[way] = arrival;
        self.schedule(arrival.saturating_sub(self.now), happening);
    }

    /// A connection breaks; both sides learn of it in their own time.
    pub(super) fn cut(&mut self, peer: u64) {
        let Some(connection) = self.connections.get_mut(&peer).filter(|connection| !connection.cut) else {
            return;
        };
        connection.cut = true;
        let (server, least) = (connection.server, connection.last[1].saturating_sub(self.now));
        self.troubles.cuts += 1;
        let (soon, later) = (self.draw(self.faults.delay), self.draw(self.faults.delay).max(least));
        self.schedule(soon, Happening::ServerLosesDevice(peer, server));
        self.schedule(later, Happening::DeviceLosesServer(peer));
    }
}
