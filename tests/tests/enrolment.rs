//! Enrolment with the two real programs: tickets, approval, revocation, and a server that changes its key.
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use edge_client::session::SessionEnd;
use federation_tests::process::{Ended, Process, run, until};
use federation_tests::programs::programs;
use federation_tests::testbed::Testbed;
use serde_json::{Value, json};
use shared::message::Verdict;

/// A command about the lab's devices, tickets or keys.
fn aggregator(testbed: &Testbed, arguments: &[&str]) -> Ended {
    let identity = testbed.name("identity");
    run(&programs().aggregator, &[arguments, &["--identity", &identity]].concat())
}

/// A ticket for this lab, as text.
fn ticket(testbed: &Testbed, more: &[&str]) -> String {
    let address = testbed.address();
    let ended = aggregator(testbed, &[&["ticket", "--address", &address, "--json"], more].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    printed(&ended)["ticket"].as_str().unwrap().to_owned()
}

/// What a command has printed for programs: beside it, it may have told people something.
fn printed(ended: &Ended) -> Value {
    let object = ended.text.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(object.unwrap_or_else(|| panic!("{}", ended.text))).unwrap()
}

/// A device that is given these arguments, and otherwise what every device of the lab has.
fn device(testbed: &Testbed, index: u32, arguments: &[&str]) -> Process {
    let mut command = Command::new(&programs().edge_client);
    command.arg("join").args(arguments).args(["--json", "--threads", "1"]);
    command.arg("--data").arg(testbed.data(index)).arg("--state").arg(testbed.state(index));
    Process::start(&format!("device {index}"), &mut command)
}

fn listed(testbed: &Testbed) -> Vec<Value> {
    let ended = aggregator(testbed, &["devices", "list", "--json"]);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    serde_json::from_str(&ended.text).unwrap()
}

/// What a command that changes devices says of them to programs.
fn changed(testbed: &Testbed, arguments: &[&str]) -> Value {
    let ended = aggregator(testbed, &[&["devices", "--json"], arguments].concat());
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    serde_json::from_str(&ended.text).unwrap()
}

fn assert_refused(ended: &Ended, parts: &[&str]) {
    assert_eq!(ended.code, Some(4), "{}", ended.text);
    for part in parts {
        assert!(ended.text.contains(part), "{part:?} is not in:\n{}", ended.text);
    }
    assert!(!ended.text.contains("panicked"), "{}", ended.text);
}

#[test]
fn a_ticket_is_all_that_a_device_needs_ever() {
    let testbed = Testbed::new(2, &[]);
    // The server need not run yet.
    let text = ticket(&testbed, &["--uses", "2"]);
    let first = device(&testbed, 0, &[&text]);
    let second = device(&testbed, 1, &[&text.to_uppercase()]);
    // It stands in a file for its owner alone, and in no process's arguments.
    let known = testbed.state(0).join("server");
    until("the ticket is kept", || known.exists());
    assert_eq!(fs::metadata(&known).unwrap().permissions().mode() & 0o777, 0o600);
    #[cfg(target_os = "linux")]
    until("the ticket is out of the process list", || {
        let commands = fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
        !commands
            .map(|bytes| String::from_utf8_lossy(&bytes).to_lowercase())
            .any(|command| command.contains(&text))
    });
    // Killed before it ever reached the server, it needs no ticket again.
    first.kill();
    let first = device(&testbed, 0, &[]);
    let server = testbed.serve_with(&["--enrolment", "ticket"]);
    testbed.assert_completed(server, vec![first, second]);
    assert!(!fs::read_to_string(&known).unwrap().contains("fed1"), "it was taken");
    let devices = listed(&testbed);
    assert_eq!(devices.len(), 2);
    for device in &devices {
        assert_eq!((&device["standing"], &device["samples"]), (&json!("in"), &json!(80)), "{device}");
        assert_eq!(device["address"], "127.0.0.1");
    }
    let run = fs::read_dir(testbed.run()).unwrap();
    for file in run.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        let bytes = fs::read(&file).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains(&text), "{}", file.display());
    }
}

#[test]
fn a_server_asks_for_a_ticket_until_there_is_one() {
    let testbed = Testbed::new(1, &[]);
    let said = || {
        let server = testbed.serve_with(&["--enrolment", "ticket"]);
        server.interrupt();
        server.wait().text
    };
    let (asks, is_there) = ("no device may take part yet: `aggregator ticket", "there is a ticket for them");
    let before = said();
    assert!(before.contains(asks) && !before.contains(is_there), "{before}");
    drop(ticket(&testbed, &[]));
    let after = said();
    assert!(after.contains(is_there) && !after.contains(asks), "{after}");
}

