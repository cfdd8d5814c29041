//! Late updates that count: buffered asynchronous aggregation, over the durable steps and over loopback QUIC.
#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aggregator::coordinator::{Opening, Outcome, OutstandingTask, Resume};
use aggregator::round::{SampleCap, Tally, WaitedFor};
use aggregator::run::directory::RunDirectory;
use aggregator::run::{Run, Traffic};
use aggregator::storage::Disk;
use federation_tests::faults::Faults;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::Simulator;
use federation_tests::testbed::Testbed;
use models::{ParamSet, Precision};
use shared::frame;
use shared::id::ClientId;
use shared::message::{Metric, Rejection, TaskKind, ToServer, TrainReport, UpdateHeader, Verdict};
use shared::record::Record;

fn client(n: u8) -> ClientId {
    ClientId::from_bytes([n; 16])
}

fn owed(of: &[(u8, u32)]) -> BTreeMap<ClientId, OutstandingTask> {
    of.iter().map(|&(n, round)| (client(n), OutstandingTask { round, samples: 10 * u64::from(n) })).collect()
}

fn opening(round: u32, cohort: &[u8], owing: &[(u8, u32)]) -> Opening {
    let samples = |n: u8| (client(n), 10 * u64::from(n));
    Opening {
        round,
        work: TaskKind::TRAIN,
        cohort: cohort.iter().map(|&n| samples(n)).collect(),
        roster: [1, 3].map(samples).into(),
        sample_cap: SampleCap::NONE,
        owed: owed(owing),
        counted: BTreeMap::new(),
        ledger: None,
        participations: BTreeMap::new(),
        exchange: 0,
    }
}

/// An update whose every value is `value`, as it waits in the spool.
fn update(run: &Run, n: u8, round: u32, value: f32) -> std::path::PathBuf {
    let mut tensors = run.current_model().unwrap();
    tensors.scale(0.0);
    for (_, array) in tensors.iter_mut() {
        array.values_mut().fill(value);
    }
    let payload = Record { tensors, ..Record::default() }.to_bytes(Precision::F32);
    let mut report = TrainReport { samples: 10 * u64::from(n), steps: 1, ..TrainReport::default() };
    report.metrics[0] = Some(Metric::OwnAccuracy(0.5));
    let mut bytes = frame::encode(&ToServer::Update(UpdateHeader { round, report }), payload.len() as u64);
    bytes.extend_from_slice(&payload);
    let path = run.directory().spool().join(format!("{n}-{round}.upload"));
    fs::write(&path, bytes).unwrap();
    path
}

fn fold(run: &mut Run, round: u32, n: u8, trained: u32, value: f32) -> Result<(), Rejection> {
    let upload = update(run, n, trained, value);
    run.fold(round, &[(client(n), upload.into())]).unwrap().remove(0).map(drop)
}

fn resumed(folder: &Path, scenario: &Scenario) -> (Run, Resume) {
    let directory = RunDirectory::new(folder.join("run"));
    Run::resume(Arc::new(Disk), directory, scenario.config.clone(), None).unwrap()
}

fn shift(before: &ParamSet, after: &ParamSet) -> Vec<f64> {
    let values = |params: &ParamSet| -> Vec<f32> {
        params.iter().flat_map(|(_, array)| array.values().to_vec()).collect()
    };
    values(before).into_iter().zip(values(after)).map(|(before, after)| f64::from(after - before)).collect()
}

/// A run whose first round was closed with the update of client 1 and without that of client 3.
fn round_one_without_client_3(folder: &Path, scenario: &Scenario) -> Run {
    let directory = RunDirectory::new(folder.join("run"));
    let mut run = Run::begin(Arc::new(Disk), directory, scenario.config.clone(), None).unwrap();
    run.open(&opening(1, &[1, 3], &[])).unwrap();
    fold(&mut run, 1, 1, 1, 0.5).unwrap();
    let tally = Tally { sampled: 2, accepted: 1, lost: 1, ..Tally::default() };
    run.close(1, &tally, Traffic::default()).unwrap();
    run
}

