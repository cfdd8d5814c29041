//! A lab whose servers serve one run together, with a `PostgreSQL` of the test's own.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use aggregator::leaves::shown::folder_of;
use aggregator::round::RoundRecord;
use aggregator::transport::identity::KEY_FILE;

use crate::gate::Gate;
use crate::postgres::Postgres;
use crate::process::{Ended, PATIENCE, Process, run};
use crate::programs::programs;
use crate::testbed::{Testbed, free_port, rounds_in};

/// A lab with several servers.
pub struct ClusterTestbed {
    /// Its devices and its run.
    pub testbed: Testbed,
    /// What the servers share.
    pub postgres: Postgres,
    ports: Vec<u16>,
}

/// Who leads the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// The number of the server.
    pub server: usize,
    /// The epoch of its lease.
    pub epoch: i64,
}

impl ClusterTestbed {
    /// A lab of this many servers and devices, of which none runs yet. `None` without `PostgreSQL`.
    ///
    /// # Panics
    /// If it cannot be set up.
    #[must_use]
    pub fn new(servers: usize, devices: u32, overrides: &[&str]) -> Option<Self> {
        let postgres = Postgres::start()?;
        let ports = (0..servers).map(|_| free_port()).collect();
        let lab = Self { testbed: Testbed::new(devices, overrides), postgres, ports };
        // A server of its own makes the key that all have.
        lab.testbed.serve().kill();
        fs::remove_dir_all(lab.testbed.path("runs")).expect("nothing has begun");
        for server in 0..servers {
            let identity = lab.testbed.path(&format!("identity-{server}"));
            fs::create_dir(&identity).expect("new");
            fs::copy(lab.testbed.path("identity").join(KEY_FILE), identity.join(KEY_FILE))
                .expect("one key for all");
        }
        Some(lab)
    }

