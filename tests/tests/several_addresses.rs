//! One server at several addresses: devices that are given some, and learn others from the server.
#![cfg(unix)]

use std::fs;
use std::process::Command;

use federation_tests::process::{Process, run, until};
use federation_tests::programs::programs;
use federation_tests::testbed::{Testbed, free_port};
use serde_json::{Value, json};

fn local(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// Starts a device that is given this place for the server.
fn join(testbed: &Testbed, index: u32, place: &str) -> Process {
    Process::start(&format!("device {index}"), &mut testbed.join_command(index, place))
}

/// What a device keeps of its server.
fn kept(testbed: &Testbed, index: u32) -> Value {
    let text = fs::read_to_string(testbed.state(index).join("server")).expect("it has met its server");
    let json = shared::text_checksum::content(&text).expect("whole");
    serde_json::from_str(json).expect("JSON")
}

#[test]
fn a_device_that_is_given_a_dead_address_and_a_live_one_trains_to_the_end() {
    let testbed = Testbed::new(2, &[]);
    let server = testbed.serve();
    let (dead, live) = (local(free_port()), testbed.address());
    let devices = vec![
        join(&testbed, 0, &format!("{dead},{live}")),
        join(&testbed, 1, &format!("{live},localhost:{},{dead}", free_port())),
    ];
    testbed.assert_completed(server, devices);
    for index in 0..2 {
        let kept = kept(&testbed, index);
        assert_eq!((&kept["last"], kept.get("told")), (&json!(live), None), "{kept}");
    }
}

#[test]
fn a_ticket_names_several_addresses() {
    let testbed = Testbed::new(1, &[]);
    let server = testbed.serve_with(&["--enrolment", "ticket"]);
    let (dead, identity) = (local(free_port()), testbed.name("identity"));
    let addresses = format!("{dead},{}", testbed.address());
    let arguments = ["ticket", "--json", "--identity", &identity, "--address", &addresses];
    let printed = run(&programs().aggregator, &arguments);
    let printed: Value = serde_json::from_str(&printed.text).expect("JSON");
    assert_eq!(printed["addresses"], json!([dead, testbed.address()]));
    let ticket = printed["ticket"].as_str().expect("a ticket");
    let device = join(&testbed, 0, ticket);
    testbed.assert_completed(server, vec![device]);
}

#[test]
fn devices_go_on_at_an_address_that_the_server_told_them_also_after_a_restart() {
    let testbed = Testbed::new(3, &["run.rounds=6", "data.max-samples=200"]);
    let (former, next) = (testbed.address(), free_port());
    let told = json!([former, local(next)]);
    // The last one is given away: the round waits for it.
    let server = testbed.serve_with(&["--also-at", &local(next)]);
    let mut devices: Vec<_> = (0..2).map(|index| join(&testbed, index, &former)).collect();
    for (device, index) in devices.iter_mut().zip(0..) {
        device.object(&json!({ "event": "servers", "addresses": told }));
        until("the list is kept", || kept(&testbed, index)["told"] == told);
    }
    server.kill();

    // The server's folder moves on, to another address.
    let testbed = testbed.moved(next);
    let restarted = devices.remove(0);
    restarted.kill();
    let server = testbed.serve();
    let mut devices = vec![join(&testbed, 0, &former), devices.remove(0), join(&testbed, 2, &local(next))];
    for device in &mut devices[..2] {
        device.object(&json!({ "event": "connected", "server": local(next) }));
    }
    testbed.assert_completed(server, devices);
    for index in 0..2 {
        let kept = kept(&testbed, index);
        assert_eq!((&kept["last"], &kept["told"]), (&json!(local(next)), &told), "kept for the next start");
        assert_eq!(kept["addresses"], json!([former]), "what its owner gave stays");
    }
}

#[test]
fn an_unauthenticated_server_changes_nothing_of_what_a_device_keeps() {
    let testbed = Testbed::new(1, &[]);
    let elsewhere = Testbed::new(1, &[]);
    // Another key, and a list of its own.
    let impostor = elsewhere.serve_with(&["--also-at", "192.0.2.7:4433"]);
    let server = testbed.serve();
    let (key, wrong) = (testbed.key().to_string(), elsewhere.address());
    let both = format!("{wrong},{}", testbed.address());
    let mut command: Command = testbed.join_command(0, &both);
    let device = Process::start("device 0", command.args(["--server-key", &key]));
    testbed.assert_completed(server, vec![device]);
    let kept = kept(&testbed, 0);
    assert_eq!(kept.get("told"), None, "{kept}");
    assert_eq!((&kept["key"], &kept["last"]), (&json!(key), &json!(testbed.address())));

    // The one that answers is another server: nothing is learned from it, and nothing lost.
    let before = fs::read(testbed.state(0).join("server")).expect("it is there");
    let refused = join(&testbed, 0, &wrong).wait();
    assert_eq!(refused.code, Some(4), "{}", refused.text);
    assert!(!refused.text.contains("192.0.2.7"), "{}", refused.text);
    assert!(fs::read(testbed.state(0).join("server")).expect("still there") == before);
    impostor.kill();
}
