//! The simulator: both state machines joined in memory, with virtual time.
//!
//! Connections are reliable and ordered, as QUIC makes them; what a bad network does to them is delay, silence and cuts,
//! after which both sides learn of it at different times and everything under way is lost, but for the beginning of an
//! update or a task, with which the device's next connection goes on. Payloads travel on streams of their own and may be overtaken
//! by messages. Everyone has a clock of its own, and the aggregator's disk takes its time. All chance comes from one seed,
//! so a failing schedule can be replayed. Every message is encoded and decoded.

mod clock;
mod losses;
mod observed;
mod power;
mod queue;
mod restarts;
mod transport;

pub use losses::Loses;
pub use power::{Power, copy};
pub use restarts::model_of;

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
use shared::message::{CountedUpdate, ResumePoint, TaskHeader, ToClient, ToServer};
use shared::seed::Seed;

use crate::device::{self, Device};
use crate::faults::Faults;
use crate::faulty_disk::{FaultyDisk, Loss};
use crate::scenario::Scenario;
use crate::scheduled::Scheduled;
use crate::server::Server;
use clock::Clock;
use queue::Happening;
use transport::Connection;

/// A federation in a box.
#[expect(clippy::struct_excessive_bools, reason = "a test sets each of them by itself")]
pub struct Simulator {
    now: Duration,
    scenario: Scenario,
    faults: Faults,
    chance: ChaCha8Rng,
    disk: FaultyDisk,
    /// The disk operations at which the aggregator's next processes die.
    deaths: VecDeque<(usize, Loss)>,
    runs: PathBuf,
    server: Option<Server>,
    server_clock: Clock,
    /// Whether it is known when the aggregator's next durable step is made.
    step_is_due: bool,
    devices: Vec<Device>,
    clocks: Vec<Clock>,
    /// The beginnings of updates that connections did not bring to their end, as this life of the aggregator has them.
    begun: BTreeMap<usize, (ResumePoint, Bytes)>,
    connections: BTreeMap<PeerId, Connection>,
    next_peer: u64,
    queue: BinaryHeap<Reverse<Scheduled<Happening>>>,
    sequence: u64,
    outcome: Option<Outcome>,
    /// Devices whose training takes this long, regardless of the fault profile.
    slow: BTreeMap<usize, Duration>,
    /// The rounds and steps in which devices fall silent for good.
    losses: BTreeMap<usize, (u32, Loses)>,
    /// The differences in client state that the operator was notified of.
    told: Vec<(ClientId, Option<CountedUpdate>, Option<CountedUpdate>)>,
    /// The loss with which the aggregator's power fails when that of a device does.
    shared_power: Option<Loss>,
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
    /// What else went wrong so far.
    pub troubles: Troubles,
}

/// How often what went wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Troubles {
    /// Connections that were cut.
    pub cuts: usize,
    /// Connections that fell silent.
    pub silences: usize,
    /// Updates that arrived twice.
    pub twice: usize,
    /// Updates that went on where they were cut.
    pub resumed: usize,
    /// Tasks that did.
    pub resumed_tasks: usize,
    /// Deaths of devices.
    pub device_deaths: usize,
    /// Jumps of clocks.
    pub jumps: usize,
}

impl Simulator {
    /// A federation whose run lives in a directory under `runs`; everything starts at time zero.
    #[must_use]
    pub fn new(scenario: Scenario, faults: Faults, seed: u64, runs: &Path) -> Self {
        let devices = Device::all_of(&scenario);
        let mut simulator = Self {
            now: Duration::ZERO,
            clocks: vec![Clock::default(); scenario.shares.len()],
            server_clock: Clock::default(),
            step_is_due: false,
            begun: BTreeMap::new(),
            troubles: Troubles::default(),
            devices: devices.collect(),
            scenario,
            faults,
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
            losses: BTreeMap::new(),
            told: Vec::new(),
            shared_power: None,
            promised: BTreeSet::new(),
            trainings: BTreeMap::new(),
            resumes: Vec::new(),
            server_deaths: 0,
            database: None,
            trace: false,
            forgiving: false,
            synced_uploads: true,
        };
        simulator.schedule(Duration::ZERO, Happening::ServerStarts);
        for device in 0..simulator.devices.len() {
            simulator.schedule(Duration::ZERO, Happening::DeviceStarts(device));
        }
        simulator
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
        let (now, clock) = (self.now, self.server_clock);
        let server = self.server.as_ref().and_then(|server| server.deadline(clock.read(now)));
        let server = server.map(|says| clock.moment(says));
        let devices = self.devices.iter().zip(&self.clocks).enumerate();
        let deadline = |(device, clock): (&Device, &Clock)| Some(clock.moment(device.deadline()?));
        let device = devices.filter_map(|(index, it)| Some((deadline(it)?, index))).min();
        let next = [scheduled, server, device.map(|(moment, _)| moment)].into_iter().flatten().min();
        let Some(next) = next else {
            self.now += Duration::from_mins(1);
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
            self.give_device(index, DeviceEvent::Tick);
        }
    }

