//! The database's record of a run, across crashes of the processes that serve it.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use aggregator::coordinator::Outcome;
use aggregator::database::Database;
use aggregator::round::RoundRecord;
use federation_tests::faults::Faults;
use federation_tests::faulty_disk::Loss;
use federation_tests::process::{INTERRUPTED, Process, until};
use federation_tests::programs::programs;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::Simulator;
use federation_tests::testbed::Testbed;
use serde_json::{Value, json};
use shared::message::Verdict;

const LIMIT: Duration = Duration::from_hours(24);

/// Whose updates were accepted in which round, as often as it is said.
fn accepted(database: &Database, run: &str, rounds: u32) -> BTreeMap<u32, Vec<String>> {
    let of = |round| {
        let arrivals = database.arrivals(run, round).unwrap().into_iter();
        let accepted = arrivals.filter(|arrival| arrival.verdict == "accepted");
        (round, accepted.map(|arrival| format!("{} {}", arrival.device, arrival.times)).collect())
    };
    (1..=rounds).map(of).collect()
}

/// The rounds that are closed.
fn closed(database: &Database, run: &str) -> Vec<RoundRecord> {
    database.rounds(run, u32::MAX).unwrap().into_iter().filter_map(|round| round.record).collect()
}

/// A run of three rounds of all four clients, the aggregator dying at one operation of the disk.
fn simulator(directory: &Path, database: &Database, death: Option<(usize, Loss)>) -> Simulator {
    let scenario = Scenario::small(&["round.min-updates=4"]);
    let mut simulator = Simulator::new(scenario, Faults::NONE, 0, directory);
    simulator.database = Some(database.clone());
    if let Some((fatal, loss)) = death {
        simulator.die_at(fatal, loss);
    }
    assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed), "{death:?}");
    simulator
}

#[test]
fn no_round_is_missing_and_none_is_there_twice_wherever_the_aggregator_dies() {
    let folder = tempfile::tempdir().unwrap();
    // One database for all runs, as a lab has it; each world's run has an identity of its own.
    let database = Database::open(&folder.path().join("identity")).unwrap();
    let whole = simulator(&folder.path().join("calm"), &database, None).disk().operations();
    assert!(whole > 150, "only {whole} operations were counted");
    // Every other operation: nearly all that matters comes in pairs of halves of a write.
    for fatal in (0..whole).step_by(2) {
        let loss = if fatal % 4 == 0 { Loss::Nothing } else { Loss::Everything };
        let directory = tempfile::tempdir().unwrap();
        let simulator = simulator(directory.path(), &database, Some((fatal, loss)));
        let run = database.runs().unwrap().remove(0);
        assert_eq!(Path::new(&run.directory), simulator.run_directory().root(), "death at operation {fatal}");
        assert_eq!(closed(&database, &run.run), simulator.records(), "death at operation {fatal}");
        let devices: Vec<_> =
            simulator.trainings().keys().map(|(_, client)| format!("{client} 1")).take(4).collect();
        let expected = (1..=3).map(|round| (round, devices.clone())).collect();
        assert_eq!(
            accepted(&database, &run.run, 4),
            with_nothing_after(expected),
            "death at operation {fatal}"
        );
    }
}

/// No round after the third was ever opened.
fn with_nothing_after(mut rounds: BTreeMap<u32, Vec<String>>) -> BTreeMap<u32, Vec<String>> {
    rounds.insert(4, Vec::new());
    rounds
}

/// What `aggregator status --json` says, with its exit code.
fn status(testbed: &Testbed) -> (Option<i32>, Value) {
    status_of(testbed, &[])
}

fn status_of(testbed: &Testbed, more: &[&str]) -> (Option<i32>, Value) {
    let mut command = Command::new(&programs().aggregator);
    command.args(["status", "--json", "--identity", &testbed.name("identity")]).args(more);
    let ended = Process::start("aggregator status", &mut command).wait();
    let object = ended.text.lines().find_map(|line| serde_json::from_str(line).ok());
    (ended.code, object.unwrap_or(Value::String(ended.text)))
}

/// What `aggregator status` says to people.
fn status_in_words(testbed: &Testbed) -> String {
    let mut command = Command::new(&programs().aggregator);
    command.args(["status", "--identity", &testbed.name("identity")]);
    Process::start("aggregator status", &mut command).wait().text
}

/// Asks until the answer is as wanted.
fn status_until(testbed: &Testbed, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    until(what, || wanted(&status(testbed).1));
    status(testbed).1
}

