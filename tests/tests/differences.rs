//! `update.broadcast = "int8"`: models that travel as differences to the one that a device has.
#![cfg(unix)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aggregator::coordinator::Outcome;
use aggregator::round::RoundRecord;
use aggregator::run::Run;
use aggregator::storage::Disk;
use federation_tests::faults::Faults;
use federation_tests::faulty_disk::Loss;
use federation_tests::process::Process;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::Simulator;
use federation_tests::testbed::Testbed;
use serde_json::json;
use shared::message::Verdict;

const LIMIT: Duration = Duration::from_hours(24);
const INT8: [&str; 2] = ["update.broadcast=int8", "model.name=mlp-2nn"];

fn join(testbed: &Testbed) -> Vec<Process> {
    (0..4).map(|index| testbed.join(index)).collect()
}

fn down(records: &[RoundRecord]) -> Vec<u64> {
    records.iter().map(|record| record.bytes_down).collect()
}

#[test]
fn devices_that_were_sent_differences_learn_what_the_simulation_does_from_as_many_bytes() {
    let testbed = Testbed::new(4, &[&INT8[..], &["run.rounds=4", "round.min-updates=4"]].concat());
    let server = testbed.serve();
    let devices = join(&testbed);
    testbed.assert_completed(server, devices);
    let model = testbed.model().len() as u64;
    let (found, simulated) = (down(&testbed.rounds()), down(&testbed.simulated_rounds()));
    assert_eq!(found[1..], simulated[1..], "rounds in which no device joins");
    assert!(found[0] * 10 > 39 * model, "the first is whole: {found:?} of {model}");
    let most = found[1..].iter().max().unwrap();
    assert!(most * 100 < 4 * model * 27, "the others are differences: {found:?} of {model}");
    let names = fs::read_dir(testbed.run().join("state")).unwrap().map(|entry| entry.unwrap().file_name());
    let names: Vec<_> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    let count = |begins: &str| names.iter().filter(|name| name.starts_with(begins)).count();
    // What is superseded by the last round is still there, as its checkpoint is.
    assert!(count("base-") <= 3 && count("difference-") <= 4, "{names:?}");
}

#[test]
fn a_device_that_was_left_out_of_rounds_catches_up() {
    // Two of four, so that most have missed one or two rounds, and some more than differences are kept of.
    let settings = ["run.rounds=8", "round.fraction=0.5", "round.min-updates=2"];
    let testbed = Testbed::new(4, &[&INT8[..], &settings].concat());
    let server = testbed.serve();
    let devices = join(&testbed);
    assert_eq!(server.wait().code, Some(0));
    for device in devices {
        assert_eq!(device.wait().code, Some(0));
    }
    assert!(testbed.model() == testbed.simulated(), "the model is not the simulation's");
    let (found, simulated) = (down(&testbed.rounds()), down(&testbed.simulated_rounds()));
    assert_eq!(found[1..], simulated[1..]);
    // Each of the two takes a quarter of a model, or two or three of them, or the whole.
    let model = testbed.model().len() as u64;
    let quarters: BTreeSet<u64> = found[1..].iter().map(|bytes| (bytes * 4 + model / 2) / model).collect();
    assert!(
        quarters.len() >= 3 && quarters.iter().all(|quarters| (2..=8).contains(quarters)),
        "{quarters:?}"
    );
}

#[test]
fn restarts_of_either_side_give_the_bytes_of_the_simulation_and_cost_a_whole_model() {
    let testbed = Testbed::new(4, &[&INT8[..], &["run.rounds=6", "round.min-updates=4"]].concat());
    let mut server = testbed.serve();
    let mut devices: Vec<_> = (0..3).map(|index| testbed.join(index)).collect();
    let gate = testbed.gate(3);
    let pass = |round: u32, meanwhile: &mut dyn FnMut()| {
        let held = gate.held();
        assert_eq!(held.round, round);
        meanwhile();
        held.open();
        assert_eq!(gate.receipt(round), Verdict::Accepted);
    };
    let accepted = |devices: &mut [Process], round: u32| {
        for device in devices {
            device.object(&json!({ "event": "receipt", "round": round, "verdict": "accepted" }));
        }
    };
    pass(1, &mut || {});
    pass(2, &mut || {
        accepted(&mut devices, 2);
        devices.remove(2).kill();
        let mut again = testbed.join(2);
        again.object(&json!({ "event": "joined" }));
        devices.push(again);
    });
    pass(3, &mut || {});
    let held = gate.held();
    accepted(&mut devices, 4);
    server.kill();
    server = testbed.serve();
    held.open();
    assert_eq!(gate.receipt(4), Verdict::Accepted);
    pass(5, &mut || {});
    pass(6, &mut || {});
    testbed.assert_completed(server, devices);
    let model = testbed.model().len() as u64;
    let found = down(&testbed.rounds());
    // In quarters of a model: a difference has as many bytes.
    let quarters: Vec<u64> = found.iter().map(|bytes| (bytes * 4 + model / 2) / model).collect();
    assert_eq!(quarters[1..3], [4, 7], "one of four was sent the whole again: {found:?} of {model}");
    assert_eq!(quarters[4..], [4, 4], "those that stayed have the model still: {found:?} of {model}");
}

