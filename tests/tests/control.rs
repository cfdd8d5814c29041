//! Requests to a running server from another shell, and what `status` and `devices show` say, with the two real programs.
#![cfg(unix)]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use federation_tests::process::{Ended, INTERRUPTED, Process, run, until};
use federation_tests::programs::programs;
use federation_tests::testbed::Testbed;
use serde_json::{Value, json};

/// A command about this server.
fn aggregator(testbed: &Testbed, arguments: &[&str]) -> Ended {
    let identity = testbed.name("identity");
    run(&programs().aggregator, &[arguments, &["--identity", &identity]].concat())
}

fn printed(testbed: &Testbed, arguments: &[&str]) -> Value {
    let ended = aggregator(testbed, arguments);
    let line = ended.text.lines().find(|line| line.starts_with(['{', '[']));
    serde_json::from_str(line.unwrap_or_else(|| panic!("{}", ended.text))).expect("a line of JSON")
}

fn is_held(testbed: &Testbed) -> bool {
    printed(testbed, &["status", "--json"])["status"]["held"] == json!(true)
}

#[test]
fn a_run_is_paused_over_a_restart_and_resumed_and_stopped_from_another_shell() {
    let testbed = Testbed::new(1, &["run.rounds=500"]);
    let server = testbed.serve();
    let device = testbed.join(0);
    until("a round is closed", || testbed.closed() > 0);
    let asked = aggregator(&testbed, &["pause"]);
    assert_eq!(asked.code, Some(0), "{}", asked.text);
    assert!(asked.text.contains("`aggregator resume"), "{}", asked.text);
    until("it pauses", || is_held(&testbed));
    let status = aggregator(&testbed, &["status"]).text;
    assert!(
        status.contains("PAUSED on request") && status.contains("1 of 1 known device connected"),
        "{status}"
    );
    assert!(
        status.contains(&format!("`aggregator resume --identity {}`", testbed.name("identity"))),
        "{status}"
    );

    let asked = aggregator(&testbed, &["stop"]);
    assert_eq!(asked.code, Some(0), "{}", asked.text);
    let stopped = server.wait();
    assert!(
        stopped.text.contains("asked to stop") && stopped.text.contains("stopped after round"),
        "{}",
        stopped.text
    );
    let status = aggregator(&testbed, &["status"]);
    assert_eq!(status.code, Some(5), "{}", status.text);
    assert!(
        status.text.contains("the server was stopped at") && !status.text.contains("connected,"),
        "{}",
        status.text
    );
    let status = &printed(&testbed, &["status", "--json"])["status"];
    let closed = testbed.closed();
    assert_eq!((&status["connected"], &status["closed"]), (&json!(0), &json!(closed)));
    let server = testbed.serve();
    until("the pause holds after a restart", || is_held(&testbed));
    assert_eq!(testbed.closed(), closed);
    let asked = printed(&testbed, &["resume", "--json"]);
    assert_eq!((&asked["changed"], &asked["served"]), (&json!(true), &json!(true)), "{asked}");
    until("rounds are closed again", || testbed.closed() > closed);

    let id = testbed.client(0).to_string();
    let shown = printed(&testbed, &["devices", "show", &id[..6], "--json"]);
    assert_eq!(shown["device"], id.as_str());
    let record = &shown["runs"][0];
    assert!(record["accepted"].as_u64() > Some(0) && record["bytes"].as_f64() > Some(0.0), "{shown}");
    let again = aggregator(&testbed, &["stop"]);
    assert_eq!(again.code, Some(0), "{}", again.text);
    let _ = server.wait();
    let nothing = aggregator(&testbed, &["stop"]);
    assert_eq!(nothing.code, Some(3), "{}", nothing.text);
    device.kill();
}

