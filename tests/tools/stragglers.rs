//! The cost of a round with slow devices, under three round policies.

use std::time::Duration;

use clap::Args;
use federation_tests::faults::Faults;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::Simulator;

/// What a round costs while devices are slow and connections drop, under three round policies.
///
/// Twenty devices train for 5 to 15 seconds, four of them for two minutes, and every twentieth delivery cuts its connection. Time
/// is virtual and everything else is real: coordinator, durable steps, sessions, training. The same seed gives the same figures.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Rounds of each run.
    #[arg(long, default_value_t = 40)]
    rounds: u32,
}

const FAULTS: Faults = Faults {
    delay: Duration::from_millis(500),
    training: Duration::from_secs(15),
    cut: 0.05,
    device_crash: 0.0,
    server_crash: 0.0,
    downtime: Duration::from_secs(5),
    ..Faults::NONE
};
/// Every fifth device, and how long each of its trainings takes.
const SLOW: (usize, Duration) = (5, Duration::from_mins(2));
/// Accuracy on the test set.
const TARGET: f64 = 0.7;

pub(crate) fn run(&Arguments { rounds }: &Arguments) {
    println!(
        "{:<26} {:>11} {:>9} {:>6} {:>10} {:>10} {:>12}",
        "", "a round", "updates", "late", "discarded", "accuracy", "to 70 %"
    );
    let all = ["round.min-updates=20"];
    let first = ["round.min-updates=12", "round.max-updates=12"];
    let buffered = ["round.min-updates=12", "round.max-updates=12", "round.staleness.enabled=true"];
    policy("wait for all", rounds, &all);
    policy("the first 12 of 20", rounds, &first);
    policy("the same, late ones count", rounds, &buffered);
}

fn policy(name: &str, rounds: u32, overrides: &[&str]) {
    let rounds_key = format!("run.rounds={rounds}");
    let common = [
        "data.clients=20",
        "data.max-samples=2000",
        "data.partition.dirichlet.alpha=0.3",
        "training.epochs=5",
        "evaluate.every=1",
        "round.timeout=600",
        rounds_key.as_str(),
    ];
    let scenario = Scenario::small(&[&common[..], overrides].concat());
    let directory = tempfile::tempdir().expect("the system has a place for temporary files");
    let mut simulator = Simulator::new(scenario, FAULTS, 1, directory.path());
    for device in (0..20).step_by(SLOW.0) {
        simulator.slow_down(device, SLOW.1);
    }
    let mut reached = None;
    for round in 1..rounds {
        simulator.run_until(|server| server.run().closed() >= round);
        let accuracy = simulator.server().and_then(|server| server.run().records().last()?.accuracy);
        if reached.is_none() && accuracy.is_some_and(|accuracy| accuracy >= TARGET) {
            reached = Some(simulator.now());
        }
    }
    simulator.run_until_end(simulator.now() + Duration::from_hours(1));
    let records = simulator.records();
    let sum = |count: fn(&aggregator::round::RoundRecord) -> usize| records.iter().map(count).sum::<usize>();
    let accuracy = records.last().and_then(|record| record.accuracy).unwrap_or(0.0);
    println!(
        "{name:<26} {:>9.1} s {:>9} {:>6} {:>10} {:>8.1} % {:>12}",
        simulator.now().as_secs_f64() / f64::from(rounds),
        sum(|record| record.accepted),
        sum(|record| record.late),
        sum(|record| record.discarded),
        100.0 * accuracy,
        reached.map_or("-".to_owned(), |time| format!("{:.1} min", time.as_secs_f64() / 60.0)),
    );
}
