//! A federation of processes: one folder with the configuration, every device's data and state, and the runs.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use aggregator::round::{RoundRecord, jsonl};
use serde_json::Value;
use shared::data::idx::Idx;
use shared::data::{ReadOptions, SampleFormat as _, Samples, Split};
use shared::id::ClientId;
use shared::identity::PublicKey;

use crate::gate::Gate;
use crate::keys::device_key;
use crate::process::{Ended, PATIENCE, Process, run, until};
use crate::programs::programs;
use crate::scenario::Scenario;

/// Below the ports that systems give to sockets which ask for any: while an aggregator is down, no client's
/// own socket takes its port.
const PORTS: std::ops::Range<u16> = 10_000..16_000;

/// A folder with all that a federation of processes needs. Devices have the identities of simulated clients,
/// so the model must be the simulation's, byte for byte.
pub struct Testbed {
    folder: tempfile::TempDir,
    scenario: Scenario,
    port: u16,
    /// Where the aggregator listens.
    listen: Ipv4Addr,
}

impl Testbed {
    /// A federation as [`Scenario::small`] that waits for each of its clients in every round; `overrides` as
    /// on the command line. Clients that vanish are noticed after two seconds.
    ///
    /// # Panics
    /// If the folder cannot be made.
    #[must_use]
    pub fn new(clients: u32, overrides: &[&str]) -> Self {
        let sizes = [format!("data.clients={clients}"), format!("round.min-updates={clients}")];
        let mut all = vec!["connection.heartbeat=0.5", "connection.timeout=2"];
        all.extend(sizes.iter().map(String::as_str));
        all.extend(overrides);
        let scenario = Scenario::of_devices(&all);
        let folder = tempfile::tempdir().expect("the system has a place for temporary files");
        let testbed = Self { folder, scenario, port: free_port(), listen: Ipv4Addr::LOCALHOST };
        fs::write(testbed.path("run.toml"), testbed.scenario.config.effective.to_toml()).expect("written");
        let (config, data) = (testbed.name("run.toml"), testbed.name("data"));
        let split = run(&programs().aggregator, &["data", "split", &config, "--out", &data]);
        assert_eq!(split.code, Some(0), "{}", split.text);
        for index in 0..clients {
            fs::create_dir(testbed.state(index)).expect("created");
            let digits = device_key(index).digits();
            fs::write(testbed.state(index).join("identity"), format!("{digits}\n")).expect("written");
        }
        testbed
    }

    /// The same, whose aggregator listens at all addresses.
    #[must_use]
    pub fn listening_everywhere(self) -> Self {
        Self { listen: Ipv4Addr::UNSPECIFIED, ..self }
    }

