//! What an operator is shown and told, with the two real programs: the server that a device waits for, commands that work as they
//! are printed, and no false alarms.
#![cfg(unix)]

use std::process::Command;

use federation_tests::process::{Ended, INTERRUPTED, Process, run, until};
use federation_tests::programs::programs;
use federation_tests::testbed::Testbed;
use serde_json::{Value, json};

fn aggregator(arguments: &[&str]) -> Ended {
    run(&programs().aggregator, arguments)
}

/// The object that a command has printed; beside it, it may have told people something.
fn printed(ended: &Ended) -> Value {
    let object = ended.text.lines().find(|line| line.starts_with('{'));
    serde_json::from_str(object.unwrap_or_else(|| panic!("{}", ended.text))).unwrap()
}

#[test]
fn status_and_ticket_name_the_server_that_devices_wait_for_and_not_the_one_that_was_started_last() {
    let (first, second) = (Testbed::new(1, &[]), Testbed::new(1, &["run.name=second"]));
    let identity = first.name("identity");
    let at = |place: &str| {
        let ended = aggregator(&["ticket", "--json", "--identity", &identity]);
        let ticket = printed(&ended);
        assert_eq!(ticket["addresses"], json!([place]), "{}", ended.text);
    };
    let killed = first.serve();
    let stopped = second.serve_as(&identity);
    let both = aggregator(&["status", "--identity", &identity]).text;
    assert!(both.contains("glyphs-fedavg") && both.contains("second"), "{both}");
    stopped.interrupt();
    assert_eq!(stopped.wait().code, Some(INTERRUPTED));
    at(&first.address());
    killed.kill();
    // Both are away now; the one that was not stopped is what devices wait for.
    at(&first.address());
    let status = aggregator(&["status", "--identity", &identity]);
    assert_eq!(status.code, Some(5), "{}", status.text);
    assert!(status.text.contains("glyphs-fedavg") && !status.text.contains("second"), "{}", status.text);
    let line = aggregator(&["status", "--json", "--identity", &identity]);
    assert_eq!((&printed(&line)["ended"], &printed(&line)["serving"]), (&Value::Null, &json!(false)));
}

/// The command between backquotes that begins so, as a person would type it.
fn quoted<'a>(text: &'a str, begins: &str) -> Vec<&'a str> {
    let command = text.split('`').skip(1).step_by(2).find(|quoted| quoted.starts_with(begins));
    command.unwrap_or_else(|| panic!("no `{begins} ...` in:\n{text}")).split(' ').skip(1).collect()
}

#[test]
fn printed_commands_reach_the_server_that_has_printed_them() {
    // The key among the runs, as a service has it; and a directory of its own.
    for option in ["--runs", "--identity"] {
        let testbed = Testbed::new(1, &["run.rounds=500"]);
        let mut arguments = testbed.serve_arguments("identity");
        if option == "--runs" {
            let identity = arguments.iter().position(|argument| argument == "--identity").unwrap();
            arguments.drain(identity..identity + 2);
        }
        let mut command = Command::new(&programs().aggregator);
        command.arg("serve").args(&arguments).args(["--enrolment", "approve"]);
        let mut server = Process::start("the aggregator", &mut command);
        server.line("listening", |line| line.contains("listening on "));
        let mut device = testbed.join(0);
        let asks = server.line("a device waits", |line| line.contains("waits for approval"));
        let approve = quoted(&asks, "aggregator devices approve");
        assert!(approve.contains(&option), "{asks}");
        let ended = aggregator(&approve);
        assert_eq!(ended.code, Some(0), "{approve:?}: {}", ended.text);
        device.object(&json!({ "event": "joined" }));
        let asked = aggregator(&[&["pause"], &approve[approve.len() - 2..]].concat());
        let resume = quoted(&asked.text, "aggregator resume");
        assert_eq!(aggregator(&resume).code, Some(0), "{resume:?}");
        device.kill();
        server.interrupt();
        let _ = server.wait();
    }
}

#[test]
fn a_device_that_was_killed_and_comes_back_is_no_alarm_and_one_that_was_revoked_is_said_to_be() {
    // A dead connection is not noticed by its silence here, but by the new one.
    let testbed = Testbed::new(2, &["connection.timeout=60"]);
    let mut server = testbed.serve();
    let mut device = testbed.join(0);
    device.object(&json!({ "event": "joined" }));
    device.kill();
    let mut device = testbed.join(0);
    device.object(&json!({ "event": "joined" }));
    let name = testbed.client(0).short();
    let said = server.line("the new connection", |line| line.contains(&name) && line.contains("connection,"));
    assert!(said.contains("it was restarted") && !said.contains("refused"), "{said}");
    assert!(!said.contains("WARNING"), "{said}");
    let identity = testbed.name("identity");
    let revoked = aggregator(&["devices", "revoke", &testbed.client(0).to_string(), "--identity", &identity]);
    assert_eq!(revoked.code, Some(0), "{}", revoked.text);
    // On a slow machine the device may have connected more often, and the server says so of the oldest connection.
    let ends =
        |line: &str| line.contains("disconnected") && !line.contains("newer connections of the device");
    let said = server.line("its end", |line| line.contains(&name) && ends(line));
    assert!(said.contains("was revoked"), "{said}");
    assert_eq!(device.wait().code, Some(4));
    until("the server has counted one device less", || {
        printed(&aggregator(&["status", "--json", "--identity", &identity]))["status"]["connected"] == 0
    });
    server.kill();
}
