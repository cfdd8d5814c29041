//! Real processes for measurements: an aggregator that serves, clients that join, and what they cost.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use aggregator::transport::identity::KEY_FILE;

use crate::proc::memory;
use crate::programs::programs;
use crate::testbed::free_port;

/// A child process that does not outlive its owner.
pub struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        Self(command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}")))
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// See [`memory`].
    #[must_use]
    pub fn memory(&self, field: &str) -> Option<u64> {
        memory(self.0.id(), field)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An aggregator that serves a run, and where to join it.
pub struct Serving {
    /// The process.
    pub process: Process,
    address: String,
    lines: BufReader<ChildStdout>,
}

impl Serving {
    /// `aggregator serve --json` with these overrides, its runs below `directory`.
    ///
    /// # Panics
    /// If it does not get ready.
    #[must_use]
    pub fn start(directory: &Path, overrides: &[String]) -> Self {
        Self::start_admitting(directory, overrides, "anyone")
    }

    /// The same, with a policy for devices that the server does not know.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_admitting(directory: &Path, overrides: &[String], admit: &str) -> Self {
        let how = ["--fresh", "--listen", "127.0.0.1:0", "--enrolment", admit];
        Self::start_as(directory, overrides, &how)
    }

    /// As one of the servers of a run over the store of this address.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_sharing(directory: &Path, overrides: &[String], store: &str) -> Self {
        let listen = format!("127.0.0.1:{}", free_port());
        Self::start_as(
            directory,
            overrides,
            &["--store", store, "--listen", &listen, "--enrolment", "anyone"],
        )
    }

    /// As this many servers of a run over the store of this address, with one key, each with a directory of its own.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_several(directory: &Path, overrides: &[String], store: &str, servers: usize) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        let identity = |server: usize| directory.join(format!("server-{server}/identity"));
        for server in 0..servers {
            if server > 0 {
                std::fs::create_dir_all(identity(server)).expect("the directory can be made");
                std::fs::copy(identity(0).join(KEY_FILE), identity(server).join(KEY_FILE))
                    .expect("the first made it");
            }
            let place = directory.join(format!("server-{server}"));
            all.push(Self::start_sharing(&place, overrides, store));
        }
        all
    }

    fn start_as(directory: &Path, overrides: &[String], how: &[&str]) -> Self {
        std::fs::create_dir_all(directory).expect("the directory can be made");
        let ready = directory.join("ready.json");
        let _ = std::fs::remove_file(&ready);
        let mut command = Command::new(&programs().aggregator);
        command.args(["serve", "--json", "--ready-file"]).arg(&ready).args(how);
        command.arg("--runs").arg(directory.join("runs"));
        command.arg("--identity").arg(directory.join("identity"));
        for change in overrides {
            command.args(["--set", change]);
        }
        let mut process = Process::start(command.stdout(Stdio::piped()).stderr(Stdio::null()));
        let deadline = Instant::now() + Duration::from_mins(1);
        while !ready.is_file() {
            assert!(Instant::now() < deadline, "the aggregator did not get ready");
            let ended = process.0.try_wait().expect("a child can be asked");
            assert!(ended.is_none(), "the aggregator ended: {ended:?}");
            std::thread::yield_now();
        }
        let json = std::fs::read_to_string(&ready).expect("the ready file was written");
        let json: serde_json::Value = serde_json::from_str(&json).expect("the ready file is JSON");
        let address = json["address"].as_str().expect("it names the address").to_owned();
        let lines = BufReader::new(process.0.stdout.take().expect("it was piped"));
        Self { process, address, lines }
    }

    /// Where to join it.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The next closed round's line, and when it came; `None` when the run is over.
    pub fn next_round(&mut self) -> Option<(Instant, serde_json::Value)> {
        let mut line = String::new();
        self.lines.read_line(&mut line).ok().filter(|length| *length > 0)?;
        Some((Instant::now(), serde_json::from_str(&line).ok()?))
    }

    /// `edge-client join` of a client that is started like this, number `index`, with the data and a state directory of that
    /// number below `directory`.
    ///
    /// # Panics
    /// If there is no word in `client`.
    #[must_use]
    pub fn command(&self, client: &[OsString], directory: &Path, index: usize) -> Command {
        let mut command = self.without_data(client, directory, index);
        command.arg("--data").arg(directory.join(format!("data/client-{index:03}")));
        command
    }

    fn without_data(&self, client: &[OsString], directory: &Path, index: usize) -> Command {
        let (program, arguments) = client.split_first().expect("a client is a program at least");
        let mut command = Command::new(program);
        command.args(arguments).args(["join", &self.address]);
        command.arg("--state").arg(directory.join(format!("state-{index}")));
        command
    }

    /// Starts a client whose samples this trainer has.
    ///
    /// # Panics
    /// As [`command`](Self::command).
    #[must_use]
    pub fn join_training_by(
        &self,
        trainer: &str,
        client: &[OsString],
        directory: &Path,
        index: usize,
    ) -> Process {
        let mut command = self.without_data(client, directory, index);
        Process::start(command.args(["--trainer", trainer]).stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// Starts the client of [`command`](Self::command).
    #[must_use]
    pub fn join_as(&self, client: &[OsString], directory: &Path, index: usize) -> Process {
        let mut command = self.command(client, directory, index);
        Process::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// `edge-client join`, number `index`, with the data and a state directory of that number below `directory`.
    #[must_use]
    pub fn join(&self, directory: &Path, index: usize) -> Process {
        self.join_as(&[programs().edge_client.clone().into_os_string()], directory, index)
    }
}

/// `aggregator data split` with these overrides, into `directory/data`.
///
/// # Panics
/// If it fails.
pub fn split_data(directory: &Path, overrides: &[String]) {
    let mut command = Command::new(&programs().aggregator);
    command.args(["data", "split", "--out"]).arg(directory.join("data")).stdout(Stdio::null());
    for change in overrides {
        command.args(["--set", change]);
    }
    assert!(command.status().expect("the aggregator can be started").success(), "{command:?} failed");
}

/// The middle value.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn median(mut values: Vec<f64>) -> f64 {
    assert!(!values.is_empty(), "a median needs a value");
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
