//! Both machines joined in memory, with a clock of their own.
//!
//! Connections are reliable and ordered, as QUIC makes them; what a bad network does to them is delay and cuts, after
//! which both sides learn of it at different times and everything under way is lost. Payloads travel on streams of
//! their own and may be overtaken by messages. All chance comes from one seed, so a failing schedule can be replayed.
//! Every message is encoded and decoded.

mod lives;
mod queue;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aggregator::coordinator::{Event as ServerEvent, Outcome, PeerId, Resume};
use aggregator::database::Database;
use bytes::Bytes;
use edge_client::session::Event as DeviceEvent;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use shared::frame::{self, HEADER_LEN};
use shared::id::ClientId;
use shared::message::ToServer;
use shared::seed::Seed;

use crate::device::{self, Device};
use crate::faulty_disk::{FaultyDisk, Loss};
use crate::scenario::Scenario;
use crate::server::Server;
use crate::weather::Weather;
use queue::{Happening, Scheduled};

struct Connection {
    device: usize,
    life: u32,
    /// Which life of the aggregator it was made to: the next one knows nothing of it.
    server_life: u32,
    /// Deliveries in one direction keep their order.
    last: [Duration; 2],
}

/// A federation in a box.
pub struct World {
    now: Duration,
    scenario: Scenario,
    weather: Weather,
    chance: ChaCha8Rng,
    disk: FaultyDisk,
    /// How the aggregator's next lives end, if by the disk.
    deaths: VecDeque<(usize, Loss)>,
    runs: PathBuf,
    server: Option<Server>,
    devices: Vec<Device>,
    connections: BTreeMap<PeerId, Connection>,
    next_peer: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
    outcome: Option<Outcome>,
    /// Devices whose training takes this long, whatever the weather.
    slow: BTreeMap<usize, Duration>,
    /// Updates that a device was told were durable.
    promised: BTreeSet<(u32, ClientId)>,
    /// How often each device began to train in each round.
    trainings: BTreeMap<(u32, ClientId), usize>,
    /// Where each life of the aggregator but the first began.
    pub resumes: Vec<Resume>,
    /// Uploads are synced before they are folded, as those of real devices are.
    pub synced_uploads: bool,
    /// Let the aggregator forget accepted updates: their files are not synced, or the test damages them.
    pub forgiving: bool,
    /// Where the aggregator enters its rounds, if anywhere. It is on a disk of its own, which does not fail.
    pub database: Option<Database>,
    /// Print every happening: for replaying a seed that failed.
    pub trace: bool,
    /// Deaths of the aggregator so far.
    pub server_deaths: u32,
}

impl World {
    /// A federation whose run lives in a directory under `runs`; everything starts at time zero.
    #[must_use]
    pub fn new(scenario: Scenario, weather: Weather, seed: u64, runs: &Path) -> Self {
        let identities = scenario.config.clone();
        let shares = scenario.shares.clone();
        let devices = (0..).zip(shares).map(|(index, share)| Device::new(identities.client(index), share));
        let mut world = Self {
            now: Duration::ZERO,
            devices: devices.collect(),
            scenario,
            weather,
            chance: Seed::root(seed).derive("weather").rng(),
            disk: FaultyDisk::counting(),
            deaths: VecDeque::new(),
            runs: runs.to_owned(),
            server: None,
            connections: BTreeMap::new(),
            next_peer: 0,
            queue: BinaryHeap::new(),
            sequence: 0,
            outcome: None,
            slow: BTreeMap::new(),
            promised: BTreeSet::new(),
            trainings: BTreeMap::new(),
            resumes: Vec::new(),
            server_deaths: 0,
            database: None,
            trace: false,
            forgiving: false,
            synced_uploads: true,
        };
        world.schedule(Duration::ZERO, Happening::ServerStarts);
        for device in 0..world.devices.len() {
            world.schedule(Duration::ZERO, Happening::DeviceStarts(device));
        }
        world
    }

