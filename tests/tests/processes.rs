//! The two programs as real processes over QUIC: whole runs, and every way in which a person or a power failure can
//! end one. Wherever a run completes, its model is the simulation's, byte for byte.
#![cfg(unix)]

use std::fs;
use std::process::Command;

use aggregator::round::RoundRecord;
use edge_client::session::SessionEnd;
use federation_tests::gate::Gate;
use federation_tests::process::{INTERRUPTED, Process, run, until};
use federation_tests::programs::programs;
use federation_tests::testbed::Testbed;
use serde_json::json;
use shared::message::Verdict;

/// Four devices of their own process and one that waits in this one.
fn with_gate() -> Testbed {
    Testbed::new(5, &["data.max-samples=200"])
}

fn join(testbed: &Testbed) -> Vec<Process> {
    (0..4).map(|index| testbed.join(index)).collect()
}

fn accepted(devices: &mut [Process], round: u32) {
    for device in devices {
        device.object(&json!({ "event": "receipt", "round": round, "verdict": "accepted" }));
    }
}

/// Lets the held training of `round` through and waits for the next round's.
fn pass(gate: &Gate, round: u32) {
    let held = gate.held();
    assert_eq!(held.round, round);
    held.open();
    assert_eq!(gate.receipt(round), Verdict::Accepted);
}

#[test]
fn four_devices_train_the_model_of_the_simulation() {
    let testbed = Testbed::new(4, &[]);
    let server = testbed.serve();
    assert_eq!(testbed.ready()["address"], testbed.address());
    let devices = join(&testbed);
    testbed.assert_completed(server, devices);
}

#[test]
fn half_the_bits_and_other_clocks_change_nothing() {
    let testbed = Testbed::new(4, &["update.precision=f16", "training.epochs=3"]);
    // Devices that come first wait for the server.
    let devices: Vec<_> = (0..4).rev().map(|index| testbed.join(index)).collect();
    let server = testbed.serve();
    testbed.assert_completed(server, devices);
}

#[test]
fn an_eighth_of_the_bits_changes_nothing_on_the_way() {
    for overrides in [
        &["update.precision=int4", "model.name=mlp-2nn"][..],
        &["update.precision=int8", "aggregation.weights=uniform", "aggregation.rule.median={}"],
    ] {
        let testbed = Testbed::new(4, overrides);
        let server = testbed.serve();
        let devices = join(&testbed);
        testbed.assert_completed(server, devices);
    }
}

#[test]
fn devices_test_models_on_what_they_hold_out() {
    let tests = ["evaluate.on-clients-every=2", "evaluate.hold-out=0.25", "evaluate.by-class=true"];
    let testbed = Testbed::new(3, &tests);
    let server = testbed.serve();
    let mut devices: Vec<_> = (0..3).map(|index| testbed.join(index)).collect();
    for device in &mut devices {
        device.object(&json!({ "event": "tested", "round": 4, "steps": 0 }));
        device.object(&json!({ "event": "completed", "rounds": 3 }));
    }
    assert_eq!(server.wait().code, Some(0));
    assert!(testbed.model() == testbed.simulated(), "the model is not the simulation's");
    let of_clients = |records: Vec<RoundRecord>| -> Vec<_> {
        let found = |record: RoundRecord| (record.round, record.closing, record.clients, record.by_class);
        records.into_iter().map(found).collect()
    };
    let found = of_clients(testbed.rounds());
    assert_eq!(found, of_clients(testbed.simulated_rounds()), "and so is what the clients found");
    let tested: Vec<_> =
        found.iter().map(|(round, closing, clients, _)| (*round, *closing, clients.len())).collect();
    assert_eq!(tested, [(1, false, 0), (2, false, 0), (3, false, 3), (4, true, 3)]);
    let samples = |class: &models::ClassResult| class.samples;
    let counted: Vec<u64> =
        found.iter().map(|(.., by_class)| by_class.classes().iter().map(samples).sum()).collect();
    assert_eq!(counted, [0, 0, 39, 39], "13 on each of three devices");
}

