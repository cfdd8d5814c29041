//! Secure aggregation: the bytes of a run without it, with devices lost at every step and both sides killed at every durable one.

use std::path::Path;
use std::time::Duration;

use aggregator::coordinator::Outcome;
use federation_tests::faults::Faults;
use federation_tests::faulty_disk::Loss;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::{Simulator, model_of};

const LIMIT: Duration = Duration::from_hours(24);

/// What is added to a configuration so that devices hide their updates.
const SECURE: [&str; 3] = [
    "secure-aggregation.enabled=true",
    "secure-aggregation.min-devices=3",
    "secure-aggregation.threshold=0.5",
];

/// Four devices in every round; with secure aggregation, if that is said.
fn four(secure: bool, more: &[&str]) -> Scenario {
    let secure: &[&str] = if secure { &SECURE } else { &[] };
    Scenario::of_devices(&[&["round.min-updates=4"], secure, more].concat())
}

/// The settings that go with it.
const ALGORITHMS: [(&str, &[&str]); 9] = [
    ("fedavg", &[]),
    ("fedavg by losses", &["aggregation.weights=loss"]),
    ("fedprox, clipped", &["algorithm.fedprox={}", "aggregation.rule.clipped-mean.max-norm=0.05"]),
    ("moon", &["algorithm.moon={}", "model.name=mlp-2nn", "data.max-samples=40"]),
    ("fednova", &["algorithm.fednova={}"]),
    ("scaffold", &["algorithm.scaffold={}", "training.batch=0"]),
    ("fedavg, adam at the server", &["aggregation.server-optimizer.adam={}", "aggregation.weights=uniform"]),
    ("int8", &["update.precision=int8", "model.name=mlp-2nn", "data.max-samples=40"]),
    ("bf16", &["update.precision=bf16"]),
];

#[test]
fn every_algorithm_gives_the_bytes_of_a_run_without_masks() {
    for (name, settings) in ALGORITHMS {
        let plain = model_of(&four(false, settings), Faults::NONE, 0);
        let hidden = model_of(&four(true, settings), Faults::NONE, 0);
        assert_eq!(hidden, plain, "{name}");
    }
}

#[test]
fn connections_and_processes_that_die_change_nothing() {
    let plain = model_of(&four(false, &[]), Faults::NONE, 0);
    let scenario = four(true, &[]);
    for seed in 0..25 {
        assert_eq!(model_of(&scenario, Faults::HEAVY, seed), plain, "seed {seed}");
    }
}

/// Two rounds that close by time, each without the last device, which would need half as long again; with secure aggregation, if that is
/// said.
fn without_the_straggler(secure: bool, folder: &Path) -> Simulator {
    let overrides = ["run.rounds=2", "round.min-updates=3", "round.timeout=60", "algorithm.fednova={}"];
    let hidden: &[&str] = if secure { &SECURE } else { &[] };
    let scenario = Scenario::of_devices(&[&overrides[..], hidden].concat());
    let mut simulator = Simulator::new(scenario, Faults::NONE, 0, folder);
    simulator.slow_down(3, Duration::from_secs(90));
    simulator
}

#[test]
fn the_masks_that_a_missing_device_shares_are_taken_away() {
    let models = [false, true].map(|secure| {
        let folder = tempfile::tempdir().unwrap();
        let mut simulator = without_the_straggler(secure, folder.path());
        assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
        let accepted: Vec<_> = simulator.records().iter().map(|round| round.accepted).collect();
        assert_eq!(accepted, [3, 3]);
        simulator.model()
    });
    assert_eq!(models[0], models[1]);
}

/// The run of a scenario on disks that fail.
fn on_disks(scenario: &Scenario, folder: &Path) -> Simulator {
    let simulator = Simulator::new(scenario.clone(), Faults::NONE, 0, &folder.join("runs"));
    simulator.with_disks(&folder.join("devices"))
}

#[test]
fn the_server_dies_at_every_durable_step_and_the_bytes_are_the_same() {
    let scenario = four(true, &["run.rounds=2", "algorithm.scaffold={}", "training.batch=0"]);
    let folder = tempfile::tempdir().unwrap();
    let mut whole = on_disks(&scenario, folder.path());
    assert_eq!(whole.run_until_end(LIMIT), Some(Outcome::Completed));
    let (reference, operations) = (whole.model(), whole.disk().operations());
    for fatal in (0..operations).step_by(7) {
        let loss = if fatal % 2 == 0 { Loss::Nothing } else { Loss::Some(fatal as u64) };
        let folder = tempfile::tempdir().unwrap();
        let mut simulator = on_disks(&scenario, folder.path());
        simulator.die_at(fatal, loss);
        assert_eq!(
            simulator.run_until_end(LIMIT),
            Some(Outcome::Completed),
            "{fatal} of {operations}, {loss:?}"
        );
        assert_eq!(simulator.model(), reference, "{fatal} of {operations}, {loss:?}");
        assert!(simulator.told().is_empty(), "{fatal}, {loss:?}: {:?}", simulator.told());
    }
}

#[test]
fn a_device_dies_at_every_durable_step_and_the_bytes_are_the_same() {
    let scenario = four(true, &["run.rounds=2", "algorithm.scaffold={}", "training.batch=0"]);
    let folder = tempfile::tempdir().unwrap();
    let mut whole = on_disks(&scenario, folder.path());
    assert_eq!(whole.run_until_end(LIMIT), Some(Outcome::Completed));
    let (reference, operations) = (whole.model(), whole.devices()[1].operations());
    assert!(operations > 30, "{operations}");
    for fatal in 0..operations {
        // The process alone, or the power with it.
        let loss = [Loss::Nothing, Loss::Some(fatal as u64), Loss::Some(2)][fatal % 3];
        let folder = tempfile::tempdir().unwrap();
        let mut simulator = on_disks(&scenario, folder.path());
        simulator.device_mut(1).die_at(fatal, loss);
        assert_eq!(
            simulator.run_until_end(LIMIT),
            Some(Outcome::Completed),
            "{fatal} of {operations}, {loss:?}"
        );
        assert_eq!(simulator.model(), reference, "{fatal} of {operations}, {loss:?}");
        assert!(simulator.told().is_empty(), "{fatal}, {loss:?}: {:?}", simulator.told());
        assert!(simulator.devices().iter().all(|device| device.refused.is_empty()), "{fatal}, {loss:?}");
    }
}