/// `w_2 = w_1 + (n_1 D_1 + n_3 s(1) D_3) / (n_1 + n_3)` with `s(1) = 2^-1/2`, and the same if the process dies in between.
#[test]
fn a_late_update_counts_by_how_late_it_is_also_after_a_restart() {
    let scenario =
        Scenario::small(&["data.clients=2", "round.staleness.enabled=true", "round.staleness.max=1"]);
    let mut models = Vec::new();
    for dies in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let mut run = round_one_without_client_3(folder.path(), &scenario);
        if dies {
            run.settle().unwrap();
            drop(run);
            let (again, resume) = resumed(folder.path(), &scenario);
            assert_eq!(resume.owed, owed(&[(3, 1)]));
            run = again;
        }
        let before = run.current_model().unwrap();
        run.open(&opening(2, &[1], &[(3, 1)])).unwrap();
        fold(&mut run, 2, 3, 1, 0.25).unwrap();
        if dies {
            drop(run);
            let (again, resume) = resumed(folder.path(), &scenario);
            let open = resume.open.unwrap();
            assert_eq!((open.late, open.accepted), ([(client(3), 1)].into(), [client(3)].into()));
            assert_eq!(resume.owed, owed(&[]));
            run = again;
        }
        fold(&mut run, 2, 1, 2, 0.125).unwrap();
        let tally =
            Tally { sampled: 1, accepted: 2, late: 1, waited_for: WaitedFor::Cohort, ..Tally::default() };
        let record = run.close(2, &tally, Traffic::default()).unwrap();
        assert_eq!((record.accepted, record.late, record.clients.len()), (2, 1, 0), "no test of this round");
        let expected = (10.0 * 0.125 + 30.0 * 0.25 * 0.5_f64.sqrt()) / 40.0;
        let after = run.current_model().unwrap();
        for found in shift(&before, &after) {
            assert!((found - expected).abs() < 1e-6, "{found} instead of {expected}");
        }
        run.settle().unwrap();
        drop(run);
        let (mut run, resume) = resumed(folder.path(), &scenario);
        assert_eq!(resume.owed, owed(&[]));
        run.open(&opening(3, &[3], &[])).unwrap();
        let refused = fold(&mut run, 3, 1, 1, 1.0);
        assert_eq!(refused, Err(Rejection::UnknownRound { round: 1, current: 3 }), "two rounds are too late");
        models.push(after);
    }
    assert!(models[0] == models[1], "the same bytes");
}

/// Killed between the decision to close and the checkpoint: what its stragglers owe is known as after it.
#[test]
fn what_is_owed_does_not_depend_on_the_moment_of_the_kill() {
    let scenario = Scenario::small(&["data.clients=2", "round.staleness.enabled=true"]);
    let found = |settled: bool| {
        let folder = tempfile::tempdir().unwrap();
        let mut run = round_one_without_client_3(folder.path(), &scenario);
        if settled {
            run.settle().unwrap();
        }
        drop(run);
        let (_, resume) = resumed(folder.path(), &scenario);
        assert_eq!(resume.open.is_some(), !settled, "the decision is to be carried out");
        resume.owed
    };
    assert_eq!(found(false), owed(&[(3, 1)]));
    assert_eq!(found(true), owed(&[(3, 1)]));
}

/// Two devices, rounds of one update, one device held back at a time: no task is cancelled, and everything counts.
#[test]
fn no_task_is_cancelled_when_the_buffer_is_full_and_a_restart_loses_nothing() {
    let buffer =
        ["round.min-updates=1", "round.max-updates=1", "round.staleness.enabled=true", "run.rounds=4"];
    let testbed =
        Testbed::new(2, &[&buffer[..], &["data.max-samples=80", "round.min-clients-to-start=2"]].concat());
    let server = testbed.serve();
    let (first, second) = (testbed.gate(0), testbed.gate(1));
    let (fast, slow) = (first.held(), second.held());
    fast.open();
    assert_eq!(first.receipt(1), Verdict::Accepted);
    let fast = first.held();
    assert_eq!(fast.round, 2, "without the other, which is still at round 1");

    server.kill();
    let server = testbed.serve();
    slow.open();
    assert_eq!(second.receipt(1), Verdict::Accepted, "late, and in round 2");
    let slow = second.held();
    assert_eq!(slow.round, 3);
    fast.open();
    assert_eq!(first.receipt(2), Verdict::Accepted, "late, and in round 3");
    let fast = first.held();
    assert_eq!(fast.round, 4);
    fast.open();
    let ended = server.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    let counts: Vec<_> = testbed.rounds().iter().map(|round| (round.accepted, round.late)).collect();
    assert_eq!(counts, [(1, 0), (1, 1), (1, 1), (1, 0)]);
    drop(slow);
}

/// Four devices of which one is slow, rounds of two updates, and many faults of all kinds: rounds always close and
/// late updates come to count in them.
#[test]
fn under_any_faults_rounds_go_on_and_late_updates_count() {
    let buffer =
        ["round.min-updates=2", "round.max-updates=2", "round.staleness.enabled=true", "run.rounds=8"];
    let (mut late, mut deaths) = (0, 0);
    for seed in 0..100 {
        let directory = tempfile::tempdir().unwrap();
        let mut simulator = Simulator::new(Scenario::small(&buffer), Faults::HEAVY, seed, directory.path());
        simulator.slow_down(3, Duration::from_secs(6));
        let outcome = simulator.run_until_end(Duration::from_hours(24));
        assert_eq!(outcome, Some(Outcome::Completed), "seed {seed} at {:?}", simulator.now());
        for round in simulator.records() {
            assert!(round.accepted >= 2, "seed {seed}: {round:?}");
            late += round.late;
        }
        deaths += simulator.server_deaths;
    }
    assert!(late > 200 && deaths > 100, "{late} late updates, {deaths} deaths of the server");
}