#[test]
fn a_watcher_on_a_pipe_prints_what_changes_and_ends_with_the_run() {
    let testbed = Testbed::new(1, &["run.rounds=3"]);
    let server = testbed.serve();
    let identity = testbed.name("identity");
    let mut command = std::process::Command::new(&programs().aggregator);
    command.args(["status", "--watch", "--identity", &identity]);
    let mut watcher = Process::start("watcher", &mut command);
    watcher.line("the page before any device", |line| line.contains("waits for clients"));
    let device = testbed.join(0);
    testbed.assert_completed(server, vec![device]);
    let seen = watcher.wait();
    assert_eq!(seen.code, Some(0), "{}", seen.text);
    assert!(seen.text.contains("complete since"), "{}", seen.text);
    assert!(!seen.text.contains('\u{1b}'), "{}", seen.text);
}

/// What `edge-client status --json` says of a device.
fn device_status(testbed: &Testbed, index: u32) -> Value {
    let state = testbed.state(index).display().to_string();
    let said = run(&programs().edge_client, &["status", "--json", "--state", &state]);
    assert_eq!(said.code, Some(0), "{}", said.text);
    serde_json::from_str(said.text.trim()).unwrap()
}

#[test]
fn a_device_says_what_it_does_to_people_and_to_programs() {
    let testbed = Testbed::new(2, &["run.rounds=400", "training.epochs=20"]);
    let none = device_status(&testbed, 0);
    assert_eq!((&none["running"], &none["status"]), (&json!(false), &Value::Null));
    let server = testbed.serve();
    let socket = testbed.path("status");
    let first = testbed.join_with(0, &["--listen", &format!("unix:{}", socket.display())]);
    let second = testbed.join(1);
    until("an update of each is accepted", || {
        (0..2).all(|index| device_status(&testbed, index)["status"]["accepted"].as_u64().unwrap_or(0) > 0)
    });
    let said = device_status(&testbed, 0);
    assert_eq!(said["running"], true, "{said}");
    let status = &said["status"];
    assert_eq!(status["client"], json!(testbed.client(0)), "{said}");
    assert!(status["connected"].is_i64() && status["ended"].is_null(), "{said}");
    assert_eq!(status["last"][0]["result"], "accepted", "{said}");
    let mut stream = UnixStream::connect(&socket).unwrap();
    stream.write_all(b"\n").unwrap();
    let mut told = String::new();
    stream.read_to_string(&mut told).unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    assert!(told["accepted"].as_u64() >= status["accepted"].as_u64(), "{told} after {said}");

    second.kill();
    let killed = device_status(&testbed, 1);
    assert_eq!((&killed["running"], &killed["status"]["ended"]), (&json!(false), &Value::Null));
    let stopped = [server, first];
    for process in stopped {
        process.interrupt();
        assert_eq!(process.wait().code, Some(INTERRUPTED));
    }
    let stopped = device_status(&testbed, 0);
    assert_eq!(stopped["running"], false, "{stopped}");
    assert!(stopped["status"]["ended"].as_str().is_some_and(|how| how.contains("stopped")), "{stopped}");
    assert!(!socket.exists(), "no program finds a socket that nothing answers");
}

#[test]
fn the_log_is_json_for_collectors_of_logs() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs").display().to_string();
    let settings = ["--set", "run.rounds=2", "--set", "data.clients=2", "--set", "data.max-samples=100"];
    let arguments =
        [&["simulate", "--log-format", "json", "--json", "--runs", &runs][..], &settings].concat();
    let ended = run(&programs().aggregator, &arguments);
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    let lines: Vec<Value> = ended
        .text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
        .collect();
    let new = lines.iter().find(|line| line["text"].as_str().is_some_and(|text| text.contains("new run in")));
    assert_eq!(new.unwrap()["run"], "glyphs-fedavg", "{}", ended.text);
    let rounds = lines.iter().filter(|line| line["event"] == "round" && line["run"] == "glyphs-fedavg");
    assert_eq!(rounds.count(), 2, "{}", ended.text);
    // And the last word of a command that fails.
    let wrong = run(&programs().aggregator, &["report", "none", "--log-format", "json", "--runs", &runs]);
    let told: Value = serde_json::from_str(wrong.text.lines().last().unwrap()).unwrap();
    assert_eq!(told["level"], "alarm", "{}", wrong.text);
    assert!(wrong.code.is_some_and(|code| code != 0) && told["text"].is_string(), "{told}");
}
