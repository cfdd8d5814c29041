//! Notifications to systemd, as the packages' units expect them: readiness, status and watchdog; over
//! a socket as systemd's own.
#![cfg(unix)]

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, Receiver};

use federation_tests::gate::Sign;
use federation_tests::process::{INTERRUPTED, PATIENCE, Process};
use federation_tests::programs::programs;
use federation_tests::serving::split_data;
use federation_tests::testbed::Testbed;
use serde_json::json;

const OVERRIDES: [&str; 7] = [
    "model.name=cnn-small",
    "data.clients=1",
    "data.max-samples=100",
    "run.rounds=100000",
    "evaluate.every=0",
    "training.batch=10",
    "round.min-updates=1",
];

/// In the place of systemd, for one service.
struct Manager {
    told: Receiver<String>,
    heard: Vec<String>,
}

impl Manager {
    /// Reads notifications as they come, as systemd does: a socket holds a few datagrams, and a sender of more waits.
    fn new(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).expect("the path is free");
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            let mut datagram = [0; 4096];
            // Until the test has ended.
            while let Ok(length) = socket.recv(&mut datagram) {
                let text = std::str::from_utf8(&datagram[..length]).expect("text is told").to_owned();
                if tell.send(text).is_err() {
                    return;
                }
            }
        });
        Self { told, heard: Vec::new() }
    }

    /// Waits for a line that begins like this; gives all of it.
    fn hear(&mut self, wanted: &str) -> String {
        loop {
            let text = self.told.recv_timeout(PATIENCE).unwrap_or_else(|error| {
                panic!("{wanted} was never told ({error}); heard: {:?}", self.heard);
            });
            self.heard.extend(text.lines().map(str::to_owned));
            if let Some(line) = text.lines().find(|line| line.starts_with(wanted)) {
                return line.to_owned();
            }
        }
    }
}

/// As systemd starts a service with this `WatchdogSec`.
fn service(command: &mut Command, socket: &Path, watchdog_microseconds: u64) {
    command.env("NOTIFY_SOCKET", socket).env("WATCHDOG_USEC", watchdog_microseconds.to_string());
    command.env_remove("WATCHDOG_PID");
}

#[test]
fn both_programs_say_when_they_are_ready_what_they_do_and_that_they_get_on() {
    let directory = tempfile::tempdir().unwrap();
    let overrides = OVERRIDES.map(str::to_owned);
    split_data(directory.path(), &overrides);

    let socket = directory.path().join("lab");
    let mut testbed = Manager::new(&socket);
    let ready = directory.path().join("ready.json");
    let mut command = Command::new(&programs().aggregator);
    command
        .args([
            "serve",
            "--json",
            "--listen",
            "127.0.0.1:0",
            "--drain-timeout",
            "0",
            "--enrolment",
            "anyone",
            "--ready-file",
        ])
        .arg(&ready);
    command.arg("--runs").arg(directory.path().join("runs"));
    for change in &overrides {
        command.args(["--set", change]);
    }
    service(&mut command, &socket, 60_000_000);
    let aggregator = Process::start("aggregator", &mut command);
    testbed.hear("READY=1");
    assert!(ready.is_file(), "devices can join when the service is ready");
    assert_eq!(testbed.hear("STATUS="), "STATUS=waiting for clients: 0 of 1 connected");
    testbed.hear("WATCHDOG=1");
    let ready: serde_json::Value = serde_json::from_slice(&std::fs::read(&ready).unwrap()).unwrap();

    let socket = directory.path().join("device");
    let mut device = Manager::new(&socket);
    let mut command = Command::new(&programs().edge_client);
    command.args(["join", ready["address"].as_str().unwrap(), "--json", "--data"]);
    command.arg(directory.path().join("data/client-000"));
    command.arg("--state").arg(directory.path().join("state"));
    service(&mut command, &socket, 400_000);
    let mut client = Process::start("edge-client", &mut command);
    device.hear("READY=1");
    assert!(device.hear("STATUS=").starts_with("STATUS=connecting to 127.0.0.1"));
    client.object(&json!({ "event": "joined" }));
    device.hear("STATUS=round 1: training");
    // While there is one round after the other, and on both sides.
    for _ in 0..3 {
        device.hear("WATCHDOG=1");
    }
    testbed.hear("STATUS=round");
    testbed.hear("WATCHDOG=1");

    client.interrupt();
    device.hear("STOPPING=1");
    assert_eq!(client.wait().code, Some(INTERRUPTED));
    aggregator.interrupt();
    assert!(aggregator.wait().text.contains("stopp"), "it stops");
}

#[test]
fn without_systemd_nothing_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(&programs().edge_client);
    command.args(["join", "127.0.0.1:9", "--json", "--data"]);
    let overrides = OVERRIDES.map(str::to_owned);
    split_data(directory.path(), &overrides);
    command.arg(directory.path().join("data/client-000"));
    command.arg("--state").arg(directory.path().join("state"));
    // A watchdog of something else, inherited.
    command.env_remove("NOTIFY_SOCKET").env("WATCHDOG_USEC", "1");
    let mut client = Process::start("edge-client", &mut command);
    client.object(&json!({ "event": "connecting" }));
    client.interrupt();
    let ended = client.wait();
    assert_eq!(ended.code, Some(INTERRUPTED), "{}", ended.text);
    assert!(!ended.text.contains("systemd"), "{}", ended.text);
}

#[test]
fn training_that_hangs_is_not_told_to_get_on() {
    let testbed = Testbed::new(2, &["run.rounds=1", "data.max-samples=100", "evaluate.every=0"]);
    let _server = testbed.serve();
    let (device, other) = (testbed.gate(0), testbed.gate(1));
    let (held, _others) = (device.held(), other.held());
    // First the notifications from before the training was due; then time goes by, and the driver's loop runs.
    let mut alive = 0;
    for _ in 0..100 {
        while device.sign() != Sign::Progress {
            alive += 1;
        }
    }
    let early = std::mem::take(&mut alive);
    for _ in 0..100 {
        while device.sign() != Sign::Progress {
            alive += 1;
        }
    }
    assert_eq!(alive, 0, "{early} before");
    held.open();
    while device.sign() != Sign::Trained {}
    // The round goes on until the other one is done as well: there is nothing to train meanwhile.
    while device.sign() != Sign::Alive {}
}