#[test]
fn the_status_follows_a_run_through_kills_to_its_end() {
    let testbed = Testbed::new(3, &["data.max-samples=120", "run.rounds=2"]);
    let (code, said) = status(&testbed);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.as_str().unwrap().contains("no run was served here"), "{said}");

    let server = testbed.serve();
    let first = testbed.join(0);
    let second = testbed.join(1);
    let gate = testbed.gate(2);
    let held = gate.held();
    let waits =
        status_until(&testbed, "two updates are in", |said| said["status"]["waits_for"]["accepted"] == 2);
    assert_eq!(status(&testbed).0, Some(0));
    assert_eq!(waits["serving"], json!(true));
    assert_eq!(waits["status"]["waits_for"]["round"], 1);
    assert_eq!(waits["status"]["waits_for"]["members"][0]["device"], json!(testbed.client(2)));
    assert_eq!(waits["newest"][0]["cohort"], 3);
    assert_eq!(waits["arrivals"].as_array().unwrap().len(), 2);

    // Killed in the middle of a round: `status` says so, and the next process continues there.
    server.kill();
    let (code, said) = status(&testbed);
    assert_eq!((code, &said["serving"]), (Some(5), &json!(false)), "{said}");
    assert_eq!(said["arrivals"].as_array().unwrap().len(), 2);
    let server = testbed.serve();
    status_until(&testbed, "the device is back", |said| said["status"]["connected"] == 3);
    held.open();
    assert_eq!(gate.receipt(1), Verdict::Accepted);
    let held = gate.held();

    // A device that is killed is seen to be away, and since when.
    first.kill();
    let away = |said: &Value| {
        let members = said["status"]["waits_for"]["members"].as_array().cloned().unwrap_or_default();
        members.iter().any(|member| member["stage"] == "away" && member["device"] == json!(testbed.client(0)))
    };
    let known = status(&testbed).1["status"]["waits_for"]["accepted"].clone();
    if known != 2 {
        status_until(&testbed, "the device is away or had delivered", |said| {
            away(said) || said["status"]["waits_for"]["accepted"] == 2
        });
    }
    let first = testbed.join(0);
    held.open();
    assert_eq!(gate.receipt(2), Verdict::Accepted);
    testbed.assert_completed(server, vec![first, second]);

    let (code, said) = status(&testbed);
    assert_eq!((code, &said["outcome"]), (Some(0), &json!("completed")), "{said}");
    assert_eq!(said["newest"].as_array().unwrap().len(), 2);
    for (most, shown) in [("1", json!([2])), ("0", json!([]))] {
        let newest = &status_of(&testbed, &["--rounds", most]).1["newest"];
        let rounds: Vec<_> = newest.as_array().unwrap().iter().map(|round| &round["round"]).collect();
        assert_eq!(json!(rounds), shown, "--rounds {most}");
    }
    let database = Database::open_existing(&testbed.path("identity")).unwrap().unwrap();
    let run = database.runs().unwrap().remove(0).run;
    assert_eq!(closed(&database, &run), testbed.rounds());
    let mut devices: Vec<_> = (0..3).map(|index| format!("{} 1", testbed.client(index))).collect();
    devices.sort();
    let expected = (1..=2).map(|round| (round, devices.clone())).collect();
    assert_eq!(accepted(&database, &run, 2), expected);
    let events = database.events(&run, 1000).unwrap();
    assert!(events.iter().any(|event| event.text.contains("says hello")), "{events:?}");
}

#[test]
fn a_device_that_is_not_in_a_state_to_train_is_asked_again_and_shown() {
    let testbed = Testbed::new(2, &["data.max-samples=80", "eligibility.min-disk=4000000000"]);
    let mut server = testbed.serve();
    let mut devices: Vec<_> = (0..2).map(|index| testbed.join(index)).collect();
    for device in &mut devices {
        let said = device.object(&json!({ "event": "not-now", "round": 1 }));
        assert!(said["reason"].as_str().unwrap().contains("too little room on the disk"), "{said}");
    }
    server
        .line("the operator is told", |line| line.contains("does not train in round 1 now: too little room"));
    let said = status_until(&testbed, "both have said so", |said| {
        let members = said["status"]["waits_for"]["members"].as_array().cloned().unwrap_or_default();
        members.iter().filter(|member| member["stage"] == "not-now").count() == 2
            && said["arrivals"].as_array().is_some_and(|arrivals| arrivals.len() == 2)
    });
    for arrival in said["arrivals"].as_array().unwrap() {
        assert_eq!(arrival["verdict"], "not-now");
    }
    let words = status_in_words(&testbed);
    assert_eq!(words.lines().filter(|line| line.trim_start().starts_with("not now")).count(), 2, "{words}");
    assert!(!words.contains("not-now"), "each is reported once: {words}");
    // The round is open all the same, and nothing of it is a failure.
    assert_eq!(said["status"]["waits_for"]["round"], 1);
    assert_eq!(said["newest"][0]["record"], Value::Null);
    server.interrupt();
    assert_eq!(server.wait().code, Some(INTERRUPTED));
}
