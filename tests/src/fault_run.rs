//! Rows of the table of faults, as runs of real processes: each device in a network namespace of its own, network emulation
//! between it and the aggregator, and the directories of the runs and of one device on small file systems of their own.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;
use shared::congestion::Congestion;

use crate::fault_table::{Amid, Holds, Row, Side, What};
use crate::namespaces::{Mount, Namespace, succeeds};
use crate::netem::{Conditions, Netem};
use crate::process::{Process, until};
use crate::testbed::Testbed;

/// Devices.
const DEVICES: u32 = 3;
/// The one whose state directory is a file system of its own, and that is killed.
const DEVICE_ON_DISK: usize = 1;
/// Bytes of the file system of the runs: all that a run takes here, several times.
const RUNS: usize = 24 << 20;
/// Bytes of that of the device's state.
const STATE: usize = 8 << 20;
/// Longer than anything takes here.
const PATIENCE: Duration = Duration::from_secs(400);

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
    runs: Mount,
    state: Mount,
    /// Where the aggregator waits, in the middle of closing a round.
    pipe: Option<PathBuf>,
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
        let runs = Mount::new(&testbed.path("runs"), RUNS);
        let state = Mount::new(&testbed.state(DEVICE_ON_DISK as u32), STATE);
        let (server, devices, pipe) = (None, Vec::new(), None);
        Self { runs, state, pipe, testbed, namespaces, netems, server, devices, congestion }
    }

    fn start(&self, index: usize) -> Process {
        let namespace = &self.namespaces[index];
        let mut plain =
            self.testbed.join_command(index as u32, &format!("{}:{}", namespace.near(), self.testbed.port()));
        plain.args(["--congestion", self.congestion]);
        let mut command: Command = namespace.command(plain.get_program(), plain.get_args());
        Process::start(&format!("device {index}"), &mut command)
    }

    /// Waits for this moment, of the device of this index.
    fn until_amid(&mut self, amid: Amid, index: usize) {
        match amid {
            Amid::Download => self.until_passes("a download", index, Netem::received),
            // Acknowledgements of a model that comes in are a quarter of that.
            Amid::Upload => self.until_passes("an upload", index, Netem::sent),
            Amid::Training => {
                let round = self.testbed.closed() + 1;
                let device = self.devices[index].as_mut().expect("it was started");
                device.object(&json!({ "event": "training", "round": round }));
            }
            Amid::Closing => self.until_closing(),
        }
    }

    /// Waits until a good part of a payload has passed in a few seconds.
    fn until_passes(&mut self, what: &str, index: usize, passed: fn(&Netem) -> u64) {
        const TENTH: u64 = 40_000;
        let (mut looked, mut before) = (Instant::now(), passed(&self.netems[index]));
        let deadline = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < deadline, "{what} is never under way");
            assert!(self.server.as_mut().is_some_and(Process::alive), "the run ended before its faults");
            std::thread::sleep(Duration::from_millis(10));
            let now = passed(&self.netems[index]);
            if now - before > TENTH {
                return;
            }
            if looked.elapsed() > Duration::from_secs(4) {
                (looked, before) = (Instant::now(), now);
            }
        }
    }

    /// Waits until the aggregator is about to write a model, and holds it there: it waits for a reader of a pipe.
    fn until_closing(&mut self) {
        let round = self.testbed.closed() + 1;
        let pipe = self.testbed.run().join(format!("state/checkpoint-{round:06}.safetensors.partial"));
        succeeds(Command::new("mkfifo").arg(&pipe));
        until("the round has a line", || self.testbed.closed() >= round);
        self.pipe = Some(pipe);
    }

    /// What a fault of the device or of its network concerns: one each, so that faults meet devices that others have left alone.
    fn concerned(what: What) -> usize {
        match what {
            What::Moves | What::Partition(_) => 0,
            What::Kill(Side::Device)
            | What::Suspend(Side::Device, _)
            | What::FullDisk(Side::Device)
            | What::ReadOnly(Side::Device) => DEVICE_ON_DISK,
            What::Kill(Side::Aggregator)
            | What::Suspend(Side::Aggregator, _)
            | What::FullDisk(Side::Aggregator)
            | What::ReadOnly(Side::Aggregator)
            | What::Removed(_) => 2,
        }
    }

    fn happens(&mut self, what: What, amid: Amid, conditions: Conditions) {
        self.until_amid(amid, Self::concerned(what));
        match what {
            What::Moves => self.namespaces[0].move_on(),
            What::Partition(time) => {
                self.netems[0].set(Conditions { closed: true, ..conditions });
                std::thread::sleep(time);
                self.netems[0].set(conditions);
            }
            What::Kill(side) => {
                self.kill(side);
                self.restart(side);
            }
            What::Suspend(side, time) => {
                let process = self.process(side).id().to_string();
                succeeds(Command::new("kill").args(["-STOP", &process]));
                std::thread::sleep(time);
                succeeds(Command::new("kill").args(["-CONT", &process]));
            }
            What::FullDisk(side) => {
                self.mount(side).fill();
                match side {
                    Side::Aggregator => self.process(side).line("that the disk is full", |line| {
                        line.contains("The run pauses, and goes on by itself once there is room")
                    }),
                    Side::Device => {
                        self.process(side).line("that the disk is full", |line| line.contains("no-room"))
                    }
                };
                self.mount(side).empty();
            }
            What::ReadOnly(side) => {
                self.kill(side);
                self.mount(side).remount("ro");
                let ended = match side {
                    Side::Aggregator => self.testbed.try_to_serve(),
                    Side::Device => self.start(DEVICE_ON_DISK),
                };
                let ended = ended.wait();
                assert_eq!(ended.code, Some(3), "{}", ended.text);
                assert!(ended.text.contains("Read-only file system"), "{}", ended.text);
                self.mount(side).remount("rw");
                self.restart(side);
            }
            What::Removed(folder) => {
                let removed = self.testbed.run().join(folder);
                fs::remove_dir_all(&removed).or_else(|_| fs::remove_dir_all(&removed)).expect("it is there");
            }
        }
    }

    fn process(&mut self, side: Side) -> &mut Process {
        let process = match side {
            Side::Aggregator => &mut self.server,
            Side::Device => &mut self.devices[DEVICE_ON_DISK],
        };
        process.as_mut().expect("it was started")
    }

    fn mount(&self, side: Side) -> &Mount {
        match side {
            Side::Aggregator => &self.runs,
            Side::Device => &self.state,
        }
    }

    fn kill(&mut self, side: Side) {
        let process = match side {
            Side::Aggregator => self.server.take(),
            Side::Device => self.devices[DEVICE_ON_DISK].take(),
        };
        process.expect("it was started").kill();
        if let Some(pipe) = self.pipe.take() {
            fs::remove_file(pipe).expect("it is there");
        }
    }

    fn restart(&mut self, side: Side) {
        match side {
            Side::Aggregator => self.server = Some(self.testbed.serve()),
            Side::Device => self.devices[DEVICE_ON_DISK] = Some(self.start(DEVICE_ON_DISK)),
        }
    }

    /// The aggregator has ended with this word, and every device waits for it.
    fn assert_told(mut self, says: &str) {
        let ended = self.server.take().expect("it was started").wait_within(PATIENCE);
        assert_eq!(ended.code, Some(3), "{}", ended.text);
        assert!(ended.text.contains(says), "{says:?} is not in:\n{}", ended.text);
        assert!(!ended.text.contains("panicked"), "{}", ended.text);
        assert!(!ended.text.contains("what is on disk is safe"), "{}", ended.text);
        self.devices.drain(..).flatten().for_each(Process::kill);
    }
}