    /// The same, whose aggregator listens at another port from now on.
    #[must_use]
    pub fn moved(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// A path in the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same, as an argument.
    #[must_use]
    pub fn name(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Gives a device its training samples as one image each, in their order, in place of one file of all; their labels stay.
    ///
    /// # Panics
    /// If the device has no such file, or it cannot be written.
    pub fn give_images(&self, index: u32) {
        let set = Idx.load(&self.data(index), Split::Train, &ReadOptions::unlabelled()).expect("images");
        let Samples::Bytes(pixels) = set.samples() else { panic!("images are bytes") };
        for (number, image) in pixels.chunks(28 * 28).enumerate() {
            let image = image::GrayImage::from_raw(28, 28, image.to_vec()).expect("28 by 28");
            image.save(self.data(index).join(format!("{number:05}.png"))).expect("written");
        }
        fs::remove_file(self.data(index).join("train-images-idx3-ubyte")).expect("there");
    }

    /// What a program that keeps this model loaded answers to one request.
    ///
    /// # Panics
    /// If it cannot be asked.
    #[cfg(unix)]
    #[must_use]
    pub fn asked(&self, model: &str, request: &str) -> String {
        use std::io::{BufRead as _, BufReader, Write as _};
        use std::os::unix::net::UnixStream;

        let socket = self.name("socket");
        let mut serving = Command::new(&programs().edge_client);
        serving.args(["predict", "--model", model, "--listen", &format!("unix:{socket}")]);
        let serving = Process::start("edge-client", &mut serving);
        until("the socket", || UnixStream::connect(&socket).is_ok());
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        stream.write_all(format!("{request}\n").as_bytes()).expect("it reads");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("it answers");
        serving.interrupt();
        let _ = serving.wait();
        line
    }

    /// The port on which the aggregator listens.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where devices of the same machine find the aggregator.
    #[must_use]
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The identity of a device.
    #[must_use]
    pub fn client(&self, index: u32) -> ClientId {
        self.scenario.config.client(index)
    }

    /// The state directory of a device.
    #[must_use]
    pub fn state(&self, index: u32) -> PathBuf {
        self.path(&format!("state-{index}"))
    }

    /// The directory of the run.
    #[must_use]
    pub fn run(&self) -> PathBuf {
        self.path("runs").join(&self.scenario.config.spec.name)
    }

    /// The model that the run has left, as a file's bytes.
    ///
    /// # Panics
    /// If it has left none.
    #[must_use]
    pub fn model(&self) -> Vec<u8> {
        model_in(&self.run())
    }

    /// Starts the aggregator and waits until devices can join. The command is the same every time.
    ///
    /// # Panics
    /// If it does not come so far.
    #[must_use]
    pub fn serve(&self) -> Process {
        self.serve_as("identity")
    }

    /// The same, with more arguments.
    ///
    /// # Panics
    /// As [`serve`](Self::serve).
    #[must_use]
    pub fn serve_with(&self, more: &[&str]) -> Process {
        self.start_serving("identity", more)
    }

    /// The same, with another directory for the server's key.
    ///
    /// # Panics
    /// As [`serve`](Self::serve).
    #[must_use]
    pub fn serve_as(&self, identity: &str) -> Process {
        self.start_serving(identity, &[])
    }

    /// Starts the aggregator where it cannot serve: it ends by itself.
    #[must_use]
    pub fn try_to_serve(&self) -> Process {
        Process::start("the aggregator", &mut self.serve_command("identity", &[]))
    }

    fn serve_command(&self, identity: &str, more: &[&str]) -> Command {
        let mut command = Command::new(&programs().aggregator);
        command.arg("serve").args(self.serve_arguments(identity)).args(more);
        if !more.contains(&"--enrolment") {
            command.args(["--enrolment", "anyone"]);
        }
        command
    }

    fn start_serving(&self, identity: &str, more: &[&str]) -> Process {
        let ready = self.path("ready.json");
        let _ = fs::remove_file(&ready);
        let mut server = Process::start("the aggregator", &mut self.serve_command(identity, more));
        server.line("listening", |line| line.contains("listening on "));
        until("the aggregator has written its ready file", || ready.exists());
        server
    }

    /// The arguments of `aggregator serve`.
    #[must_use]
    pub fn serve_arguments(&self, identity: &str) -> Vec<String> {
        let listen = format!("{}:{}", self.listen, self.port);
        let given = [("--runs", self.name("runs")), ("--listen", listen)];
        let files = [("--ready-file", self.name("ready.json")), ("--identity", self.name(identity))];
        let options = given.into_iter().chain(files).flat_map(|(option, value)| [option.to_owned(), value]);
        let flags = [self.name("run.toml"), "--json".to_owned()];
        flags.into_iter().chain(options).collect()
    }

    /// What the aggregator says in its ready file.
    ///
    /// # Panics
    /// If it has not written it.
    #[must_use]
    pub fn ready(&self) -> Value {
        let text = fs::read_to_string(self.path("ready.json")).expect("the aggregator is ready");
        serde_json::from_str(&text).expect("the ready file is JSON")
    }

    /// The server's key.
    ///
    /// # Panics
    /// If the aggregator was never ready.
    #[must_use]
    pub fn key(&self) -> PublicKey {
        let ready = self.ready();
        ready["key"].as_str().and_then(|key| key.parse().ok()).expect("a key of 64 digits")
    }

    /// Starts a device. It believes the first server that it meets.
    #[must_use]
    pub fn join(&self, index: u32) -> Process {
        self.join_with(index, &[])
    }

    /// The same, with more arguments.
    #[must_use]
    pub fn join_with(&self, index: u32, more: &[&str]) -> Process {
        Process::start(&format!("device {index}"), self.join_command(index, &self.address()).args(more))
    }

    /// The command that starts a device which finds the aggregator at this address.
    #[must_use]
    pub fn join_command(&self, index: u32, address: &str) -> Command {
        let mut command = Command::new(&programs().edge_client);
        command.args(["join", address, "--json", "--threads", "1"]);
        command.arg("--data").arg(self.data(index)).arg("--state").arg(self.state(index));
        command
    }

    /// The data directory of a device.
    #[must_use]
    pub fn data(&self, index: u32) -> PathBuf {
        self.path(&format!("data/client-{index:03}"))
    }

    /// Joins a device in this process, whose training waits.
    #[must_use]
    pub fn gate(&self, index: u32) -> Gate {
        self.gate_at(index, self.address())
    }

    /// The same, at the aggregator of this address.
    #[must_use]
    pub fn gate_at(&self, index: u32, address: String) -> Gate {
        let share = self.scenario.shares[index as usize].clone();
        Gate::join(address, self.key(), &device_key(index), share)
    }

    /// Number of devices.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.scenario.shares.len()
    }

    /// The model that `aggregator simulate` makes of the same configuration, as a file's bytes.
    ///
    /// # Panics
    /// If it makes none.
    #[must_use]
    pub fn simulated(&self) -> Vec<u8> {
        let (config, runs) = (self.name("run.toml"), self.name("simulated"));
        let simulated =
            run(&programs().aggregator, &["simulate", &config, "--runs", &runs, "--threads", "1"]);
        assert_eq!(simulated.code, Some(0), "{}", simulated.text);
        model_in(&self.path("simulated").join(&self.scenario.config.spec.name))
    }

    /// The rounds of the run that [`simulated`](Self::simulated) made.
    ///
    /// # Panics
    /// If it was not called.
    #[must_use]
    pub fn simulated_rounds(&self) -> Vec<RoundRecord> {
        rounds_in(&self.path("simulated").join(&self.scenario.config.spec.name))
    }

    /// The run is over with the simulation's model, and every device knows.
    ///
    /// # Panics
    /// If not.
    pub fn assert_completed(&self, server: Process, devices: Vec<Process>) {
        self.assert_completed_within(PATIENCE, server, devices);
    }

    /// The same, with more patience.
    ///
    /// # Panics
    /// If not.
    pub fn assert_completed_within(&self, patience: Duration, server: Process, devices: Vec<Process>) {
        let rounds = self.scenario.config.spec.rounds;
        let clients = self.clients();
        let server = server.wait_within(patience);
        assert_eq!(server.code, Some(0), "{}", server.text);
        for device in devices {
            let Ended { code, text } = device.wait_within(patience);
            assert_eq!(code, Some(0), "{text}");
            let last: Value = serde_json::from_str(text.lines().last().unwrap_or_default()).expect("JSON");
            assert_eq!(last, serde_json::json!({ "event": "completed", "rounds": rounds }), "{text}");
        }
        let records = self.rounds();
        let accepted: Vec<_> = records.iter().map(|record| (record.round, record.accepted)).collect();
        assert_eq!(accepted, (1..=rounds).map(|round| (round, clients)).collect::<Vec<_>>());
        assert!(self.model() == self.simulated(), "the model is not the simulation's");
        assert!(self.run().join("report.html").is_file());
    }

    /// How many rounds are closed.
    #[must_use]
    pub fn closed(&self) -> usize {
        fs::read_to_string(self.run().join("rounds.jsonl")).map_or(0, |text| text.lines().count())
    }

    /// The closed rounds.
    ///
    /// # Panics
    /// If `rounds.jsonl` cannot be read.
    #[must_use]
    pub fn rounds(&self) -> Vec<RoundRecord> {
        rounds_in(&self.run())
    }
}

/// The closed rounds of the run in this folder.
///
/// # Panics
/// If `rounds.jsonl` cannot be read.
#[must_use]
pub fn rounds_in(run: &Path) -> Vec<RoundRecord> {
    let text = fs::read_to_string(run.join("rounds.jsonl")).expect("a round was closed");
    jsonl::read(&text).expect("whole lines").records
}

/// The model, or the ensemble in its place.
fn model_in(run: &Path) -> Vec<u8> {
    let ensemble = run.join("ensemble.safetensors");
    let path = if ensemble.is_file() { ensemble } else { run.join("model.safetensors") };
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A free port, which no other test of this process will be given.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Suites that run at the same time, often with neighbouring numbers, begin at ports that are far apart.
    let begin = (std::process::id() as u16).wrapping_mul(97);
    for _ in PORTS {
        let offset = begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % PORTS.len() as u16;
        let port = PORTS.start + offset;
        let free = |port| {
            UdpSocket::bind(("127.0.0.1", port)).is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok()
        };
        if free(port) {
            return port;
        }
    }
    panic!("no port from {PORTS:?} is free");
}
