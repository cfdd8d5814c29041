//! Updates and models in fewer bytes, and private runs, between real processes of which one is killed in every round: the bytes of the
//! simulation.
#![cfg(unix)]

use federation_tests::planted::plant_secret;
use federation_tests::process::Process;
use federation_tests::testbed::Testbed;
use serde_json::json;
use shared::message::Verdict;
use shared::seed::{Seed, below};

/// Rounds, in each of which one of both programs is killed.
const ROUNDS: u32 = 5;

/// Gives the run of the devices and that of the simulation one secret.
fn plant(testbed: &Testbed) {
    let name = testbed.run().file_name().expect("the run has a name").to_string_lossy().into_owned();
    for runs in [testbed.run().parent().expect("it lies among runs").to_owned(), testbed.path("simulated")] {
        plant_secret(&runs, &name, [9; 32]);
    }
}

fn with_kills(settings: &[&str], seed: u64) {
    let rounds = format!("run.rounds={ROUNDS}");
    let testbed =
        Testbed::new(4, &[settings, &[&rounds, "round.min-updates=4", "model.name=mlp-2nn"]].concat());
    if settings.iter().any(|setting| setting.starts_with("privacy.")) {
        plant(&testbed);
    }
    let mut chance = Seed::root(seed).derive("kills").rng();
    let mut server = testbed.serve();
    // Its training waits, so that no round closes before the one who is killed is back.
    let gate = testbed.gate(0);
    let mut devices: Vec<Process> = (1..4).map(|index| testbed.join(index)).collect();
    for round in 1..=ROUNDS {
        let held = gate.held();
        assert_eq!(held.round, round);
        let victim = below(4, &mut chance);
        let moment = ["training", "trained", "receipt"][below(3, &mut chance)];
        let watched = victim.max(1) - 1;
        devices[watched].object(&json!({ "event": moment, "round": round }));
        if victim == 0 {
            server.kill();
            server = testbed.serve();
        } else {
            devices.remove(watched).kill();
            devices.insert(watched, testbed.join(victim as u32));
        }
        held.open();
        assert_eq!(gate.receipt(round), Verdict::Accepted, "{settings:?}, round {round}");
    }
    testbed.assert_completed(server, devices);
}

#[test]
fn updates_of_8_bits() {
    with_kills(&["update.precision=int8"], 1);
}

#[test]
fn updates_of_4_bits() {
    with_kills(&["update.precision=int4"], 2);
}

#[test]
fn models_as_differences() {
    with_kills(&["update.precision=int8", "update.broadcast=int8"], 3);
}

#[test]
fn a_share_of_the_values() {
    with_kills(&["update.top-k=0.05", "update.precision=f16"], 4);
}

#[test]
fn private_runs() {
    let private =
        ["privacy.clip=0.5", "privacy.noise=0.7", "privacy.delta=1e-3", "aggregation.weights=uniform"];
    with_kills(&[&private[..], &["update.precision=int8"]].concat(), 5);
}
