//! Backup and restore with the two real programs, as the operator's manual (`files.md`) has them.
#![cfg(unix)]

use std::fs;
use std::path::Path;

use federation_tests::copy_folder::copy_folder;
use federation_tests::process::{Ended, INTERRUPTED, Process, run, until};
use federation_tests::programs::programs;
use federation_tests::testbed::Testbed;
use serde_json::{Value, json};

/// A federation of two devices whose run takes a few seconds.
fn federation(settings: &[&str]) -> Testbed {
    Testbed::new(2, &[&["run.rounds=60", "data.max-samples=80"], settings].concat())
}

/// A device that has joined by a ticket of its own, once and for all.
fn enrolled(testbed: &Testbed, index: u32) -> Process {
    let (identity, address) = (testbed.name("identity"), testbed.address());
    let printed =
        run(&programs().aggregator, &["ticket", "--json", "--identity", &identity, "--address", &address]);
    let object = printed.text.lines().find(|line| line.starts_with('{')).unwrap();
    let ticket = serde_json::from_str::<Value>(object).unwrap()["ticket"].as_str().unwrap().to_owned();
    Process::start(&format!("device {index}"), &mut testbed.join_command(index, &ticket))
}

fn serve(testbed: &Testbed) -> Process {
    testbed.serve_with(&["--enrolment", "ticket"])
}

fn reaches(testbed: &Testbed, rounds: usize) {
    until(&format!("{rounds} rounds are closed"), || testbed.closed() >= rounds);
}

/// What a backup is of, in the manual.
const BACKED_UP: [&str; 2] = ["runs", "identity"];

fn copy_all(testbed: &Testbed, to: &Path) {
    for name in BACKED_UP {
        copy_folder(&testbed.path(name), &to.join(name));
    }
}

fn put_back(testbed: &Testbed, from: &Path) {
    for name in BACKED_UP {
        fs::remove_dir_all(testbed.path(name)).unwrap();
        copy_folder(&from.join(name), &testbed.path(name));
    }
}

fn stop(server: Process) {
    server.interrupt();
    let ended = server.wait();
    assert_eq!(ended.code, Some(INTERRUPTED), "{}", ended.text);
}

#[test]
fn a_backup_of_a_stopped_server_is_put_back_and_devices_go_on_to_the_same_model() {
    let (testbed, backup) = (federation(&[]), tempfile::tempdir().unwrap());
    let server = serve(&testbed);
    let devices = vec![enrolled(&testbed, 0), enrolled(&testbed, 1)];
    reaches(&testbed, 2);
    stop(server);
    let then = testbed.closed();
    copy_all(&testbed, backup.path());
    let server = serve(&testbed);
    reaches(&testbed, then + 3);
    server.kill();
    put_back(&testbed, backup.path());
    assert_eq!(testbed.closed(), then);
    // The devices know rounds that never were, by now.
    let server = serve(&testbed);
    testbed.assert_completed(server, devices);
}

#[test]
fn of_client_state_that_is_ahead_of_a_restored_run_both_sides_are_told() {
    let (testbed, backup) = (federation(&["algorithm.scaffold={}"]), tempfile::tempdir().unwrap());
    let server = serve(&testbed);
    let mut devices = vec![enrolled(&testbed, 0), enrolled(&testbed, 1)];
    reaches(&testbed, 2);
    stop(server);
    let then = testbed.closed();
    copy_all(&testbed, backup.path());
    let server = serve(&testbed);
    reaches(&testbed, then + 3);
    stop(server);
    let later = testbed.closed();
    put_back(&testbed, backup.path());
    let server = serve(&testbed);
    let mut differences = Vec::new();
    for device in &mut devices {
        let said = device.object(&json!({ "event": "client-state" }));
        // A round that was open when the server stopped may have this device's update already, both times.
        let round = |side: &str| said[side].as_u64().unwrap() as usize;
        let (server, device) = (round("server_round"), round("device_round"));
        assert!([then, then + 1].contains(&server), "{said}");
        assert!([later, later + 1].contains(&device), "{said}");
        differences.push((server, device));
    }
    let Ended { code, text } = server.wait();
    assert_eq!(code, Some(0), "{text}");
    for (index, (server, device)) in (0..2).zip(differences) {
        let name = testbed.client(index).short();
        let rounds = [format!("round {server}"), format!("round {device}")];
        let tells =
            |line: &&str| line.contains(&name) && rounds.iter().all(|round| line.contains(round.as_str()));
        let told = text.lines().filter(tells).count();
        assert_eq!(told, 1, "it is not told once of {name} with {rounds:?}:\n{text}");
    }
    for device in devices {
        assert_eq!(device.wait().code, Some(0));
    }
}

