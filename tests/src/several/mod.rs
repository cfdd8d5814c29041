//! Several servers of one run in memory, in virtual time, from one seed.
//!
//! Real are the coordinator, the disk worker with what it asks of leaves and of the store, leaves, the root's end of links, the choice
//! of the root, keeping and fetching a run, and devices. The root's disk worker blocks, and has a thread: one thread runs at a time, and
//! waiting takes virtual time. Simulated are the store, whose answers are those of `PostgreSQL`, clocks, disks, networks, and the
//! loops that pass messages on, which are tasks in a program.
//!
//! | module | what it is |
//! |---|---|
//! | `baton` | a thread that runs while the simulation waits for it |
//! | `store` | the store |
//! | `root` | the root of a process |
//! | `server` | processes: start, death, stops, who leads |
//! | `leaf` | the leaf of a process, and its links |
//! | `network` | devices and their connections |
//! | `queue` | what happens, by time |
//! | [`faults`] | what may go wrong |
//! | [`checks`] | what must hold |
//! | [`schedule`] | federations and faults, drawn from a seed |

mod baton;
pub mod checks;
pub mod faults;
mod leaf;
mod network;
mod queue;
mod root;
pub mod schedule;
mod server;
mod store;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aggregator::coordinator::Event as ServerEvent;
use aggregator::leaves::standing::ServedRun;
use edge_client::address_book::AddressBook;
use edge_client::session::Event as DeviceEvent;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use shared::id::ClientId;
use shared::seed::Seed;
use tokio::runtime::Runtime;

use crate::device::Device;
use crate::scenario::Scenario;
use crate::scheduled::Scheduled;
use faults::{SeveralFaults, SeveralTroubles};
use leaf::Link;
use network::Connection;
use queue::Happening;
use server::Server;
use store::FakeStore;

/// Bugs that may be put in, to see whether they are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Planted {
    /// None.
    #[default]
    None,
    /// The store takes a write of an epoch that is over.
    NoEpochCheck,
    /// Devices are told that their updates count when these are accepted, not when the round has closed.
    EarlyReceipts,
}

/// Several servers, their store and their devices.
pub struct Several {
    now: Duration,
    scenario: Scenario,
    faults: SeveralFaults,
    chance: ChaCha8Rng,
    run: ServedRun,
    store: FakeStore,
    servers: Vec<Server>,
    links: BTreeMap<u64, Link>,
    devices: Vec<Device>,
    books: Vec<AddressBook>,
    /// When each device's process began.
    begun: Vec<Duration>,
    connections: BTreeMap<u64, Connection>,
    next: u64,
    queue: BinaryHeap<Reverse<Scheduled<Happening>>>,
    sequence: u64,
    /// Troubles that are still to come.
    to_come: u32,
    /// Carries what the root says to devices, as in a program.
    runtime: Runtime,
    /// Updates that a device was told count.
    promised: BTreeSet<(u32, ClientId)>,
    /// The first verdict that each device has taken for an update since it sent it: whether it counts.
    receipts: BTreeMap<(u32, ClientId), bool>,
    /// Receipts that were given before the store had the round.
    too_early: Vec<(Duration, u32)>,
    /// Processes that ended by themselves, and not with their disk.
    failures: Vec<String>,
    /// What went wrong so far.
    pub troubles: SeveralTroubles,
    /// Print every happening: for replaying a seed that failed.
    pub trace: bool,
}

impl Several {
    /// This number of servers of one run, whose folders are below `folder`.
    ///
    /// # Panics
    /// If the system gives no runtime.
    #[must_use]
    pub fn new(
        scenario: Scenario,
        servers: usize,
        (faults, planted): (SeveralFaults, Planted),
        seed: u64,
        folder: &Path,
    ) -> Self {
        let mut scenario = scenario;
        scenario.config.policy.receipts_at_close = planted != Planted::EarlyReceipts;
        let seed = Seed::root(seed);
        let checks_epoch = planted != Planted::NoEpochCheck;
        let devices: Vec<Device> = Device::all_of(&scenario).collect();
        let names: Vec<String> = (0..servers).map(name).collect();
        let mut several = Self {
            now: Duration::ZERO,
            run: ServedRun { id: [7; 32], name: scenario.config.spec.name.clone() },
            store: FakeStore::new(seed.derive("store").rng(), faults.latency, faults.lost, checks_epoch),
            servers: (0..servers).map(|index| Server::new(index, folder)).collect(),
            links: BTreeMap::new(),
            books: devices.iter().map(|_| AddressBook::new(names.clone())).collect(),
            begun: vec![Duration::ZERO; devices.len()],
            devices,
            connections: BTreeMap::new(),
            next: 0,
            queue: BinaryHeap::new(),
            sequence: 0,
            to_come: faults.troubles,
            runtime: tokio::runtime::Builder::new_current_thread()
                .build()
                .expect("the system gives a runtime"),
            promised: BTreeSet::new(),
            receipts: BTreeMap::new(),
            too_early: Vec::new(),
            failures: Vec::new(),
            troubles: SeveralTroubles::default(),
            trace: false,
            scenario,
            faults,
            chance: seed.derive("weather").rng(),
        };
        for server in 0..servers {
            let after = several.draw(Duration::from_secs(2));
            several.schedule(after, Happening::ServerStarts(server));
        }
        for device in 0..several.devices.len() {
            several.schedule(Duration::ZERO, Happening::DeviceStarts(device));
        }
        let after = several.draw(several.faults.trouble);
        several.schedule(after, Happening::Trouble);
        several
    }