    /// Every training of `device` takes `training`.
    pub fn slow_down(&mut self, device: usize, training: Duration) {
        self.slow.insert(device, training);
    }

    /// Lets time pass until `so_far` is true of the aggregator.
    ///
    /// # Panics
    /// If the run ends before.
    pub fn run_until(&mut self, so_far: impl Fn(&Server) -> bool) {
        while !self.server.as_ref().is_some_and(&so_far) {
            assert!(self.outcome.is_none(), "the run ended before");
            self.step();
        }
    }

    /// How often each device began to train in each round.
    #[must_use]
    pub fn trainings(&self) -> &BTreeMap<(u32, ClientId), usize> {
        &self.trainings
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The aggregator, while it lives.
    #[must_use]
    pub fn server(&self) -> Option<&Server> {
        self.server.as_ref()
    }

    /// The devices.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Lets time pass until the run ends. `None` if it has not by `limit`.
    pub fn run_until_end(&mut self, limit: Duration) -> Option<Outcome> {
        while self.outcome.is_none() && self.now < limit {
            self.step();
        }
        self.outcome.clone()
    }

    /// The next thing happens: a delivery, or a deadline.
    pub fn step(&mut self) {
        let scheduled = self.queue.peek().map(|Reverse(next)| next.0);
        let server = self.server.as_ref().and_then(|server| server.deadline(self.now));
        let devices = self.devices.iter().enumerate();
        let device = devices.filter_map(|(index, device)| Some((device.deadline()?, index))).min();
        let next = [scheduled, server, device.map(|(moment, _)| moment)].into_iter().flatten().min();
        let Some(next) = next else {
            self.now += Duration::from_secs(60);
            return;
        };
        self.now = self.now.max(next);
        if scheduled == Some(next) {
            if let Some(Reverse(Scheduled(_, _, happening))) = self.queue.pop() {
                self.happen(happening);
            }
        } else if server == Some(next) {
            self.server_event(ServerEvent::Tick);
        } else if let Some((_, index)) = device {
            let effects = self.devices[index].handle(self.now, DeviceEvent::Tick);
            self.device_effects(index, effects);
        }
    }

    fn happen(&mut self, happening: Happening) {
        if self.trace {
            println!("{:?} {happening:.200?}", self.now);
        }
        match happening {
            Happening::ServerStarts => self.start_server(),
            Happening::DeviceStarts(device) => {
                let effects = self.devices[device].start(self.now);
                self.device_effects(device, effects);
            }
            Happening::Connected(peer) => self.device_event(peer, DeviceEvent::Connected),
            Happening::ToServer { peer, message, payload } => {
                if self.connections.get(&peer).is_none_or(|it| it.server_life != self.server_deaths) {
                    return;
                }
                let event = match (*message, payload, &mut self.server) {
                    (ToServer::Update(header), Some(payload), Some(server)) => {
                        match server.upload(peer, header, &payload, self.synced_uploads) {
                            Ok(event) => event,
                            Err(_) => return self.server_dies(),
                        }
                    }
                    (message, _, _) => ServerEvent::Message { peer, message },
                };
                self.server_event(event);
            }
            Happening::ToDevice { peer, message, payload } => {
                let Some(connection) = self.connections.get(&peer) else { return };
                if let Some(payload) = payload {
                    self.devices[connection.device].receive(payload);
                }
                self.device_event(peer, DeviceEvent::Message(*message));
            }
            Happening::ServerLearnsOfCut(peer) => self.server_event(ServerEvent::Disconnected { peer }),
            Happening::DeviceLearnsOfCut(peer) => {
                self.device_event(peer, DeviceEvent::Disconnected { reason: "cut".to_owned() });
                self.connections.remove(&peer);
            }
            Happening::Trained { device, trained } => {
                let effects = self.devices[device].trained(self.now, *trained);
                self.device_effects(device, effects);
            }
        }
    }

    fn device_event(&mut self, peer: PeerId, event: DeviceEvent) {
        let Some(connection) = self.connections.get(&peer) else { return };
        let (device, life) = (connection.device, connection.life);
        if self.devices[device].life != life || !self.devices[device].alive() {
            return;
        }
        if self.chance.random_bool(self.weather.device_crash) {
            self.devices[device].crash();
            self.cut(peer);
            let downtime = self.draw(self.weather.downtime);
            self.schedule(downtime, Happening::DeviceStarts(device));
            return;
        }
        let effects = self.devices[device].handle(self.now, event);
        self.device_effects(device, effects);
    }

    fn device_effects(&mut self, device: usize, effects: Vec<device::Effect>) {
        for effect in effects {
            match effect {
                device::Effect::Connect => self.connect(device),
                device::Effect::Deliver(message, payload) => {
                    if let Some(peer) = self.connection_of(device) {
                        let message = Box::new(across(&message));
                        self.deliver(
                            peer,
                            0,
                            |message, payload| Happening::ToServer { peer, message, payload },
                            message,
                            payload,
                        );
                    }
                }
                device::Effect::Train(trained) => {
                    let key = (trained.round(), self.devices[device].client());
                    *self.trainings.entry(key).or_default() += 1;
                    let drawn = self.draw(self.weather.training);
                    let duration = self.slow.get(&device).copied().unwrap_or(drawn);
                    self.schedule(duration, Happening::Trained { device, trained: Box::new(trained) });
                }
                device::Effect::Cut => {
                    if let Some(peer) = self.connection_of(device) {
                        self.cut(peer);
                    }
                }
            }
        }
    }

    fn connection_of(&self, device: usize) -> Option<PeerId> {
        let life = self.devices[device].life;
        let mut own = self.connections.iter().filter(|(_, it)| it.device == device && it.life == life);
        own.next_back().map(|(peer, _)| *peer)
    }

    fn connect(&mut self, device: usize) {
        let peer = PeerId(self.next_peer);
        self.next_peer += 1;
        let life = self.devices[device].life;
        self.connections
            .insert(peer, Connection { device, life, server_life: self.server_deaths, last: [self.now; 2] });
        let delay = self.draw(self.weather.delay);
        let refused = self.server.is_none() || self.chance.random_bool(self.weather.cut);
        let happening = if refused { Happening::DeviceLearnsOfCut(peer) } else { Happening::Connected(peer) };
        self.schedule(delay, happening);
    }

    /// Payloads take a stream of their own: they neither wait for earlier messages nor hold later ones up.
    fn deliver<M>(
        &mut self,
        peer: PeerId,
        direction: usize,
        happening: impl FnOnce(M, Option<Bytes>) -> Happening,
        message: M,
        payload: Option<Bytes>,
    ) {
        if self.chance.random_bool(self.weather.cut) {
            self.cut(peer);
            return;
        }
        let mut arrival = self.now + self.draw(self.weather.delay);
        let Some(connection) = self.connections.get_mut(&peer) else { return };
        if payload.is_none() {
            arrival = arrival.max(connection.last[direction]);
            connection.last[direction] = arrival;
        }
        self.schedule(arrival.saturating_sub(self.now), happening(message, payload));
    }

    /// Both sides learn of it in their own time; what is under way is lost when they do.
    fn cut(&mut self, peer: PeerId) {
        let (soon, later) = (self.draw(self.weather.delay), self.draw(self.weather.delay));
        self.schedule(soon, Happening::ServerLearnsOfCut(peer));
        self.schedule(later, Happening::DeviceLearnsOfCut(peer));
    }

    fn draw(&mut self, up_to: Duration) -> Duration {
        up_to.mul_f64(self.chance.random_range(0.0..1.0))
    }

    fn schedule(&mut self, after: Duration, happening: Happening) {
        self.sequence += 1;
        self.queue.push(Reverse(Scheduled(self.now + after, self.sequence, happening)));
    }
}

/// Encodes and decodes, as a wire would.
fn across<M: serde::Serialize + serde::de::DeserializeOwned>(message: &M) -> M {
    frame::decode(&frame::encode(message, 0)[HEADER_LEN..]).expect("own frames decode")
}