    /// A device takes an event in.
    fn give_device(&mut self, device: usize, event: DeviceEvent) {
        if self.happens(self.faults.jump) {
            let by = self.draw(self.faults.farthest);
            self.clocks[device].jump(by);
            self.troubles.jumps += 1;
        }
        let effects = self.devices[device].handle(self.clocks[device].read(self.now), event);
        self.device_effects(device, effects);
    }

    /// Nothing is drawn for what never happens.
    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.chance.random_bool(probability)
    }

    fn happen(&mut self, happening: Happening) {
        if self.trace {
            println!("{:?} {happening:.200?}", self.now);
        }
        match happening {
            Happening::ServerStarts => self.start_server(),
            Happening::DeviceStarts(device) => {
                self.clocks[device] = Clock::beginning(self.now);
                let effects = self.devices[device].start(Duration::ZERO);
                self.device_effects(device, effects);
            }
            Happening::Connected(peer) => self.device_event(peer, DeviceEvent::Connected),
            Happening::ToServer { peer, message, payload } => {
                if self.connections.get(&peer).is_none_or(|it| it.server_life != self.server_deaths) {
                    return;
                }
                let event = match (*message, payload, &mut self.server) {
                    (ToServer::Update(header), Some(payload), Some(server)) => {
                        self.begun.remove(&self.connections[&peer].device);
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
                let mut message = *message;
                if let (Some(TaskHeader { round, work, failed, .. }), Some(payload)) =
                    (message.task(), payload)
                {
                    self.devices[connection.device].receive(failed, payload);
                    message = ToClient::Task { round, work };
                }
                self.device_event(peer, DeviceEvent::Message(message));
            }
            Happening::ServerLearnsOfCut(peer) => self.server_event(ServerEvent::Disconnected { peer }),
            Happening::DeviceLearnsOfCut(peer) => {
                self.device_event(
                    peer,
                    DeviceEvent::Disconnected { reason: "cut".to_owned(), elsewhere: false },
                );
                self.connections.remove(&peer);
            }
            Happening::Trained { device, trained } => {
                let now = self.clocks[device].read(self.now);
                let effects = self.devices[device].trained(now, *trained);
                self.device_effects(device, effects);
            }
            Happening::Begun { peer, partial, beginning } => {
                if let Some(connection) = self.connections.get(&peer)
                    && connection.server_life == self.server_deaths
                {
                    self.begun.insert(connection.device, (partial, beginning));
                }
            }
            Happening::TaskBegun { peer, round, total, beginning } => {
                if let Some(connection) = self.connections.get(&peer)
                    && let device = &mut self.devices[connection.device]
                    && device.alive()
                    && device.life == connection.life
                {
                    device.begin(round, total, &beginning);
                }
            }
            Happening::StepIsMade { server_life } => {
                if server_life == self.server_deaths {
                    self.step_is_due = false;
                    self.make_step();
                }
            }
        }
    }

    fn device_event(&mut self, peer: PeerId, event: DeviceEvent) {
        let Some(connection) = self.connections.get(&peer) else { return };
        let (device, life) = (connection.device, connection.life);
        if self.devices[device].life != life || !self.devices[device].alive() {
            return;
        }
        if self.happens(self.faults.device_crash) {
            self.devices[device].crash();
            self.is_down(device, Some(peer));
            return;
        }
        self.give_device(device, event);
    }

    fn device_effects(&mut self, device: usize, effects: Vec<device::Effect>) {
        for effect in effects {
            match effect {
                device::Effect::Connect(_) => self.connect(device),
                device::Effect::Deliver(message, payload) => {
                    if self.is_lost_with(device, &message) {
                        return self.falls_silent(device);
                    }
                    if let Some(peer) = self.connection_of(device) {
                        self.deliver_to_server(peer, across(&message), payload);
                    }
                }
                device::Effect::Train(trained) => {
                    let key = (trained.round(), self.devices[device].client());
                    *self.trainings.entry(key).or_default() += 1;
                    let drawn = self.draw(self.faults.training);
                    let duration = self.slow.get(&device).copied().unwrap_or(drawn);
                    self.schedule(duration, Happening::Trained { device, trained: Box::new(trained) });
                }
                device::Effect::Cut => {
                    if let Some(peer) = self.connection_of(device) {
                        self.cut(peer);
                    }
                }
                device::Effect::Die => return self.device_dies(device),
            }
        }
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
pub(crate) fn across<M: serde::Serialize + serde::de::DeserializeOwned>(message: &M) -> M {
    frame::decode(&frame::encode(message, 0)[HEADER_LEN..]).expect("own frames decode")
}
