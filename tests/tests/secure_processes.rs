//! Secure aggregation between real processes over QUIC: whole runs, with both programs killed, to the simulation's bytes.
#![cfg(unix)]

use std::ops::RangeInclusive;

use federation_tests::process::Process;
use federation_tests::testbed::Testbed;
use serde_json::json;
use shared::seed::{Seed, below};

/// Four devices in every round, whose updates the server does not see.
const SECURE: [&str; 4] = [
    "secure-aggregation.enabled=true",
    "secure-aggregation.min-devices=3",
    "secure-aggregation.threshold=0.5",
    "round.min-updates=4",
];

fn testbed(more: &[&str]) -> Testbed {
    Testbed::new(4, &[&SECURE[..], more].concat())
}

/// Kills one of both programs in each of these rounds, at a random moment, and starts it again; gives the processes that run in the end.
pub(crate) fn with_kills(
    testbed: &Testbed,
    (mut server, devices): (Process, Vec<Process>),
    rounds: RangeInclusive<u32>,
    seed: u64,
) -> (Process, Vec<Process>) {
    let mut chance = Seed::root(seed).derive("kills").rng();
    let mut devices: Vec<Option<Process>> = devices.into_iter().map(Some).collect();
    for round in rounds {
        // The first device is not killed, and says how far the round is.
        let moment = ["training", "hidden", "trained"][below(3, &mut chance)];
        let watched = devices[0].as_mut().expect("it is never killed");
        watched.object(&json!({ "event": moment, "round": round }));
        let victim = below(4, &mut chance);
        if victim == 0 {
            server.kill();
            server = testbed.serve();
        } else {
            devices[victim].take().expect("it was started again").kill();
            devices[victim] = Some(testbed.join_with(victim as u32, &["--secure-only", "3"]));
        }
    }
    (server, devices.into_iter().flatten().collect())
}

fn join(testbed: &Testbed) -> Vec<Process> {
    (0..4).map(|index| testbed.join_with(index, &["--secure-only", "3"])).collect()
}

#[test]
fn devices_that_hide_their_updates_give_the_bytes_of_the_simulation() {
    for more in [
        &[][..],
        &["update.precision=int8", "model.name=mlp-2nn", "aggregation.weights=loss"],
        &["algorithm.scaffold={}", "training.batch=0"],
    ] {
        let testbed = testbed(more);
        let server = testbed.serve();
        let devices = join(&testbed);
        testbed.assert_completed(server, devices);
        let losses = |rounds: Vec<aggregator::round::RoundRecord>| -> Vec<f64> {
            rounds.iter().map(|round| round.train_loss.expect("the sum of the losses is known")).collect()
        };
        let (found, plain) = (losses(testbed.rounds()), losses(testbed.simulated_rounds()));
        // A loss is rounded to 2^-24 before it is hidden.
        let apart = found.iter().zip(&plain).map(|(found, plain)| (found - plain).abs());
        assert!(apart.fold(0.0, f64::max) < 1e-6, "{more:?}");
    }
}

#[test]
fn kills_of_either_program_at_any_moment_give_the_bytes_of_the_simulation() {
    for seed in 0..2 {
        let testbed = testbed(&["run.rounds=6"]);
        let begun = (testbed.serve(), join(&testbed));
        let (server, devices) = with_kills(&testbed, begun, 1..=5, seed);
        testbed.assert_completed(server, devices);
    }
}

#[test]
fn a_device_whose_owner_asks_for_more_devices_takes_no_part() {
    let testbed = testbed(&[]);
    let mut server = testbed.serve();
    let device = testbed.join_with(0, &["--secure-only", "10"]).wait();
    assert_ne!(device.code, Some(0));
    assert!(device.text.contains("10"), "{}", device.text);
    server.line("the operator is told", |line| line.contains("leaves") && line.contains("--secure-only"));
}
