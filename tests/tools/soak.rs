//! Endurance: many client processes, killed at random all the time.

use std::time::{Duration, Instant};

use clap::Args;
use federation_tests::proc::memory;
use federation_tests::process::{Process, until};
use federation_tests::testbed::Testbed;
use rand::RngExt as _;
use shared::seed::Seed;

/// Runs many client processes on one machine, kills two a second at random, and now and then the aggregator.
///
/// It fails if a round takes longer than it may, if an accepted update is missing in a record, or if a process ends that was
/// not killed. It prints the figures in which leaks would show: memory and open files of the aggregator, over time.
#[derive(Args)]
pub(crate) struct Arguments {
    /// How long.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Client processes.
    #[arg(long, default_value_t = 200)]
    clients: u32,
}

/// Between two kills of a client.
const KILL: Duration = Duration::from_millis(500);
/// Between two kills of the aggregator, at most: a short soak has three.
const KILL_SERVER: Duration = Duration::from_mins(1);
/// Between two lines of figures.
const TELL: Duration = Duration::from_secs(30);
/// No round may take longer: its own limit, what a restart takes, and a machine with too much to do.
const LONGEST: Duration = Duration::from_secs(90);

pub(crate) fn run(&Arguments { minutes, clients }: &Arguments) {
    let time = Duration::from_secs_f64(60.0 * minutes);
    let kill_server = KILL_SERVER.min(time / 4);
    let few = clients.div_ceil(20);
    let overrides = [
        "run.rounds=1000000".to_owned(),
        format!("data.max-samples={}", 20 * clients),
        format!("round.min-clients-to-start={}", clients / 2),
        format!("round.min-updates={few}"),
        "round.fraction=0.2".to_owned(),
        "round.timeout=10".to_owned(),
        "connection.heartbeat=2".to_owned(),
        "connection.timeout=6".to_owned(),
    ];
    let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
    let testbed = Testbed::new(clients, &overrides);
    let mut chance = Seed::root(1).derive("soak").rng();
    let mut server = testbed.serve();
    let mut devices: Vec<Process> = (0..clients).map(|index| testbed.join(index)).collect();
    until("the first round is closed", || testbed.closed() > 0);
    let began = Instant::now();
    let (mut told, mut served, mut closed, mut closed_at) = (began, began, 0, began);
    let (mut kills, mut server_kills, mut longest) = (0, 0, Duration::ZERO);
    println!(
        "{:>6} {:>7} {:>7} {:>8} {:>12} {:>11}",
        "time", "rounds", "kills", "restarts", "memory", "open files"
    );
    while began.elapsed() < time {
        std::thread::park_timeout(KILL);
        let index = chance.random_range(0..devices.len());
        // Its state directory is free again once it has ended.
        devices.remove(index).kill();
        devices.insert(index, testbed.join(index as u32));
        kills += 1;
        if served.elapsed() > kill_server {
            served = Instant::now();
            server.kill();
            server = testbed.serve();
            server_kills += 1;
        }
        let rounds = testbed.closed();
        if rounds > closed {
            (closed, closed_at) = (rounds, Instant::now());
        }
        longest = longest.max(closed_at.elapsed());
        assert!(longest < LONGEST, "round {} is stuck for {longest:?}", closed + 1);
        assert!(server.alive(), "the aggregator has ended");
        if told.elapsed() > TELL {
            told = Instant::now();
            let resident = memory(server.id(), "VmRSS").unwrap_or(0) as f64 / 1e6;
            let seconds = began.elapsed().as_secs();
            println!(
                "{seconds:>4} s {closed:>7} {kills:>7} {server_kills:>8} {resident:>9.1} MB {:>11}",
                open_files(server.id())
            );
        }
    }
    for (round, record) in (1..).zip(testbed.rounds()) {
        assert_eq!(record.round, round, "a round is missing");
    }
    println!(
        "{closed} rounds, {kills} clients and {server_kills} aggregators killed; no more than {:.1} s without a closed round",
        longest.as_secs_f64()
    );
}

fn open_files(process: u32) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).map_or(0, Iterator::count)
}