#[test]
fn a_bad_ticket_is_refused_on_the_right_side() {
    let testbed = Testbed::new(2, &[]);
    // Mistyped: nothing is sent, and nothing kept.
    let text = ticket(&testbed, &[]);
    let slip = text.replacen(['a', 'b'], "c", 1);
    let ended = device(&testbed, 0, &[&slip]).wait();
    assert_eq!(ended.code, Some(2), "{}", ended.text);
    assert!(ended.text.contains("mistyped or not whole"), "{}", ended.text);
    assert!(!testbed.state(0).join("server").exists());

    let mut server = testbed.serve_with(&["--enrolment", "ticket"]);
    let shown = |part: &'static str| move |line: &str| line.contains(part);
    // No ticket at all, with a key of its own making.
    let address = testbed.address();
    let ended = device(&testbed, 0, &[&address]).wait();
    assert_refused(&ended, &["does not know this device", "aggregator ticket"]);
    server.line("an unknown device", shown("may not take part: the server does not know"));

    // Used up.
    device(&testbed, 1, &[&text]).object(&json!({ "event": "joined" }));
    assert_refused(&device(&testbed, 0, &[&text]).wait(), &["used by as many devices as it was made for"]);
    server.line("a used ticket", shown("as many devices"));
    // Replayed by the device that used it: it is in, with the ticket and without.
    device(&testbed, 1, &[&text]).object(&json!({ "event": "joined" }));
    device(&testbed, 1, &[]).object(&json!({ "event": "joined" }));

    // Expired, and withdrawn. Time is the server's.
    let brief = ticket(&testbed, &["--expires", "1s"]);
    until("the ticket has expired", || {
        aggregator(&testbed, &["ticket", "--list"]).text.contains("no ticket")
    });
    assert_refused(&device(&testbed, 0, &[&brief]).wait(), &["the ticket has expired"]);
    let withdrawn = ticket(&testbed, &[]);
    assert_eq!(aggregator(&testbed, &["ticket", "--withdraw", "3"]).code, Some(0));
    assert_refused(&device(&testbed, 0, &[&withdrawn]).wait(), &["knows no such ticket"]);

    // Of another server: the device says so, and shows it nothing.
    let elsewhere = Testbed::new(2, &[]);
    let foreign = aggregator(&elsewhere, &["ticket", "--address", &address, "--json"]);
    assert!(foreign.text.contains("the server's key was made in"), "{}", foreign.text);
    let foreign = printed(&foreign);
    let ended = device(&testbed, 0, &[foreign["ticket"].as_str().unwrap()]).wait();
    assert_refused(&ended, &["another server answers there"]);
    assert_eq!(listed(&testbed).len(), 1, "nothing is kept of a refused device");
}

#[test]
fn a_device_waits_for_approval_and_is_let_in_while_it_waits() {
    let testbed = Testbed::new(2, &[]);
    let server = testbed.serve_with(&["--enrolment", "approve"]);
    let address = testbed.address();
    let mut waiting = device(&testbed, 0, &[&address]);
    waiting.object(&json!({ "event": "turned-back" }));
    let client = testbed.client(0).to_string();
    assert_eq!(listed(&testbed)[0]["standing"], "waiting");
    assert_eq!(aggregator(&testbed, &["devices", "name", &client[..6], "window sill"]).code, Some(0));
    assert_eq!(
        changed(&testbed, &["approve", "window sill"]),
        json!([{ "device": client, "name": "window sill", "standing": "in" }])
    );
    waiting.object(&json!({ "event": "joined" }));
    let mut other = device(&testbed, 1, &[&address]);
    other.object(&json!({ "event": "turned-back" }));
    assert_eq!(aggregator(&testbed, &["devices", "approve", "--waiting"]).code, Some(0));
    assert_eq!(changed(&testbed, &["approve", "--waiting"]), json!([]), "no device waits any more");
    testbed.assert_completed(server, vec![waiting, other]);
}

#[test]
fn revocation_cuts_a_live_connection_and_the_round_goes_on() {
    let testbed = Testbed::new(3, &["round.min-updates=2", "data.max-samples=120"]);
    let server = testbed.serve();
    let mut revoked = testbed.join(0);
    revoked.object(&json!({ "event": "joined" }));
    let mut stays = testbed.join(1);
    stays.object(&json!({ "event": "joined" }));
    let client = testbed.client(0).to_string();
    assert_eq!(aggregator(&testbed, &["devices", "revoke", &client]).code, Some(0));
    assert_refused(&revoked.wait(), &["the operator has revoked this device"]);
    assert_refused(&testbed.join(0).wait(), &["the operator has revoked this device"]);
    // The first round waits for three: the third comes, and one that was revoked by mistake.
    assert_eq!(aggregator(&testbed, &["devices", "approve", &client]).code, Some(0));
    let devices = vec![testbed.join(0), stays, testbed.join(2)];
    testbed.assert_completed(server, devices);
}

