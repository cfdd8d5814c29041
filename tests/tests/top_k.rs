//! `update.top-k`: devices send a few values of an update, and keep the others for the next one.
#![cfg(unix)]

use std::path::Path;
use std::time::Duration;

use aggregator::coordinator::Outcome;
use federation_tests::faults::Faults;
use federation_tests::faulty_disk::Loss;
use federation_tests::process::Process;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::{Power, Simulator};
use federation_tests::testbed::Testbed;
use serde_json::json;
use shared::message::Verdict;

const LIMIT: Duration = Duration::from_hours(24);
const TOP_K: [&str; 2] = ["update.top-k=0.02", "model.name=mlp-2nn"];

fn up(testbed: &Testbed) -> Vec<u64> {
    testbed.rounds().iter().map(|record| record.bytes_up).collect()
}

#[test]
fn devices_learn_what_the_simulation_does_from_as_many_bytes() {
    let whole = Testbed::new(4, &["model.name=mlp-2nn", "run.rounds=1"]).simulated().len() as u64;
    for (precision, part) in [("f32", 35), ("int8", 60)] {
        let precision = format!("update.precision={precision}");
        let testbed = Testbed::new(4, &[&TOP_K[..], &["run.rounds=3", &precision]].concat());
        let server = testbed.serve();
        let devices = (0..4).map(|index| testbed.join(index)).collect();
        testbed.assert_completed(server, devices);
        let simulated: Vec<u64> = testbed.simulated_rounds().iter().map(|record| record.bytes_up).collect();
        // Messages count as well, and hold the times that training took.
        for (found, simulated) in up(&testbed).iter().zip(&simulated) {
            assert!(found.abs_diff(*simulated) * 50 < *simulated, "{precision}: {found} {simulated}");
        }
        let most = simulated.iter().max().unwrap();
        assert!(most * part < 4 * whole, "{precision}: {simulated:?} of four times {whole}");
    }
}

#[test]
fn devices_that_are_killed_and_a_server_that_is_end_in_the_bytes_of_the_simulation() {
    let testbed = Testbed::new(4, &[&TOP_K[..], &["run.rounds=5", "round.min-updates=4"]].concat());
    let mut server = testbed.serve();
    let mut devices: Vec<Process> = (0..3).map(|index| testbed.join(index)).collect();
    let gate = testbed.gate(3);
    // In training, with an update that has no receipt, and with one that counts.
    for (round, moment) in [(1, "training"), (2, "trained"), (3, "receipt")] {
        let held = gate.held();
        assert_eq!(held.round, round);
        let mut device = devices.remove(0);
        device.object(&json!({ "event": moment, "round": round }));
        device.kill();
        let mut again = testbed.join(round - 1);
        again.object(&json!({ "event": "joined" }));
        devices.push(again);
        held.open();
        assert_eq!(gate.receipt(round), Verdict::Accepted);
    }
    let held = gate.held();
    assert_eq!(held.round, 4);
    server.kill();
    server = testbed.serve();
    held.open();
    assert_eq!(gate.receipt(4), Verdict::Accepted);
    gate.held().open();
    testbed.assert_completed(server, devices);
}

fn simulator(directory: &Path, more: &[&str]) -> Simulator {
    let settings =
        [&["update.top-k=0.02", "run.rounds=4", "round.min-updates=4", "data.max-samples=40"], more].concat();
    Simulator::new(Scenario::small(&settings), Faults::NONE, 0, directory)
}

#[test]
fn a_death_at_any_durable_step_of_either_side_changes_nothing() {
    let with_disks = |folder: &Path| simulator(&folder.join("runs"), &[]).with_disks(&folder.join("devices"));
    let folder = tempfile::tempdir().unwrap();
    let mut undisturbed = with_disks(folder.path());
    assert_eq!(undisturbed.run_until_end(LIMIT), Some(Outcome::Completed));
    let expected = undisturbed.model();
    let plain = tempfile::tempdir().unwrap();
    let mut other = simulator(plain.path(), &["update.top-k=1"]);
    assert_eq!(other.run_until_end(LIMIT), Some(Outcome::Completed));
    assert!(other.model() != expected, "values are left out");
    let ends = |mut disturbed: Simulator, at: &str| {
        assert_eq!(disturbed.run_until_end(LIMIT), Some(Outcome::Completed), "{at}");
        assert!(disturbed.model() == expected, "{at}: another model");
    };
    let loss = |step: usize| if step.is_multiple_of(2) { Loss::Everything } else { Loss::Some(step as u64) };
    let (of_server, of_device) = (undisturbed.disk().operations(), undisturbed.devices()[0].operations());
    for step in (0..of_server).step_by(7) {
        let folder = tempfile::tempdir().unwrap();
        let mut disturbed = with_disks(folder.path());
        disturbed.die_at(step, loss(step));
        ends(disturbed, &format!("step {step} of {of_server} of the server"));
    }
    for step in 0..of_device {
        let folder = tempfile::tempdir().unwrap();
        let mut disturbed = with_disks(folder.path());
        disturbed.device_dies_at(0, step, loss(step), Power::Device);
        ends(disturbed, &format!("step {step} of {of_device} of a device"));
    }
}