#[test]
fn an_identity_that_is_copied_while_the_server_runs_is_whole() {
    let (testbed, backup) = (federation(&[]), tempfile::tempdir().unwrap());
    let server = serve(&testbed);
    let devices = vec![enrolled(&testbed, 0), enrolled(&testbed, 1)];
    reaches(&testbed, 1);
    let identity = testbed.path("identity");
    fs::copy(identity.join("server.key"), backup.path().join("server.key")).unwrap();
    let copy = backup.path().join("aggregator.sqlite3");
    let database = rusqlite::Connection::open(identity.join("aggregator.sqlite3")).unwrap();
    database.execute("VACUUM INTO ?1", [copy.to_str().unwrap()]).unwrap();
    drop(database);
    reaches(&testbed, 3);
    server.kill();
    fs::remove_dir_all(&identity).unwrap();
    copy_folder(backup.path(), &identity);
    // No device needs another ticket.
    let server = serve(&testbed);
    testbed.assert_completed(server, devices);
}

#[test]
fn a_device_goes_on_with_an_earlier_copy_of_its_state() {
    let (testbed, backup) = (federation(&[]), tempfile::tempdir().unwrap());
    let server = serve(&testbed);
    let first = enrolled(&testbed, 0);
    let second = enrolled(&testbed, 1);
    reaches(&testbed, 2);
    let stopped = |device: Process| {
        device.interrupt();
        assert_eq!(device.wait().code, Some(INTERRUPTED));
    };
    stopped(second);
    copy_folder(&testbed.state(1), backup.path());
    let second = testbed.join(1);
    let then = testbed.closed();
    reaches(&testbed, then + 3);
    stopped(second);
    fs::remove_dir_all(testbed.state(1)).unwrap();
    copy_folder(backup.path(), &testbed.state(1));
    // Its key is in the copy: it is the same device, and needs no ticket.
    let second = Process::start("device 1", &mut {
        let mut command = std::process::Command::new(&programs().edge_client);
        command.args(["join", "--json", "--threads", "1"]);
        command.arg("--data").arg(testbed.data(1)).arg("--state").arg(testbed.state(1));
        command
    });
    testbed.assert_completed(server, vec![first, second]);
}

/// Makes the files of server and devices those of a newer program: their format has the next number.
fn made_newer(testbed: &Testbed) {
    let database = rusqlite::Connection::open(testbed.path("identity").join("aggregator.sqlite3")).unwrap();
    let version: i64 = database.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    database.pragma_update(None, "user_version", version + 1).unwrap();
    for index in 0..2 {
        let run = fs::read_dir(testbed.state(index).join("runs")).unwrap().next().unwrap().unwrap().path();
        let file = run.join("local");
        let mut bytes = fs::read(&file).unwrap();
        // The format version stands behind the three letters of the kind.
        bytes[3] += 1;
        fs::write(&file, bytes).unwrap();
    }
}

/// Stops everything while no update is on its way: what a device has kept is then its state alone.
fn stop_between_rounds(testbed: &Testbed, server: Process, devices: [Process; 2]) {
    let identity = testbed.name("identity");
    let asks =
        |request: &[&str]| run(&programs().aggregator, &[request, &["--identity", &identity]].concat());
    assert_eq!(asks(&["pause"]).code, Some(0));
    until("the run pauses", || asks(&["status", "--json"]).text.contains(r#""held":true"#));
    let received = |index: u32| !testbed.state(index).join("outbox").exists();
    until("the devices have every receipt", || (0..2).all(received));
    for device in devices {
        device.interrupt();
        assert_eq!(device.wait().code, Some(INTERRUPTED));
    }
    stop(server);
    assert_eq!(asks(&["resume"]).code, Some(0));
}

#[test]
fn after_a_downgrade_what_is_too_new_is_named_and_the_backup_goes_on() {
    let (testbed, backup) = (federation(&["algorithm.scaffold={}"]), tempfile::tempdir().unwrap());
    let server = serve(&testbed);
    let devices = [enrolled(&testbed, 0), enrolled(&testbed, 1)];
    reaches(&testbed, 2);
    stop_between_rounds(&testbed, server, devices);
    copy_all(&testbed, backup.path());
    let kept = |index: u32| backup.path().join(format!("state-{index}"));
    (0..2).for_each(|index| copy_folder(&testbed.state(index), &kept(index)));

    made_newer(&testbed);
    let refused = testbed.try_to_serve().wait();
    assert_eq!(refused.code, Some(3), "{}", refused.text);
    assert!(refused.text.contains("was made by a newer aggregator"), "{}", refused.text);
    put_back(&testbed, backup.path());
    let server = serve(&testbed);
    let mut devices = [testbed.join(0), testbed.join(1)];
    for device in &mut devices {
        let said = device.line("what is too new", |line| line.contains("newer"));
        assert!(said.contains("local"), "{said}");
    }
    for device in devices {
        device.interrupt();
        assert_eq!(device.wait().code, Some(INTERRUPTED));
    }
    for index in 0..2 {
        fs::remove_dir_all(testbed.state(index)).unwrap();
        copy_folder(&kept(index), &testbed.state(index));
    }
    // A round that fails meanwhile, since no device can train, is one more.
    for process in [testbed.join(0), testbed.join(1), server] {
        let ended = process.wait();
        assert_eq!(ended.code, Some(0), "{}", ended.text);
    }
}