/// A row of the table with this number of rounds, where both sides send by this congestion control.
///
/// # Panics
/// If what must hold does not.
#[must_use]
pub fn run(row: &Row, rounds: usize, congestion: Congestion) -> Outcome {
    let mut federation = Federation::new(rounds, congestion);
    federation.server = Some(federation.testbed.serve());
    federation.netems.iter().for_each(|netem| netem.set(row.conditions));
    let began = Instant::now();
    federation.devices = (0..DEVICES as usize).map(|index| Some(federation.start(index))).collect();
    for &(what, amid) in row.faults {
        federation.happens(what, amid, row.conditions);
    }
    let sum = |federation: &Federation, of: fn(&Netem) -> u64| federation.netems.iter().map(of).sum();
    match row.holds {
        Holds::SameBytes => {
            let devices = federation.devices.drain(..).flatten().collect();
            let server = federation.server.take().expect("it was started");
            federation.testbed.assert_completed_within(PATIENCE, server, devices);
            Outcome {
                took: began.elapsed(),
                rounds,
                sent: sum(&federation, Netem::sent),
                received: sum(&federation, Netem::received),
                moves: sum(&federation, Netem::moves),
            }
        }
        Holds::Told(says) => {
            let [sent, received, moves] =
                [Netem::sent, Netem::received, Netem::moves].map(|of| sum(&federation, of));
            federation.assert_told(says);
            Outcome { took: began.elapsed(), rounds: 0, sent, received, moves }
        }
    }
}
