//! Endurance of several servers of one run: all processes, and the database, die at random all the time; or the root stands still.

use std::time::{Duration, Instant};

use aggregator::leaves::standing::LEASE;
use clap::Args;
use federation_tests::cluster_testbed::ClusterTestbed;
use federation_tests::process::{Process, until};
use rand::RngExt as _;
use shared::seed::Seed;

/// Serves one run with several servers over a store, kills one of all processes at random, again and again, and compares the model
/// with that of a simulation.
///
/// It fails if no round closes for longer than it may, if a round closes twice or without a device, or if the model is another one.
/// With --freezes the servers that lead are stopped for two leases or longer instead, one after the other.
#[derive(Args)]
pub(crate) struct Arguments {
    /// For how long processes are killed.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Rounds of the run, which goes on to its end without kills.
    #[arg(long, default_value_t = 8000)]
    rounds: u32,
    /// Servers.
    #[arg(long, default_value_t = 3)]
    servers: usize,
    /// Client processes.
    #[arg(long, default_value_t = 40)]
    clients: u32,
    /// Stop the root this often, in place of kills.
    #[arg(long)]
    freezes: Option<u32>,
}

/// Between two kills.
const KILL: Duration = Duration::from_secs(2);
/// Between two lines of figures.
const TELL: Duration = Duration::from_secs(30);
/// The longest time without a closed round while processes are killed.
const LONGEST: Duration = Duration::from_secs(15);
/// The same while servers that lead are stopped for two leases and longer.
const LONGEST_FROZEN: Duration = Duration::from_mins(1);
/// For the end of the run.
const PATIENCE: Duration = Duration::from_mins(20);

/// How the rounds get on.
struct Watch {
    began: Instant,
    told: Instant,
    closed: u32,
    closed_at: Instant,
    longest: Duration,
    /// The longest that it may be.
    bound: Duration,
    kills: u32,
}

impl Watch {
    fn new(bound: Duration) -> Self {
        let now = Instant::now();
        let longest = Duration::ZERO;
        Self { began: now, told: now, closed: 0, closed_at: now, longest, bound, kills: 0 }
    }

    fn look(&mut self, closed: Option<u32>) {
        if let Some(rounds) = closed.filter(|rounds| *rounds > self.closed) {
            self.longest = self.longest.max(self.closed_at.elapsed());
            (self.closed, self.closed_at) = (rounds, Instant::now());
        }
        let waits = self.closed_at.elapsed();
        assert!(waits < self.bound, "round {} is stuck for {waits:?}", self.closed + 1);
        if self.told.elapsed() > TELL {
            self.told = Instant::now();
            self.tell();
        }
    }

    fn tell(&self) {
        println!(
            "{:>4} s {:>7} {:>7} {:>9.1} s",
            self.began.elapsed().as_secs(),
            self.closed,
            self.kills,
            self.longest.as_secs_f64()
        );
    }
}

pub(crate) fn run(arguments: &Arguments) {
    let &Arguments { minutes, rounds, servers: count, clients, freezes } = arguments;
    let overrides = [format!("run.rounds={rounds}"), format!("data.max-samples={}", 20 * clients)];
    let overrides: Vec<&str> = overrides.iter().map(String::as_str).collect();
    let Some(mut lab) = ClusterTestbed::new(count, clients, &overrides) else { return };
    let mut servers: Vec<Process> = (0..count).map(|server| lab.serve(server)).collect();
    until("a server leads", || lab.root().is_some());
    lab.note_closings();
    let mut devices: Vec<Process> = (0..clients).map(|device| lab.join(device)).collect();
    until("the first round is closed", || lab.closed() > Some(0));
    println!("{:>6} {:>7} {:>7} {:>11}", "time", "rounds", "kills", "longest");
    let bound = if freezes.is_some() { LONGEST_FROZEN } else { LONGEST };
    let mut watch = Watch::new(bound);
    match freezes {
        Some(freezes) => freeze(&lab, &servers, freezes, &mut watch),
        None => {
            kill(
                &mut lab,
                (&mut servers, &mut devices),
                (Duration::from_secs_f64(60.0 * minutes), rounds),
                &mut watch,
            );
        }
    }
    watch.tell();
    lab.assert_completed_within(PATIENCE, servers, devices);
    let every: Vec<_> = (1..).take(rounds as usize).collect();
    assert_eq!(lab.closings(), every, "each round closes once");
    println!(
        "{rounds} rounds, each closed once with all {clients} devices; the model of the simulation at all {count} servers"
    );
}

/// Kills one of all processes, the database among them, again and again.
fn kill(
    lab: &mut ClusterTestbed,
    (servers, devices): (&mut Vec<Process>, &mut Vec<Process>),
    (time, rounds): (Duration, u32),
    watch: &mut Watch,
) {
    let mut chance = Seed::root(1).derive("cluster-soak").rng();
    let mut next = Instant::now();
    while watch.began.elapsed() < time && lab.closed() < Some(rounds) {
        std::thread::park_timeout(Duration::from_millis(100));
        watch.look(lab.closed());
        if next.elapsed() < KILL {
            continue;
        }
        next = Instant::now();
        let victim = chance.random_range(0..=servers.len() + devices.len());
        if victim < servers.len() {
            servers.remove(victim).kill();
            servers.insert(victim, lab.serve(victim));
        } else if let Some(device) = Some(victim - servers.len()).filter(|device| *device < devices.len()) {
            devices.remove(device).kill();
            devices.insert(device, lab.join(device as u32));
        } else {
            lab.postgres.kill();
            lab.postgres.restart();
        }
        watch.kills += 1;
    }
}

/// Stops the server that leads for two leases, and until another one has closed a round; then lets it go on.
fn freeze(lab: &ClusterTestbed, servers: &[Process], times: u32, watch: &mut Watch) {
    for _ in 0..times {
        let root = lab.root().expect("one leads");
        servers[root.server].freeze();
        let (stopped, before) = (Instant::now(), lab.closed());
        let another = || lab.root().is_some_and(|now| now.epoch != root.epoch) && lab.closed() > before;
        while stopped.elapsed() < 2 * LEASE || !another() {
            std::thread::park_timeout(Duration::from_millis(50));
            watch.look(lab.closed());
        }
        servers[root.server].go_on();
        watch.kills += 1;
        let after = lab.closed();
        while lab.closed() <= after {
            std::thread::park_timeout(Duration::from_millis(10));
            watch.look(lab.closed());
        }
    }
}