    /// Lets time pass until the store says that the run is over, or a process has ended by itself. Whether it is over by `limit`.
    pub fn run_until_end(&mut self, limit: Duration) -> bool {
        while !self.store.state().ended && self.failures.is_empty() && self.now < limit {
            self.step();
        }
        self.troubles.refused = self.store.state().refused;
        self.store.state().ended
    }

    /// Virtual time.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now
    }

    /// The next thing happens: what is scheduled, or a deadline.
    fn step(&mut self) {
        let scheduled = self.queue.peek().map(|Reverse(next)| next.0);
        let roots = self.servers.iter().filter(|server| server.runs());
        let roots =
            roots.filter_map(|server| Some((server.root.as_ref()?.deadline(self.now)?, server.index)));
        let root = roots.min();
        let deadline =
            |(index, device): (usize, &Device)| Some((device.deadline()? + self.begun[index], index));
        let device = self.devices.iter().enumerate().filter_map(deadline).min();
        let moments = [scheduled, root.map(|(moment, _)| moment), device.map(|(moment, _)| moment)];
        let Some(next) = moments.into_iter().flatten().min() else {
            self.now += Duration::from_mins(1);
            return;
        };
        self.now = self.now.max(next);
        if scheduled == Some(next) {
            if let Some(Reverse(Scheduled(_, _, happening))) = self.queue.pop() {
                self.happen(happening);
            }
        } else if let Some((_, server)) = root.filter(|(moment, _)| *moment == next) {
            self.root_event(server, ServerEvent::Tick);
        } else if let Some((_, device)) = device {
            self.give_device(device, DeviceEvent::Tick);
        }
    }

    fn happen(&mut self, happening: Happening) {
        if let Some(life) = happening.life() {
            let server = &mut self.servers[life.server];
            if server.life != life.life || !server.up {
                return;
            }
            if server.frozen {
                server.deferred.push(happening);
                return;
            }
        }
        if self.trace {
            println!("{:?} {happening:.300?}", self.now);
        }
        match happening {
            Happening::ServerStarts(server) => self.start_server(server),
            Happening::DeviceStarts(device) => {
                self.begun[device] = self.now;
                let effects = self.devices[device].start(Duration::ZERO);
                self.device_effects(device, effects);
            }
            Happening::Looks(life, turn) => self.looks(life, turn),
            Happening::Looked(life, turn, standing, asked) => self.looked(life, turn, (standing, asked)),
            Happening::Seeks(life) => self.seeks(life),
            Happening::LeafWorks(life) => self.leaf_works(life),
            Happening::RootRuns(life, turn) => self.root_runs(life, turn),
            Happening::Thaws(life) => self.thaws(life),
            Happening::ToRoot(link, life, frame) => self.root_hears(link, life, *frame),
            Happening::ToLeaf(link, life, frame) => self.leaf_hears(link, life, *frame),
            Happening::RootLosesLink(link, life) => self.root_loses(link, life),
            Happening::LeafLosesLink(link, life) => self.leaf_loses(link, life),
            Happening::Silent(life) => self.falls_silent(life),
            Happening::Connected(peer) => self.connected(peer),
            Happening::ToServer(peer, life, message, payload) => self.arrives(peer, life, *message, payload),
            Happening::ToDevice(peer, message, payload) => self.device_hears(peer, *message, payload),
            Happening::ServerLosesDevice(peer, life) => self.server_loses_device(peer, life),
            Happening::DeviceLosesServer(peer) => self.device_loses_server(peer),
            Happening::Trained(device, trained) => {
                let now = self.now.saturating_sub(self.begun[device]);
                let effects = self.devices[device].trained(now, *trained);
                self.device_effects(device, effects);
            }
            Happening::Trouble => self.trouble(),
        }
    }

    /// Nothing is drawn for what never happens.
    fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.chance.random_bool(probability)
    }

    fn draw(&mut self, up_to: Duration) -> Duration {
        up_to.mul_f64(self.chance.random_range(0.0..1.0))
    }

    fn schedule(&mut self, after: Duration, happening: Happening) {
        self.sequence += 1;
        self.queue.push(Reverse(Scheduled(self.now + after, self.sequence, happening)));
    }

    /// A number that was never given.
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

/// The name of a server, which is its address as well.
fn name(server: usize) -> String {
    format!("server-{server}")
}

/// Where a server keeps its folders.
fn place(folder: &Path, server: usize) -> PathBuf {
    folder.join(name(server))
}
