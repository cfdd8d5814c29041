//! Restarts on a damaged disk: what can be obtained again is repaired and reported; otherwise the message says what to do.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aggregator::coordinator::{Outcome, WaitingFor};
use aggregator::database::Database;
use aggregator::history::restore_rounds;
use aggregator::report::Summary;
use aggregator::round::{RoundRecord, jsonl};
use aggregator::run::{Run, RunError};
use aggregator::start::start_on;
use aggregator::storage::Disk;
use aggregator::storage::checksum::read_checked;
use federation_tests::faults::Faults;
use federation_tests::scenario::Scenario;
use federation_tests::server::Server;
use federation_tests::simulator::Simulator;
use models::ParamSet;
use shared::frame::{self, HEADER_LEN, Header};
use shared::message::ToServer;

const LIMIT: Duration = Duration::from_hours(24);

fn simulator(directory: &Path) -> Simulator {
    let scenario = Scenario::small(&["run.rounds=2", "round.min-updates=4"]);
    Simulator::new(scenario, Faults::NONE, 0, directory)
}

fn reference() -> ParamSet {
    let directory = tempfile::tempdir().unwrap();
    let mut simulator = simulator(directory.path());
    assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
    simulator.model()
}

/// A run with this number of closed rounds and this number of updates of the next.
fn stands_at(rounds: u32, updates: usize) -> impl Fn(&Server) -> bool {
    move |server| {
        let status = server.coordinator().status(Duration::ZERO);
        let accepted = match status.waiting_for {
            WaitingFor::Updates { accepted, .. } => accepted,
            _ => 0,
        };
        status.closed == rounds && accepted == updates
    }
}

/// The aggregator is killed in round 2 with two updates in; `meddle` is given the run's directory. Then it goes on.
fn meddled(meddle: impl Fn(&Path)) -> (Simulator, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let mut simulator = simulator(directory.path());
    simulator.run_until(stands_at(1, 2));
    simulator.kill_server();
    meddle(simulator.run_directory().root());
    simulator.forgiving = true;
    assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
    (simulator, directory)
}

/// What the disk makes of a file's content.
type Damage<T> = fn(&T) -> Vec<u8>;

fn accepted_updates(root: &Path) -> Vec<PathBuf> {
    let folder = fs::read_dir(root.join("state/accepted-000002")).unwrap();
    let mut updates: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    updates.sort();
    updates
}

fn warnings(simulator: &Simulator) -> String {
    simulator.server().unwrap().run().warnings().join("\n")
}

#[test]
fn an_undamaged_run_says_nothing() {
    let (simulator, _folder) = meddled(|_| {});
    assert_eq!(warnings(&simulator), "");
    assert_eq!(simulator.resumes[0].open.as_ref().unwrap().accepted.len(), 2);
}

#[test]
fn an_accepted_update_that_the_disk_has_lost_is_asked_for_again() {
    let reference = reference();
    let damages: [Damage<[u8]>; 6] = [
        |_| Vec::new(),
        |bytes| bytes[..bytes.len() / 2].to_vec(),
        |bytes| bytes[..bytes.len() - 1].to_vec(),
        |bytes| vec![0; bytes.len()],
        |bytes| [&bytes[..bytes.len() - 20], &f32::NAN.to_le_bytes()].concat(),
        |bytes| [&bytes[..bytes.len() - 20], &f32::NAN.to_le_bytes(), &bytes[bytes.len() - 16..]].concat(),
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let (simulator, _folder) = meddled(|root| {
            let update = &accepted_updates(root)[0];
            fs::write(update, damage(&fs::read(update).unwrap())).unwrap();
        });
        let warnings = warnings(&simulator);
        assert!(warnings.contains("asked for it again"), "damage {number}: {warnings:?}");
        assert_eq!(simulator.resumes[0].open.as_ref().unwrap().accepted.len(), 1, "damage {number}");
        assert_eq!(simulator.model(), reference, "damage {number}");
    }
}

/// What a file holds, without its checksum: a file of an earlier version.
fn content(path: &Path) -> Vec<u8> {
    read_checked(&Disk, path).unwrap().expect("it is there")
}

/// The same update, of a client that reports this number of training samples.
fn claiming(bytes: &[u8], samples: u64) -> Vec<u8> {
    let header = Header::parse(bytes[..HEADER_LEN].try_into().unwrap(), u64::MAX).unwrap();
    let (head, payload) = bytes.split_at(HEADER_LEN + header.message as usize);
    let Ok(ToServer::Update(mut update)) = frame::decode(&head[HEADER_LEN..]) else { panic!("an update") };
    update.report.samples = samples;
    [&frame::encode(&ToServer::Update(update), header.payload), payload].concat()
}

#[test]
fn an_accepted_update_that_claims_other_samples_than_were_declared_is_asked_for_again() {
    let reference = reference();
    // The sums have no room for the last two weights.
    for samples in [1, 41, 1 << 40, u64::MAX] {
        let (simulator, _folder) = meddled(|root| {
            let update = &accepted_updates(root)[0];
            fs::write(update, claiming(&content(update), samples)).unwrap();
        });
        let warnings = warnings(&simulator);
        assert!(warnings.contains("asked for it again") && warnings.contains("declared 40"), "{warnings:?}");
        assert_eq!(simulator.model(), reference, "{samples}");
    }
}

