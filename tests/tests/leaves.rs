//! Several servers that serve one run, with a `PostgreSQL` and devices of the test's own. Any of them may die: the model is the simulation's.
#![cfg(unix)]

use std::fs;
use std::process::Command;

use federation_tests::postgres::Postgres;
use federation_tests::process::{PATIENCE, Process, until};
use federation_tests::programs::programs;
use federation_tests::testbed::{Testbed, free_port};

const KEY: &str = "server.key";

/// A lab with several servers.
struct Lab {
    testbed: Testbed,
    postgres: Postgres,
    ports: Vec<u16>,
}

impl Lab {
    /// `None` without `PostgreSQL`.
    fn new(leaves: usize, clients: u32, overrides: &[&str]) -> Option<Self> {
        let postgres = Postgres::start()?;
        let lab = Self {
            testbed: Testbed::new(clients, overrides),
            postgres,
            ports: (0..leaves).map(|_| free_port()).collect(),
        };
        let made = lab.testbed.serve();
        made.kill();
        fs::remove_dir_all(lab.testbed.path("runs")).expect("nothing has begun");
        for leaf in 0..leaves {
            let identity = lab.testbed.path(&format!("identity-{leaf}"));
            fs::create_dir(&identity).expect("new");
            fs::copy(lab.testbed.path("identity").join(KEY), identity.join(KEY)).expect("one key for all");
        }
        Some(lab)
    }

    fn address(&self, leaf: usize) -> String {
        format!("127.0.0.1:{}", self.ports[leaf])
    }

    fn serve(&self, leaf: usize) -> Process {
        let mut command = Command::new(&programs().aggregator);
        let name = |what: &str| self.testbed.name(&format!("{what}-{leaf}"));
        command.args(["serve", &self.testbed.name("run.toml"), "--json", "--enrolment", "anyone"]);
        command.args([
            "--runs",
            &name("runs"),
            "--listen",
            &self.address(leaf),
            "--identity",
            &name("identity"),
        ]);
        command.args(["--store", &self.postgres.address(), "--drain-timeout", "10"]);
        let mut server = Process::start(&format!("server {leaf}"), &mut command);
        server.line("listening", |line| line.contains("listening on "));
        server
    }

    /// A device that knows all servers, and begins at the one of its number.
    fn join(&self, index: u32) -> Process {
        let count = self.ports.len();
        let addresses: Vec<_> =
            (0..count).map(|leaf| self.address((index as usize + leaf) % count)).collect();
        let mut command = self.testbed.join_command(index, &addresses.join(","));
        Process::start(&format!("device {index}"), &mut command)
    }

    /// The run is over at all servers, with the simulation's model, and all devices know.
    fn assert_completed(&self, servers: Vec<Process>, devices: Vec<Process>) {
        for device in devices {
            let ended = device.wait_within(PATIENCE);
            assert_eq!(ended.code, Some(0), "{}", ended.text);
        }
        let expected = self.testbed.simulated();
        for (leaf, server) in servers.into_iter().enumerate() {
            let ended = server.wait_within(PATIENCE);
            assert_eq!(ended.code, Some(0), "{}", ended.text);
            let runs = self.testbed.path(&format!("runs-{leaf}"));
            let model = self.testbed.run().file_name().map(|name| runs.join(name).join("model.safetensors"));
            let model = fs::read(model.expect("it has a name"))
                .unwrap_or_else(|error| panic!("{error}: {}", ended.text));
            assert!(model == expected, "the model of server {leaf} is not the simulation's");
        }
    }
}

#[test]
fn three_servers_make_the_model_of_one() {
    let Some(lab) = Lab::new(3, 6, &["run.rounds=4"]) else { return };
    let servers: Vec<_> = (0..3).map(|leaf| lab.serve(leaf)).collect();
    let devices: Vec<_> = (0..6).map(|index| lab.join(index)).collect();
    lab.assert_completed(servers, devices);
}

#[test]
fn whichever_of_the_servers_is_killed_the_run_goes_on() {
    let Some(mut lab) = Lab::new(3, 6, &["run.rounds=30", "data.max-samples=600"]) else { return };
    let mut servers: Vec<_> = (0..3).map(|leaf| lab.serve(leaf)).collect();
    let devices: Vec<_> = (0..6).map(|index| lab.join(index)).collect();
    let closed = |lab: &Lab| -> i32 {
        let rounds = lab.postgres.client().query_one("SELECT max(rounds) FROM experiment_runs", &[]);
        rounds.ok().and_then(|row| row.get(0)).unwrap_or(0)
    };
    for turn in 0..6 {
        let before = closed(&lab);
        until("a round has closed", || closed(&lab) > before);
        if turn == 3 {
            lab.postgres.kill();
            lab.postgres.restart();
            continue;
        }
        // The root is the one that led last, at some turns.
        let leaf = turn % 3;
        let former =
            std::mem::replace(&mut servers[leaf], Process::start("nothing", &mut Command::new("true")));
        former.kill();
        servers[leaf] = lab.serve(leaf);
    }
    lab.assert_completed(servers, devices);
}