#[test]
fn a_device_without_test_samples_says_so_and_trains_all_the_same() {
    // Nothing is held out, and the devices' folders hold no test split.
    let testbed = Testbed::new(2, &["evaluate.on-clients-every=1"]);
    let server = testbed.serve();
    let mut devices: Vec<_> = (0..2).map(|index| testbed.join(index)).collect();
    devices[0].line("what is missing", |line| line.contains("not tested here") && line.contains("hold-out"));
    for device in &mut devices {
        device.object(&json!({ "event": "completed", "rounds": 3 }));
    }
    assert_eq!(server.wait().code, Some(0));
    let records = testbed.rounds();
    let counts: Vec<_> = records.iter().map(|record| (record.accepted, record.clients.len())).collect();
    assert_eq!(counts, [(2, 0); 4]);
}

#[test]
fn what_a_device_lacks_for_tests_is_told_on_both_sides_when_it_joins() {
    let testbed = Testbed::new(2, &["evaluate.on-clients-every=1"]);
    let mut server = testbed.serve();
    // The first round waits for another device.
    let mut device = testbed.join(0);
    let said = device.object(&json!({ "event": "untested" }));
    assert!(said["reason"].as_str().unwrap().contains("no test samples"), "{said}");
    let name = testbed.client(0).short();
    let told =
        server.line("the operator is told", |line| line.contains(&name) && line.contains("test no model"));
    assert!(told.contains("evaluate.hold-out") && testbed.closed() == 0, "{told}");
    // One that has some says nothing.
    for kind in ["images-idx3-ubyte", "labels-idx1-ubyte"] {
        let (train, test) = (format!("train-{kind}"), format!("t10k-{kind}"));
        fs::copy(testbed.data(1).join(train), testbed.data(1).join(test)).unwrap();
    }
    let second = testbed.join(1).wait();
    assert_eq!(second.code, Some(0), "{}", second.text);
    assert!(!second.text.contains("untested"), "{}", second.text);
    let ended = server.wait();
    assert_eq!(ended.text.matches("test no model").count(), 1, "{}", ended.text);
    assert_eq!(device.wait().code, Some(0));
}

#[test]
fn an_aggregator_that_is_killed_continues_where_it_was() {
    let testbed = with_gate();
    // Before any client came.
    testbed.serve().kill();
    let server = testbed.serve();
    let mut devices = join(&testbed);
    let gate = testbed.gate(4);

    // In the middle of a round, with four updates durable.
    let held = gate.held();
    assert_eq!(held.round, 1);
    accepted(&mut devices, 1);
    server.kill();
    let mut server = testbed.serve();
    held.open();
    assert_eq!(gate.receipt(1), Verdict::Accepted);

    // Between two rounds.
    server.object(&json!({ "round": 1, "accepted": 5 }));
    server.kill();
    assert_eq!(testbed.rounds().len(), 1);
    let server = testbed.serve();

    // Somewhere between the last upload and the next round.
    let held = gate.held();
    assert_eq!(held.round, 2);
    held.open();
    server.kill();
    let server = testbed.serve();

    pass(&gate, 3);
    testbed.assert_completed(server, devices);
    // The updates that came before the kill count in their round's traffic, and so do their tasks. That of the fifth,
    // which was sent before the kill and not again, is forgotten.
    let (interrupted, whole) = (&testbed.rounds()[0], &testbed.rounds()[2]);
    assert!(interrupted.bytes_up > whole.bytes_up / 10 * 9, "{interrupted:?} {whole:?}");
    assert!(interrupted.bytes_down > whole.bytes_down / 10 * 7, "{interrupted:?} {whole:?}");
}

/// The model of one round that closes by time with four updates of five. If `killed`, the aggregator is killed after the
/// decision to close, and the fifth update is ready when it comes back.
fn closed_by_time(killed: bool) -> Vec<u8> {
    let testbed =
        Testbed::new(5, &["run.rounds=1", "round.min-updates=4", "round.timeout=3", "data.max-samples=200"]);
    let mut server = testbed.serve();
    let mut devices: Vec<_> = (0..3).map(|index| testbed.join(index)).collect();
    let (fourth, straggler) = (testbed.gate(3), testbed.gate(4));
    let (held_fourth, held_straggler) = (fourth.held(), straggler.held());
    accepted(&mut devices, 1);
    // A process that opens a pipe for writing waits for a reader: the aggregator does not get beyond this file.
    let pipe = testbed.run().join("state/checkpoint-000001.safetensors.partial");
    if killed {
        let made = Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("there is a program mkfifo").success());
    }
    held_fourth.open();
    assert_eq!(fourth.receipt(1), Verdict::Accepted);
    if killed {
        until("the round has a line", || testbed.run().join("rounds.jsonl").exists());
        server.kill();
        held_straggler.open();
        std::fs::remove_file(pipe).expect("the pipe is there");
        server = testbed.serve();
    }
    let ended = server.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    let records: Vec<_> = testbed.rounds().iter().map(|record| (record.round, record.accepted)).collect();
    assert_eq!(records, [(1, 4)]);
    testbed.model()
}