/// The aggregator is killed when round 2 is open and its clients are at work, but round 1 is not settled.
fn unsettled(meddle: impl Fn(&Path)) -> (Simulator, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let mut simulator = simulator(directory.path());
    simulator.run_until(stands_at(1, 0));
    assert!(!simulator.server().unwrap().run().is_settled());
    simulator.kill_server();
    meddle(simulator.run_directory().root());
    simulator.forgiving = true;
    assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
    (simulator, directory)
}

#[test]
fn a_round_that_was_not_settled_is_closed_again_before_any_device_comes() {
    let (simulator, _folder) = unsettled(|_| {});
    assert_eq!(warnings(&simulator), "");
    assert_eq!(simulator.resumes[0].closed, 1);
    assert_eq!(simulator.resumes[0].open.as_ref().unwrap().opening.round, 2);
    assert_eq!(simulator.model(), reference());
    assert!(simulator.trainings().values().all(|&times| times == 1), "{:?}", simulator.trainings());
}

#[test]
fn a_round_whose_beginning_the_disk_has_lost_begins_again() {
    let (simulator, _folder) = unsettled(|root| {
        let folder = fs::read_dir(root.join("state/accepted-000001")).unwrap();
        let update = folder.map(|entry| entry.unwrap().path()).min().unwrap();
        fs::write(update, b"").unwrap();
        assert!(root.join("state/round-000002.json").exists());
    });
    let warnings = warnings(&simulator);
    assert!(
        warnings.contains("asked for it again") && warnings.contains("round 2 begins again"),
        "{warnings:?}"
    );
    assert_eq!(simulator.resumes[0].closed, 0);
    assert_eq!(simulator.model(), reference());
}

#[test]
fn the_traffic_of_a_killed_process_counts_what_is_durable() {
    let directory = tempfile::tempdir().unwrap();
    let mut simulator = simulator(directory.path());
    simulator.run_until(stands_at(1, 2));
    let updates = accepted_updates(simulator.run_directory().root());
    let bytes: u64 = updates.iter().map(|update| content(update).len() as u64).sum();
    simulator.kill_server();
    simulator.run_until(|_| true);
    let run = simulator.server().unwrap().run();
    let broadcast = run.broadcast(2, shared::message::TaskKind::TRAIN).unwrap();
    let earlier = run.earlier_traffic(&broadcast);
    assert_eq!((earlier.up, earlier.down), (bytes, 2 * broadcast.to(None).wire_bytes()));
    assert!(broadcast.to(None).wire_bytes() > broadcast.model.length && bytes > 0);
}

#[test]
fn a_torn_last_line_of_rounds_is_taken_back() {
    for torn in ["{", "{\"round\":2,\"accura", "\0\0\0", "\u{fffd}"] {
        let (simulator, _folder) = meddled(|root| {
            let path = root.join("rounds.jsonl");
            fs::write(&path, fs::read_to_string(&path).unwrap() + torn).unwrap();
        });
        assert!(
            warnings(&simulator).contains("half-written last line"),
            "{torn:?}: {:?}",
            warnings(&simulator)
        );
        let text = fs::read_to_string(simulator.run_directory().rounds()).unwrap();
        let rounds = jsonl::read(&text).unwrap();
        assert_eq!((rounds.records.len(), rounds.torn), (2, false), "{text}");
    }
}

#[test]
fn a_line_of_a_round_that_is_not_closed_is_taken_back() {
    let (simulator, _folder) = meddled(|root| {
        let path = root.join("rounds.jsonl");
        let text = fs::read_to_string(&path).unwrap();
        let mut records = jsonl::read(&text).unwrap().records;
        records.push(RoundRecord { round: 2, ..records[0].clone() });
        fs::write(&path, jsonl::write(&records)).unwrap();
    });
    assert_eq!(warnings(&simulator), "", "that is how a kill between the line and the checkpoint looks");
    let text = fs::read_to_string(simulator.run_directory().rounds()).unwrap();
    assert_eq!(jsonl::read(&text).unwrap().records.len(), 2, "{text}");
}

