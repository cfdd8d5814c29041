//! Whole runs of real processes over bad networks: each device in a network namespace of its own, network emulation between it and
//! the aggregator.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::{Duration, Instant};

use shared::congestion::Congestion;

use crate::namespaces::Namespace;
use crate::netem::{Conditions, Netem};
use crate::process::Process;
use crate::testbed::Testbed;

/// Devices.
const DEVICES: u32 = 3;
/// 1 Mbit/s.
const MEGABIT: f64 = 125_000.0;
/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(400);

/// What is done to the network or to the processes while a round's updates are under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Device 0 gets another address.
    Moves,
    /// Nothing gets through between device 0 and the aggregator for this duration.
    Partition(Duration),
    /// Device 1 is killed with `kill -9` and started again.
    KillsDevice,
    /// The aggregator is.
    KillsAggregator,
}

/// A network and what happens on it.
#[derive(Clone, Copy, Debug)]
pub struct BadNetwork {
    /// For people.
    pub name: &'static str,
    /// Always so.
    pub conditions: Conditions,
    /// These happen one after the other, each in the middle of another upload.
    pub events: &'static [Event],
}

const DELAYED: Conditions = Conditions { delay: Duration::from_millis(100), ..Conditions::PERFECT };
const NARROW: Conditions = Conditions { width: Some(MEGABIT), ..Conditions::PERFECT };
/// 200 ms there and back, 5 % of the datagrams lost each way, 1 Mbit/s.
const ALL: Conditions = Conditions { delay: DELAYED.delay, loss: 0.05, width: Some(MEGABIT), closed: false };

/// A partition as the issue wants it.
const PARTITION: Event = Event::Partition(Duration::from_secs(30));

impl BadNetwork {
    /// Nothing is wrong with it.
    pub const PERFECT: Self = Self { name: "nothing", conditions: Conditions::PERFECT, events: &[] };

    /// What a suite has time for.
    pub const SHORT: Self = Self {
        name: "5 % loss, 20 ms, 4 Mbit/s, an address change, a partition of 3 s, kill -9 of a device",
        conditions: Conditions {
            delay: Duration::from_millis(10),
            loss: 0.05,
            width: Some(4.0 * MEGABIT),
            closed: false,
        },
        events: &[Event::Moves, Event::Partition(Duration::from_secs(3)), Event::KillsDevice],
    };

    /// All that a program tries.
    pub const EVERY: [Self; 10] = [
        Self::PERFECT,
        Self { name: "5 % loss", conditions: Conditions { loss: 0.05, ..Conditions::PERFECT }, events: &[] },
        Self { name: "200 ms there and back", conditions: DELAYED, events: &[] },
        Self {
            name: "5 % loss, 200 ms there and back",
            conditions: Conditions { loss: 0.05, ..DELAYED },
            events: &[],
        },
        Self { name: "1 Mbit/s", conditions: NARROW, events: &[] },
        Self { name: "all of these", conditions: ALL, events: &[] },
        Self {
            name: "1 Mbit/s, two address changes",
            conditions: NARROW,
            events: &[Event::Moves, Event::Moves],
        },
        Self { name: "1 Mbit/s, a partition of 30 s", conditions: NARROW, events: &[PARTITION] },
        Self {
            name: "1 Mbit/s, kill -9 of a device and of the aggregator",
            conditions: NARROW,
            events: &[Event::KillsDevice, Event::KillsAggregator],
        },
        Self {
            name: "all of these, and all of that",
            conditions: ALL,
            events: &[Event::Moves, PARTITION, Event::KillsDevice, Event::KillsAggregator],
        },
    ];
}

/// How a run went.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// From the first device's start to the last one's end.
    pub took: Duration,
    /// Rounds of it.
    pub rounds: usize,
    /// Bytes that devices have sent, in datagrams.
    pub sent: u64,
    /// Bytes that the aggregator has sent.
    pub received: u64,
    /// Address changes.
    pub moves: u64,
}

/// A federation in namespaces.
struct Federation {
    testbed: Testbed,
    namespaces: Vec<Namespace>,
    netems: Vec<Netem>,
    server: Option<Process>,
    devices: Vec<Option<Process>>,
    congestion: &'static str,
}