#[test]
fn a_round_that_was_decided_by_time_closes_without_the_straggler_after_a_kill() {
    assert!(closed_by_time(true) == closed_by_time(false), "the model is not that of the undisturbed run");
}

#[test]
fn a_device_that_is_killed_goes_on_where_it_was() {
    let testbed = with_gate();
    let server = testbed.serve();
    let mut devices = join(&testbed);
    let gate = testbed.gate(4);
    for (round, moment) in [(1, "training"), (2, "trained"), (3, "receipt")] {
        let held = gate.held();
        assert_eq!(held.round, round);
        let mut device = devices.remove(0);
        device.object(&json!({ "event": moment, "round": round }));
        device.kill();
        // The first in the list is another device every time.
        let mut again = testbed.join(round - 1);
        again.object(&json!({ "event": "joined" }));
        devices.push(again);
        accepted(&mut devices[..3], round);
        held.open();
        assert_eq!(gate.receipt(round), Verdict::Accepted);
    }
    testbed.assert_completed(server, devices);
}

#[test]
fn ctrl_c_pauses_the_run_and_devices_wait_for_it() {
    let testbed = with_gate();
    let server = testbed.serve();
    let mut devices = join(&testbed);
    let gate = testbed.gate(4);
    pass(&gate, 1);
    accepted(&mut devices, 1);
    let held = gate.held();
    assert_eq!(held.round, 2);

    server.interrupt();
    let stopped = server.wait();
    assert_eq!(stopped.code, Some(INTERRUPTED), "{}", stopped.text);
    let says = "stopped after round 1 of 3: the same command continues the run";
    assert!(stopped.text.contains(says), "{}", stopped.text);
    for device in &mut devices {
        device.object(&json!({ "event": "disconnected" }));
        assert!(device.alive());
    }
    // The device that leaves meanwhile comes back with its finished update.
    devices[0].interrupt();
    let left = devices.remove(0).wait();
    assert_eq!(left.code, Some(INTERRUPTED), "{}", left.text);
    assert!(left.text.ends_with(r#"{"event":"stopped"}"#), "{}", left.text);

    let mut server = testbed.serve();
    for device in &mut devices {
        device.object(&json!({ "event": "connected" }));
    }
    devices.push(testbed.join(0));
    server.line("the device that left", |line| line.contains(&testbed.client(0).short()));
    // Ctrl-C on a device in the middle of a run.
    let mut leaving = devices.remove(0);
    leaving.object(&json!({ "event": "joined" }));
    leaving.interrupt();
    let left = leaving.wait();
    assert_eq!(left.code, Some(INTERRUPTED), "{}", left.text);
    devices.push(testbed.join(1));
    held.open();
    pass(&gate, 3);
    testbed.assert_completed(server, devices);
}

#[test]
fn a_device_that_is_away_when_the_run_ends_is_told_when_it_comes_back() {
    let testbed = Testbed::new(3, &["round.min-updates=2", "round.min-wait=0", "run.rounds=1"]);
    // Longer than the test has patience for.
    let mut server = testbed.serve_with(&["--drain-timeout", "3600"]);
    let (away, other, gate) = (testbed.join(0), testbed.join(1), testbed.gate(2));
    let held = gate.held();
    away.kill();
    let name = testbed.client(0).short();
    server.line("the end of the device", |line| line.contains(&name) && line.contains("disconnected"));
    held.open();
    assert_eq!(other.wait().code, Some(0));
    server.line("the wait", |line| line.contains("1 known device has not confirmed"));
    assert!(testbed.run().join("report.html").is_file(), "nothing waits for the device");
    let back = testbed.join(0).wait();
    assert_eq!(back.code, Some(0), "{}", back.text);
    assert!(back.text.ends_with(r#"{"event":"completed","rounds":1}"#), "{}", back.text);
    let server = server.wait();
    assert_eq!(server.code, Some(0), "{}", server.text);
}

/// Until the device's silence is noticed, its connection looks as if it were there.
#[test]
fn a_device_that_was_lost_a_moment_before_the_run_ends_is_told_as_well() {
    let testbed = Testbed::new(2, &["run.rounds=1", "connection.timeout=600"]);
    let mut server = testbed.serve_with(&["--drain-timeout", "3600"]);
    let (mut lost, gate) = (testbed.join(0), testbed.gate(1));
    let held = gate.held();
    lost.object(&json!({ "event": "receipt", "round": 1, "verdict": "accepted" }));
    lost.kill();
    held.open();
    server.line("the wait", |line| line.contains("1 known device has not confirmed"));
    assert_eq!(gate.outcome(), SessionEnd::Completed { rounds: 1 });
    let back = testbed.join(0).wait();
    assert!(back.text.ends_with(r#"{"event":"completed","rounds":1}"#), "{}", back.text);
    assert_eq!(server.wait().code, Some(0), "and no device is waited for any more");
}

#[test]
fn the_number_of_devices_not_told_of_the_end_is_reported() {
    let testbed = Testbed::new(2, &["run.rounds=1", "connection.timeout=600"]);
    let server = testbed.serve_with(&["--drain-timeout", "0"]);
    let (mut lost, gate) = (testbed.join(0), testbed.gate(1));
    let held = gate.held();
    lost.object(&json!({ "event": "receipt", "round": 1, "verdict": "accepted" }));
    lost.kill();
    held.open();
    let server = server.wait();
    assert_eq!(server.code, Some(0), "{}", server.text);
    assert!(server.text.contains("1 known device was not told that the run is over"), "{}", server.text);
}

#[test]
fn a_service_that_is_started_again_leaves_a_complete_run_alone() {
    let testbed = Testbed::new(1, &["run.rounds=1"]);
    let server = testbed.serve_with(&["--once"]);
    let device = testbed.join(0);
    testbed.assert_completed(server, vec![device]);
    let arguments =
        [vec!["serve".to_owned()], testbed.serve_arguments("identity"), vec!["--once".to_owned()]].concat();
    let again = run(&programs().aggregator, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(again.code, Some(0), "{}", again.text);
    assert!(again.text.contains("is complete: there is nothing to do"), "{}", again.text);
    let runs: Vec<_> =
        std::fs::read_dir(testbed.path("runs")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(runs.len(), 1, "{runs:?}");
}

#[test]
fn a_run_that_is_removed_under_its_server_ends_with_the_reason() {
    for removed in ["", "state/spool", "state/accepted-000001"] {
        let testbed = with_gate();
        let server = testbed.serve();
        let mut devices = join(&testbed);
        let held = testbed.gate(4).held();
        accepted(&mut devices, 1);
        fs::remove_dir_all(testbed.run().join(removed)).unwrap();
        held.open();
        let ended = server.wait();
        assert_eq!(ended.code, Some(3), "{removed}: {}", ended.text);
        assert!(ended.text.contains("it was removed"), "{removed}: {}", ended.text);
        assert!(!ended.text.contains("what is on disk is safe"), "{removed}: {}", ended.text);
        devices.into_iter().for_each(Process::kill);
    }
}

#[test]
fn a_server_whose_key_is_lost_says_so_and_makes_no_other_by_itself() {
    let testbed = with_gate();
    let server = testbed.serve();
    let devices = join(&testbed);
    drop(testbed.gate(4).held());
    server.kill();
    devices.into_iter().for_each(Process::kill);
    let key = testbed.path("identity").join("server.key");
    fs::remove_file(&key).unwrap();
    let arguments = testbed.serve_arguments("identity");
    let arguments: Vec<&str> = ["serve"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let ended = run(&programs().aggregator, &arguments);
    assert_eq!(ended.code, Some(3), "{}", ended.text);
    assert!(ended.text.contains("--new-identity") && !key.exists(), "{}", ended.text);
    let server = testbed.serve_with(&["--new-identity"]);
    until("there is a key again", || key.exists());
    server.kill();
}