#[test]
fn hidden_updates_are_of_the_model_that_all_have_however_it_came() {
    let secure = [
        "secure-aggregation.enabled=true",
        "secure-aggregation.min-devices=3",
        "secure-aggregation.threshold=0.5",
        "round.min-updates=4",
        "run.rounds=4",
    ];
    let testbed = Testbed::new(4, &[&INT8[..], &secure].concat());
    let server = testbed.serve();
    let mut devices: Vec<_> = (0..3).map(|index| testbed.join(index)).collect();
    let gate = testbed.gate(3);
    gate.held().open();
    let held = gate.held();
    assert_eq!(held.round, 2);
    devices[2].object(&json!({ "event": "training", "round": 2 }));
    devices.remove(2).kill();
    let mut again = testbed.join(2);
    // It has the whole model, the others have differences.
    again.object(&json!({ "event": "joined" }));
    devices.push(again);
    held.open();
    for round in 3..=4 {
        let held = gate.held();
        assert_eq!(held.round, round);
        held.open();
    }
    testbed.assert_completed(server, devices);
}

fn simulator(directory: &Path, more: &[&str]) -> Simulator {
    let settings =
        [&INT8[..], &["run.rounds=4", "round.min-updates=4", "data.max-samples=40"], more].concat();
    Simulator::new(Scenario::small(&settings), Faults::NONE, 0, directory)
}

#[test]
fn a_server_that_dies_at_any_durable_step_sends_the_same_models() {
    let folder = tempfile::tempdir().unwrap();
    let mut undisturbed = simulator(folder.path(), &[]);
    assert_eq!(undisturbed.run_until_end(LIMIT), Some(Outcome::Completed));
    let (expected, steps) = (undisturbed.model(), undisturbed.disk().operations());
    let plain = tempfile::tempdir().unwrap();
    let mut other = simulator(plain.path(), &["update.broadcast=f32"]);
    assert_eq!(other.run_until_end(LIMIT), Some(Outcome::Completed));
    let apart = other.model().distance(&expected).unwrap();
    assert!(apart > 0.0 && apart < 0.05, "devices learn from what has 8 bits: {apart}");
    for step in (0..steps).step_by(5) {
        let loss = if step % 2 == 0 { Loss::Everything } else { Loss::Some(step as u64) };
        let folder = tempfile::tempdir().unwrap();
        let mut disturbed = simulator(folder.path(), &[]);
        disturbed.die_at(step, loss);
        assert_eq!(disturbed.run_until_end(LIMIT), Some(Outcome::Completed), "step {step} of {steps}");
        assert!(disturbed.model() == expected, "step {step} of {steps}: another model");
    }
}

/// A run with two closed rounds whose aggregator was killed, with the file of this name.
fn stopped(folder: &Path, name: &str) -> (Simulator, PathBuf) {
    let mut simulator = simulator(folder, &[]);
    simulator.run_until(|server| server.coordinator().closed() == 2 && server.run().is_settled());
    simulator.kill_server();
    let path = simulator.run_directory().state().join(name);
    assert!(path.is_file(), "{}", path.display());
    (simulator, path)
}

#[test]
fn a_damaged_base_is_made_again_and_a_damaged_difference_is_done_without() {
    let undisturbed = tempfile::tempdir().unwrap();
    let mut reference = simulator(undisturbed.path(), &[]);
    assert_eq!(reference.run_until_end(LIMIT), Some(Outcome::Completed));
    let flip = |bytes: &mut Vec<u8>| *bytes.iter_mut().rev().nth(100).unwrap() ^= 1;
    for damage in [flip, |bytes: &mut Vec<u8>| bytes.truncate(100), Vec::clear] {
        let damaged = |path: &Path| {
            let mut bytes = fs::read(path).unwrap();
            damage(&mut bytes);
            fs::write(path, bytes).unwrap();
        };
        let folder = tempfile::tempdir().unwrap();
        let (mut simulator, path) = stopped(folder.path(), "difference-000003.safetensors");
        damaged(&path);
        assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
        assert!(simulator.model() == reference.model());

        let folder = tempfile::tempdir().unwrap();
        let (mut simulator, path) = stopped(folder.path(), "base-000003.safetensors");
        damaged(&path);
        assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
        assert!(simulator.model() == reference.model(), "it is made again");

        let folder = tempfile::tempdir().unwrap();
        let (simulator, path) = stopped(folder.path(), "base-000003.safetensors");
        damaged(&path);
        damaged(&path.with_file_name("difference-000003.safetensors"));
        let settings = [&INT8[..], &["run.rounds=4", "round.min-updates=4", "data.max-samples=40"]].concat();
        let config = Scenario::small(&settings).config;
        let error = Run::resume(Arc::new(Disk), simulator.run_directory(), config, None).err().unwrap();
        assert!(error.to_string().contains("base-000003"), "{error}");
    }
}
