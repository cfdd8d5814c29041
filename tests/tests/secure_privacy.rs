//! Noise that devices add to their updates before they hide them: whole runs to the simulation's bytes, and what they promise.
#![cfg(unix)]

use std::fs;

use aggregator::run::directory::RunDirectory;
use aggregator::run::{Run, RunManifest};
use aggregator::storage::Disk;
use federation_tests::planted::{plant_noise, plant_secret};
use federation_tests::process::Process;
use federation_tests::scenario::Scenario;
use federation_tests::testbed::Testbed;
use federation_tests::whole_run::whole;

use super::secure_processes::with_kills;

/// Sums of at least three private updates, in 32 bits.
const PRIVATE: [&str; 9] = [
    "secure-aggregation.enabled=true",
    "secure-aggregation.min-devices=3",
    "secure-aggregation.threshold=0.5",
    "secure-aggregation.integers=i32",
    "privacy.clip=0.5",
    "privacy.noise=0.7",
    "privacy.delta=1e-3",
    "aggregation.weights=uniform",
    "update.precision=int8",
];

/// The secret that the simulation begins with.
const SECRET: [u8; 32] = [9; 32];

fn testbed(more: &[&str]) -> Testbed {
    let testbed = Testbed::new(4, &[&PRIVATE[..], &["round.min-updates=4"], more].concat());
    let name = testbed.run().file_name().expect("the run has a name").to_string_lossy().into_owned();
    plant_secret(&testbed.path("simulated"), &name, SECRET);
    testbed
}

/// Starts the server, and the devices, with these options, once it is known which run they take part in.
fn begin(testbed: &Testbed, asks: &[&str]) -> (Process, Vec<Process>) {
    let server = testbed.serve();
    let directory = RunDirectory::new(testbed.run());
    let run = RunManifest::read(&Disk, &directory).unwrap().expect("the run has begun").run;
    let join = |index| {
        plant_noise(testbed, index, run, &SECRET);
        testbed.join_with(index, &[&["--secure-only", "3"], asks].concat())
    };
    (server, (0..4).map(join).collect())
}

#[test]
fn devices_that_add_noise_give_the_bytes_of_the_simulation() {
    let testbed = testbed(&[]);
    let (server, devices) = begin(&testbed, &[]);
    testbed.assert_completed(server, devices);
    let rounds = testbed.rounds();
    assert!(rounds.iter().all(|round| round.train_loss.is_none() && round.metrics.contains_key("epsilon")));
    let simulated = testbed.simulated_rounds();
    let epsilons = |rounds: &[aggregator::round::RoundRecord]| -> Vec<u64> {
        rounds.iter().map(|round| round.metrics["epsilon"].to_bits()).collect()
    };
    assert_eq!(epsilons(&rounds), epsilons(&simulated));
}

#[test]
fn kills_of_either_program_at_any_moment_give_the_bytes_of_the_simulation() {
    let testbed = testbed(&["run.rounds=5"]);
    let (server, devices) = with_kills(&testbed, begin(&testbed, &[]), 1..=4, 3);
    testbed.assert_completed(server, devices);
}

#[test]
fn a_device_takes_part_where_its_own_noise_keeps_all_rounds_within_what_its_owner_asks() {
    let testbed = testbed(&["run.rounds=2"]);
    let promise = scenario(&["run.rounds=2"]).config.promise.unwrap();
    // Of two rounds by the account of the server, at the delta that it is for.
    let enough = (promise.epsilon(2) + 1e-9).to_string();
    let (server, devices) = begin(&testbed, &["--private-only", &enough, "--private-delta", "1e-3"]);
    testbed.assert_completed(server, devices);
}

#[test]
fn a_device_leaves_a_run_that_gives_more_away_also_after_a_restart() {
    let few = testbed(&[]);
    let mut server = few.serve();
    for _ in ["once", "again"] {
        let device = few.join_with(0, &["--private-only", "0.5"]).wait();
        assert_eq!(device.code, Some(3), "{}", device.text);
        for part in ["rounds of this run come to epsilon", "epsilon 0.5 at delta 1e-6", "--private-only"] {
            assert!(device.text.contains(part), "{part:?} is not in {}", device.text);
        }
        server
            .line("the operator is told", |line| line.contains("leaves") && line.contains("--private-only"));
    }
    let delta = few.join_with(0, &["--private-delta", "1e-3"]).wait();
    assert_eq!(delta.code, Some(2), "{}", delta.text);
    // What the server promises to add is its word.
    let central = Testbed::new(4, &["privacy.clip=0.5", "privacy.noise=9", "privacy.delta=1e-3", PRIVATE[7]]);
    let mut server = central.serve();
    let device = central.join_with(0, &["--private-only", "1000"]).wait();
    assert_eq!(device.code, Some(3), "{}", device.text);
    assert!(device.text.contains("devices of this run add no noise"), "{}", device.text);
    server.line("the operator is told", |line| line.contains("leaves") && line.contains("add no noise"));
}

fn scenario(more: &[&str]) -> Scenario {
    Scenario::small(&[&PRIVATE[..], more].concat())
}

fn model(run: &Run) -> Vec<u8> {
    fs::read(run.directory().model()).unwrap()
}

#[tokio::test]
async fn the_model_says_who_adds_the_noise_and_the_budget_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let promise = scenario(&[]).config.promise.unwrap();
    let budget = format!("privacy.epsilon={}", promise.epsilon(3) + 1e-9);
    let run = whole(folder.path(), &scenario(&["run.rounds=50", &budget])).await;
    assert_eq!((run.closed(), run.spent()), (3, true));
    let said = run.privacy().expect("it is private");
    assert!(said.contains("by the devices themselves in every sum of 3 or more"), "{said}");
    // Noise of the server's would cost nearly the same.
    let server = Scenario::small(&[
        "privacy.clip=0.5",
        "privacy.noise=0.7",
        "privacy.delta=1e-3",
        "aggregation.weights=uniform",
    ]);
    let (devices, server) = (promise.epsilon(3), server.config.promise.unwrap().epsilon(3));
    assert!(devices > server && devices < server * 1.2, "{devices} {server}");
    // Other secrets, another model.
    let again = tempfile::tempdir().unwrap();
    let other = whole(again.path(), &scenario(&["run.rounds=50", &budget])).await;
    assert!(model(&run) != model(&other));
}