    /// Number of servers.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.ports.len()
    }

    /// Where a server is reached.
    #[must_use]
    pub fn address(&self, server: usize) -> String {
        format!("127.0.0.1:{}", self.ports[server])
    }

    /// The folder of a server's runs.
    #[must_use]
    pub fn runs(&self, server: usize) -> PathBuf {
        self.testbed.path(&format!("runs-{server}"))
    }

    /// The run as a server has it.
    ///
    /// # Panics
    /// Never: a run has a name.
    #[must_use]
    pub fn run(&self, server: usize) -> PathBuf {
        self.runs(server).join(self.testbed.run().file_name().expect("it has a name"))
    }

    /// What a server has of the run for its own devices: their accepted updates.
    ///
    /// # Panics
    /// Never: a run has a name.
    #[must_use]
    pub fn leaf(&self, server: usize) -> PathBuf {
        let run = self.run(server);
        let name = run.file_name().expect("it has a name").to_string_lossy();
        folder_of(&self.runs(server), &name)
    }

    /// Starts a server, and waits until it listens.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    pub fn serve(&self, server: usize) -> Process {
        let mut process = Process::start(&format!("server {server}"), &mut self.serve_command(server));
        process.line("listening", |line| line.contains("listening on "));
        process
    }

    /// Starts a server that also simulates its part of the devices.
    #[must_use]
    pub fn simulate(&self, server: usize) -> Process {
        let mut process = self.simulate_part(server, server + 1);
        process.line("listening", |line| line.contains("listening on "));
        process
    }

    /// The same with this part of them, from 1, without waiting.
    #[must_use]
    pub fn simulate_part(&self, server: usize, part: usize) -> Process {
        let part = format!("{part}/{}", self.servers());
        let mut command = self.serve_command(server);
        Process::start(&format!("server {server}"), command.args(["--simulate", &part]))
    }

    /// What starts a server.
    #[must_use]
    pub fn serve_command(&self, server: usize) -> Command {
        let mut command = Command::new(&programs().aggregator);
        command.args(["serve", &self.testbed.name("run.toml"), "--json", "--enrolment", "anyone"]);
        command.arg("--runs").arg(self.runs(server)).args(["--listen", &self.address(server)]);
        command.args(["--identity", &self.testbed.name(&format!("identity-{server}"))]);
        command.args(["--store", &self.postgres.address(), "--drain-timeout", "10"]);
        command
    }

    /// What `aggregator status` says at a server.
    #[must_use]
    pub fn status(&self, server: usize) -> Ended {
        self.status_as(server, &[])
    }

    /// The same with these options.
    #[must_use]
    pub fn status_as(&self, server: usize, options: &[&str]) -> Ended {
        let (runs, identity) = (self.runs(server), self.testbed.path(&format!("identity-{server}")));
        let folders = [runs.display().to_string(), identity.display().to_string()];
        let place = ["status", "--runs", &folders[0], "--identity", &folders[1]];
        run(&programs().aggregator, &[&place[..], options].concat())
    }

    /// Starts a device that knows all servers. Where it begins follows from its key.
    #[must_use]
    pub fn join(&self, device: u32) -> Process {
        let addresses: Vec<_> = (0..self.servers()).map(|server| self.address(server)).collect();
        let mut command = self.testbed.join_command(device, &addresses.join(","));
        Process::start(&format!("device {device}"), &mut command)
    }

    /// Joins a device at one server, in this process, whose training waits.
    #[must_use]
    pub fn gate(&self, device: u32, server: usize) -> Gate {
        self.testbed.gate_at(device, self.address(server))
    }

    /// How many rounds are closed, as the store has it; `None` while it is away.
    #[must_use]
    pub fn closed(&self) -> Option<u32> {
        let row =
            self.postgres.try_client()?.query_one("SELECT max(rounds) FROM experiment_runs", &[]).ok()?;
        u32::try_from(row.get::<_, Option<i32>>(0).unwrap_or(0)).ok()
    }

    /// Whether the store has the end of the run.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let over = |mut client: postgres::Client| {
            client
                .query_one("SELECT bool_and(ended) FROM experiment_runs", &[])
                .ok()?
                .get::<_, Option<bool>>(0)
        };
        self.postgres.try_client().and_then(over) == Some(true)
    }

    /// Who leads the run; `None` while it is not known.
    #[must_use]
    pub fn root(&self) -> Option<Root> {
        let mut client = self.postgres.try_client()?;
        let row = client.query_opt("SELECT worker, epoch FROM experiment_runs", &[]).ok()??;
        let (worker, epoch) = (row.get::<_, Option<String>>(0)?, row.get(1));
        let server = (0..self.servers()).find(|server| self.address(*server) == worker)?;
        Some(Root { server, epoch })
    }

    /// Has the store note each closing of a round that it takes: see [`closings`](Self::closings).
    ///
    /// # Panics
    /// If no server has made the tables yet.
    pub fn note_closings(&self) {
        let statements = "CREATE TABLE closings (number bigserial, was integer, epoch bigint);
             CREATE FUNCTION note_closing() RETURNS trigger LANGUAGE plpgsql AS
                 'BEGIN INSERT INTO closings (was, epoch) VALUES (NEW.rounds, NEW.epoch); RETURN NULL; END';
             CREATE TRIGGER note_closing AFTER UPDATE OF rounds ON experiment_runs FOR EACH ROW
                 WHEN (OLD.rounds <> NEW.rounds) EXECUTE FUNCTION note_closing();";
        self.postgres.client().batch_execute(statements).expect("the tables are there");
    }

    /// The rounds whose closing the store has taken since, in this order.
    ///
    /// # Panics
    /// If the store does not answer.
    #[must_use]
    pub fn closings(&self) -> Vec<i32> {
        let rows = self.postgres.client().query("SELECT was FROM closings ORDER BY number", &[]);
        rows.expect("it was made").iter().map(|row| row.get(0)).collect()
    }

    /// The run is over at all servers, with the simulation's model and each round once with all devices, and all devices know.
    ///
    /// # Panics
    /// If not.
    pub fn assert_completed(&self, servers: Vec<Process>, devices: Vec<Process>) {
        self.assert_completed_within(PATIENCE, servers, devices);
    }

    /// The same, with more patience.
    ///
    /// # Panics
    /// If not.
    pub fn assert_completed_within(&self, patience: Duration, servers: Vec<Process>, devices: Vec<Process>) {
        let count = self.testbed.clients();
        for device in devices {
            let ended = device.wait_within(patience);
            assert_eq!(ended.code, Some(0), "{}", ended.text);
        }
        let expected = self.testbed.simulated();
        let simulated = self.testbed.simulated_rounds();
        for (number, server) in servers.into_iter().enumerate() {
            let ended = server.wait_within(patience);
            assert_eq!(ended.code, Some(0), "{}", ended.text);
            let run = self.run(number);
            let model = fs::read(run.join("model.safetensors"))
                .unwrap_or_else(|error| panic!("{error}: {}", ended.text));
            assert!(model == expected, "the model of server {number} is not the simulation's");
            let rounds: Vec<_> =
                rounds_in(&run).iter().map(|record| (record.round, record.accepted)).collect();
            let all = |record: &RoundRecord| (record.round, count);
            assert_eq!(
                rounds,
                simulated.iter().map(all).collect::<Vec<_>>(),
                "the rounds of server {number}"
            );
        }
    }
}