#[test]
fn a_device_that_is_revoked_while_it_is_away_is_refused_when_it_comes_back_and_what_it_gave_counts() {
    let testbed = Testbed::new(3, &["round.min-updates=2", "data.max-samples=120"]);
    let mut server = testbed.serve();
    let (mut revoked, mut stays, gate) = (testbed.join(0), testbed.join(1), testbed.gate(2));
    let held = gate.held();
    for device in [&mut revoked, &mut stays] {
        device.object(&json!({ "event": "receipt", "round": 1, "verdict": "accepted" }));
    }
    revoked.kill();
    let client = testbed.client(0).to_string();
    let found = changed(&testbed, &["revoke", &client]);
    assert_eq!(found[0]["standing"], "revoked", "{found}");
    // The server looks for changes every now and then, and a connection without a device takes a while to end.
    let name = testbed.client(0).short();
    server.line("the end of it", |line| line.contains(&name) && line.contains("disconnected"));
    assert_refused(&testbed.join(0).wait(), &["the operator has revoked this device"]);
    held.open();
    for round in 2..=3 {
        assert_eq!(gate.receipt(round - 1), Verdict::Accepted);
        let held = gate.held();
        assert_eq!(held.round, round);
        held.open();
    }
    assert_eq!(gate.outcome(), SessionEnd::Completed { rounds: 3 });
    let ended = stays.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    // It is not waited for, in a round or at the end.
    let ended = server.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    assert!(!ended.text.contains("known devices"), "{}", ended.text);
    let counts: Vec<_> = testbed.rounds().iter().map(|round| (round.sampled, round.accepted)).collect();
    assert_eq!(counts, [(3, 3), (2, 2), (2, 2)]);
}

#[test]
fn devices_follow_a_server_that_changes_its_key() {
    let testbed = Testbed::new(2, &[]);
    let server = testbed.serve();
    let former = testbed.key().to_string();
    let mut live = testbed.join(0);
    live.object(&json!({ "event": "joined" }));
    let changed = aggregator(&testbed, &["key", "rotate", "--overlap", "1h"]);
    assert_eq!(changed.code, Some(0), "{}", changed.text);
    let key = changed.text.lines().find(|line| line.len() == 64).unwrap().to_owned();
    assert_ne!(key, former);
    // It hears of it while it is connected.
    live.object(&json!({ "event": "server-key", "key": key }));
    let known = testbed.state(0).join("server");
    until("the new key is remembered", || fs::read_to_string(&known).unwrap().contains(&key));
    let again = aggregator(&testbed, &["key", "rotate"]);
    assert_eq!(again.code, Some(3), "{}", again.text);
    assert!(again.text.contains("--force"), "{}", again.text);
    // A device that knows the former key alone may come for as long as that is in use, and follows.
    let mut away = testbed.join_with(1, &["--server-key", &former]);
    away.object(&json!({ "event": "server-key", "key": key }));
    testbed.assert_completed(server, vec![live, away]);
}

#[test]
fn what_is_asked_of_devices_that_are_not_there_says_what_to_do() {
    let testbed = Testbed::new(1, &[]);
    let nothing = aggregator(&testbed, &["devices", "list"]);
    assert_eq!(nothing.code, Some(3), "{}", nothing.text);
    assert!(nothing.text.contains("--identity"), "{}", nothing.text);
    let absent = aggregator(&testbed, &["key", "show"]);
    assert_eq!(absent.code, Some(3), "{}", absent.text);
    assert!(absent.text.contains("aggregator serve"), "{}", absent.text);
    let ended = device(&testbed, 0, &[]).wait();
    assert_eq!(ended.code, Some(3), "{}", ended.text);
    assert!(ended.text.contains("join with a ticket"), "{}", ended.text);
    drop(ticket(&testbed, &[]));
    let withdrawn = aggregator(&testbed, &["ticket", "--withdraw", "1", "--json"]);
    assert_eq!((withdrawn.code, printed(&withdrawn)), (Some(0), json!({ "withdrawn": 1 })));
    for arguments in [&["devices", "revoke", "0123"][..], &["ticket", "--withdraw", "7"]] {
        let ended = aggregator(&testbed, arguments);
        assert_eq!(ended.code, Some(2), "{}", ended.text);
    }
}