impl Federation {
    fn new(rounds: usize, congestion: Congestion) -> Self {
        let congestion = match congestion {
            Congestion::Cubic => "cubic",
            Congestion::Bbr => "bbr",
        };
        let (rounds, by) = (format!("run.rounds={rounds}"), format!("connection.congestion={congestion}"));
        // 400 kB each way: more than a part of an update that is worth going on with.
        let overrides = [
            &rounds[..],
            &by,
            "model.name=mlp-2nn",
            "data.max-samples=60",
            "update.precision=f16",
            "round.timeout=600",
            "round.reconnect-grace=60",
            "connection.timeout=10",
        ];
        let testbed = Testbed::new(DEVICES, &overrides);
        let namespaces: Vec<_> = (0..DEVICES as u8).map(Namespace::new).collect();
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, testbed.port()));
        let netem = |(number, namespace): (u64, &Namespace)| {
            Netem::open((namespace.near(), testbed.port()).into(), server, number)
        };
        let netems = (0..).zip(&namespaces).map(netem).collect();
        Self { testbed, namespaces, netems, server: None, devices: Vec::new(), congestion }
    }

    fn start(&self, index: usize) -> Process {
        let namespace = &self.namespaces[index];
        let mut plain =
            self.testbed.join_command(index as u32, &format!("{}:{}", namespace.near(), self.testbed.port()));
        plain.args(["--congestion", self.congestion]);
        let mut command: Command = namespace.command(plain.get_program(), plain.get_args());
        Process::start(&format!("device {index}"), &mut command)
    }

    /// Waits until a device is in the middle of an upload.
    fn until_amid_upload(&mut self, index: usize) {
        const TENTH: u64 = 40_000;
        // Acknowledgements of a model that comes in are a quarter of that.
        let (mut looked, mut before) = (Instant::now(), self.netems[index].sent());
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "no upload is under way");
            assert!(self.server.as_mut().is_some_and(Process::alive), "the run ended before its events");
            std::thread::sleep(Duration::from_millis(10));
            let sent = self.netems[index].sent();
            if sent - before > TENTH {
                return;
            }
            if looked.elapsed() > Duration::from_secs(4) {
                (looked, before) = (Instant::now(), sent);
            }
        }
    }

    fn happens(&mut self, event: Event, conditions: Conditions) {
        match event {
            Event::Moves => {
                self.until_amid_upload(0);
                self.namespaces[0].move_on();
            }
            Event::Partition(time) => {
                self.until_amid_upload(0);
                self.netems[0].set(Conditions { closed: true, ..conditions });
                std::thread::sleep(time);
                self.netems[0].set(conditions);
            }
            Event::KillsDevice => {
                self.until_amid_upload(1);
                self.devices[1].take().expect("it was started").kill();
                self.devices[1] = Some(self.start(1));
            }
            Event::KillsAggregator => {
                self.until_amid_upload(2);
                self.server.take().expect("it was started").kill();
                self.server = Some(self.testbed.serve());
            }
        }
    }
}

/// A run of this number of rounds over this network, where both sides send by this congestion control.
///
/// # Panics
/// If it does not end, or its model is not that of the undisturbed run.
#[must_use]
pub fn run(network: &BadNetwork, rounds: usize, congestion: Congestion) -> Outcome {
    let mut federation = Federation::new(rounds, congestion);
    federation.server = Some(federation.testbed.serve());
    federation.netems.iter().for_each(|netem| netem.set(network.conditions));
    let began = Instant::now();
    federation.devices = (0..DEVICES as usize).map(|index| Some(federation.start(index))).collect();
    for &event in network.events {
        federation.happens(event, network.conditions);
    }
    let devices = federation.devices.drain(..).flatten().collect();
    let server = federation.server.take().expect("it was started");
    federation.testbed.assert_completed_within(PATIENCE, server, devices);
    let sum = |of: fn(&Netem) -> u64| federation.netems.iter().map(of).sum();
    Outcome {
        took: began.elapsed(),
        rounds,
        sent: sum(Netem::sent),
        received: sum(Netem::received),
        moves: sum(Netem::moves),
    }
}