#[test]
fn damaged_rounds_stop_the_run_until_they_are_moved_away_as_the_message_says() {
    let reference = reference();
    let damages: [(&str, Damage<str>); 4] = [
        ("line 2 is not a round", |line| format!("{line}what?\n").into_bytes()),
        ("line 1 is not a round", |line| format!("\n{line}").into_bytes()),
        ("line 2 holds round 1, out of order", |line| format!("{line}{line}").into_bytes()),
        ("it is not text", |line| [line.as_bytes(), b"\xff\xfe\n"].concat()),
    ];
    for (reason, damage) in damages {
        let directory = tempfile::tempdir().unwrap();
        let mut simulator = simulator(directory.path());
        simulator.run_until(stands_at(1, 2));
        simulator.kill_server();
        let run = simulator.run_directory();
        let line = fs::read_to_string(run.rounds()).unwrap();
        let damaged = damage(&line);
        fs::write(run.rounds(), &damaged).unwrap();

        let config = Scenario::small(&["run.rounds=2", "round.min-updates=4"]).config;
        let error = Run::resume(Arc::new(Disk), run.clone(), config, None).err().unwrap();
        assert!(matches!(error, RunError::Rounds { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(reason) && text.contains("move this file away"), "{text}");
        assert_eq!(fs::read(run.rounds()).unwrap(), damaged, "it is the operator's to look at");

        fs::rename(run.rounds(), directory.path().join("away")).unwrap();
        assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed), "{reason}");
        assert_eq!(simulator.model(), reference, "{reason}");
        let told = warnings(&simulator);
        assert!(told.contains("lacked 1 of 1 closed round: 1 written again"), "{told}");
        let rounds: Vec<_> =
            simulator.server().unwrap().run().records().iter().map(|record| record.round).collect();
        assert_eq!(rounds, [1, 2]);
    }
}

/// What happens to `rounds.jsonl` with three rounds, and how many of them are lost by it.
const LOSSES: [(&str, Damage<str>, usize); 3] = [
    ("emptied", |_| Vec::new(), 3),
    ("cut at the end of a line", |text| text.split_inclusive('\n').next().unwrap().into(), 2),
    ("without its first line", |text| text.split_once('\n').unwrap().1.into(), 1),
];

#[test]
fn rounds_that_the_file_of_a_simulation_has_lost_come_back_from_their_copy() {
    for (what, loss, lost) in LOSSES {
        let directory = tempfile::tempdir().unwrap();
        let scenario = Scenario::small(&["run.rounds=4", "round.min-updates=4", "evaluate.every=2"]);
        let mut simulator = Simulator::new(scenario.clone(), Faults::NONE, 0, directory.path());
        simulator.run_until(stands_at(2, 1));
        simulator.kill_server();
        simulator.run_until(stands_at(3, 1));
        simulator.kill_server();
        let run = simulator.run_directory();
        let whole = fs::read_to_string(run.rounds()).unwrap();
        assert_eq!(fs::read_to_string(run.rounds_copy()).unwrap(), whole, "{what}");

        let resume = || {
            fs::write(run.rounds(), loss(&whole)).unwrap();
            let config = scenario.config.clone();
            let (started, ()) =
                start_on(Arc::new(Disk), config, directory.path(), false, |_| Ok(())).unwrap();
            let (resumed, _, _lock) = started.into_parts();
            (
                resumed.missing_rounds().len(),
                resumed.warnings().join(" "),
                resumed.best().map(|best| best.round),
            )
        };
        let (missing, told, best) = resume();
        assert_eq!((missing, best), (0, Some(2)), "{what}");
        assert!(told.contains(&format!("lacked {lost} of 3 closed rounds: {lost} written again")), "{told}");
        assert_eq!(fs::read_to_string(run.rounds()).unwrap(), whole, "{what}");
        // A copy that cannot be read is as good as none.
        fs::write(run.rounds_copy(), "no rounds\n").unwrap();
        let (missing, told, _) = resume();
        assert_eq!(missing, lost, "{what}");
        assert!(told.contains(&format!("lacks {lost} of 3 closed rounds")), "{what}: {told}");
    }
}

#[test]
fn rounds_that_the_file_has_lost_are_told_and_come_back_from_the_database() {
    for (what, loss, lost) in LOSSES {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::open(&directory.path().join("identity")).unwrap();
        let scenario = Scenario::small(&["run.rounds=4", "round.min-updates=4", "evaluate.every=2"]);
        let mut simulator = Simulator::new(scenario.clone(), Faults::NONE, 0, directory.path());
        simulator.database = Some(database.clone());
        simulator.run_until(stands_at(3, 1));
        simulator.kill_server();
        let run = simulator.run_directory();
        let whole = fs::read_to_string(run.rounds()).unwrap();
        fs::write(run.rounds(), loss(&whole)).unwrap();

        let runs = directory.path();
        let (started, ()) = start_on(Arc::new(Disk), scenario.config, runs, false, |_| Ok(())).unwrap();
        let (mut resumed, _, _lock) = started.into_parts();
        assert_eq!(resumed.missing_rounds().len(), lost, "{what}");
        let told = resumed.warnings().join(" ");
        assert!(told.contains(&format!("lacks {lost} of 3 closed rounds")), "{what}: {told}");
        assert_eq!(Summary::of(resumed.records(), None).missing, usize::from(what.contains("first")));
        assert_eq!(restore_rounds(&database, &mut resumed).unwrap(), lost, "{what}");
        assert_eq!(resumed.missing_rounds().len(), 0, "{what}");
        // The best model is an earlier one, and its checkpoint has waited for the records.
        assert_eq!(resumed.best().map(|best| best.round), Some(2), "{what}");
        resumed.settle().unwrap();
        resumed.write_model().unwrap();
        assert!(resumed.directory().best().exists(), "{what}");
        assert_eq!(fs::read_to_string(run.rounds()).unwrap(), whole, "{what}");
    }
}
