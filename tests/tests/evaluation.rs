//! Clients test models on samples of their own, the best model is kept, and training ends when it is enough, with crashes
//! at any step.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aggregator::coordinator::{Opening, Outcome, Resume};
use aggregator::data::{self, TestSet};
use aggregator::events::Notice;
use aggregator::round::{RoundRecord, SampleCap, Tally};
use aggregator::run::directory::RunDirectory;
use aggregator::run::{Run, Traffic};
use aggregator::simulate::{Transport, simulate};
use aggregator::storage::Disk;
use federation_tests::faults::Faults;
use federation_tests::faulty_disk::Loss;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::Simulator;
use federation_tests::whole_run::whole;
use models::{Backend, ClassResult, ParamSet};
use shared::by_class::ByClass;
use shared::data::View;
use shared::id::ClientId;
use shared::message::TaskKind;
use tokio::sync::watch;

const LIMIT: Duration = Duration::from_hours(24);

/// Every round's model is tested by all four clients, on a quarter of their samples, and told by class.
fn scenario(more: &[&str]) -> Scenario {
    let mut overrides = vec!["round.min-updates=4", "evaluate.on-clients-every=1", "evaluate.hold-out=0.25"];
    overrides.extend(["evaluate.by-class=true", "data.max-test-samples=200"]);
    overrides.extend_from_slice(more);
    Scenario::small(&overrides)
}

fn simulator(scenario: &Scenario, directory: &Path) -> Simulator {
    Simulator::new(scenario.clone(), Faults::NONE, 0, directory)
}

/// A round, whether it was the closing one, what each client found, and what all together by class.
type Found = (u32, bool, BTreeMap<ClientId, BTreeMap<String, f64>>, ByClass);

fn found(simulator: &Simulator) -> Vec<Found> {
    let record = |record: &RoundRecord| {
        (record.round, record.closing, record.clients.clone(), record.by_class.clone())
    };
    simulator.records().iter().map(record).collect()
}

#[test]
fn every_client_tests_every_model_and_the_last_one_in_a_round_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let mut simulator = simulator(&scenario(&[]), directory.path());
    assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
    let records = simulator.records();
    let closing: Vec<bool> = records.iter().map(|record| record.closing).collect();
    assert_eq!(closing, [false, false, false, true]);
    let tested: Vec<usize> = records.iter().map(|record| record.clients.len()).collect();
    assert_eq!(tested, [0, 4, 4, 4], "the first model was not trained by any client");
    for record in &records[1..] {
        let own: Vec<f64> = record.clients.values().map(|measured| measured["own-accuracy"]).collect();
        assert!((record.metrics["own-accuracy"] - own.iter().sum::<f64>() / 4.0).abs() < 1e-12, "{own:?}");
        // A quarter of forty samples.
        assert!(own.iter().all(|share| (share * 10.0).fract().abs() < 1e-9), "{own:?}");
        let sum = |count: fn(&ClassResult) -> u64| record.by_class.classes().iter().map(count).sum::<u64>();
        assert_eq!((sum(|class| class.samples), sum(|class| class.predicted)), (40, 40));
        let correct = 10.0 * own.iter().sum::<f64>();
        assert!((sum(|class| class.correct) as f64 - correct).abs() < 1e-9, "{correct} are right");
    }
    assert!(records[0].by_class.is_empty());
    assert!(records[3].metrics["own-loss"] < records[1].metrics["own-loss"], "three rounds teach something");
    assert_eq!((records[3].train_loss, records[3].accepted), (None, 4));
}

/// Bytes that the server sends in each round of a simulation.
async fn sent(scenario: &Scenario) -> Vec<u64> {
    let folder = tempfile::tempdir().unwrap();
    let directory = RunDirectory::new(folder.path().join("run"));
    let run = Run::begin(Arc::new(Disk), directory, scenario.config.clone(), None).unwrap();
    let (_stop, stopped) = watch::channel(false);
    let (resume, shares, memory) = (Resume::default(), scenario.shares.clone(), Transport::Memory);
    let (run, outcome) =
        simulate(run, resume, shares, memory, 1, stopped, &mut |_: &Notice<'_>| {}).await.unwrap();
    assert_eq!(outcome, Outcome::Completed);
    run.records().iter().map(|record| record.bytes_down).collect()
}

#[tokio::test]
async fn nothing_is_sent_twice_for_the_tests() {
    let tested = sent(&scenario(&[])).await;
    let mut plain = Scenario::small(&["round.min-updates=4"]);
    plain.config.spec.evaluate.hold_out = 0.25;
    assert_eq!(plain.config.spec.closing_work(), None);
    let plain = sent(&plain).await;
    // A few numbers beside the model, which four clients are sent.
    let alike = |a: u64, b: u64| a.abs_diff(b) < b / 100;
    assert!(plain.iter().all(|&bytes| bytes > 4 * 4 * 7850), "{plain:?}");
    assert_eq!((tested.len(), plain.len()), (4, 3));
    for (round, &bytes) in tested.iter().enumerate() {
        let without = plain[round.min(2)];
        assert!(alike(bytes, without), "round {}: {bytes} and {without}", round + 1);
    }
}

#[test]
fn after_any_crash_clients_have_found_the_same() {
    let scenario = scenario(&["run.rounds=2"]);
    let directory = tempfile::tempdir().unwrap();
    let mut reference = simulator(&scenario, directory.path());
    assert_eq!(reference.run_until_end(LIMIT), Some(Outcome::Completed));
    for fatal in 0..reference.disk().operations() {
        let directory = tempfile::tempdir().unwrap();
        let mut simulator = simulator(&scenario, directory.path());
        simulator.synced_uploads = true;
        simulator.die_at(fatal, if fatal % 2 == 0 { Loss::Nothing } else { Loss::Everything });
        assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed), "death at operation {fatal}");
        assert_eq!(simulator.server_deaths, 1, "death at operation {fatal}");
        assert_eq!(found(&simulator), found(&reference), "death at operation {fatal}");
        assert_eq!(simulator.model(), reference.model(), "death at operation {fatal}");
    }
    for seed in 0..20 {
        let directory = tempfile::tempdir().unwrap();
        let mut disturbed = Simulator::new(scenario.clone(), Faults::HEAVY, seed, directory.path());
        assert_eq!(disturbed.run_until_end(LIMIT), Some(Outcome::Completed), "seed {seed}");
        assert_eq!(disturbed.model(), reference.model(), "seed {seed}");
    }
}

/// The opening of a first round of training, by these clients.
fn opening(cohort: &BTreeMap<ClientId, u64>) -> Opening {
    Opening {
        round: 1,
        work: TaskKind::TRAIN,
        cohort: cohort.clone(),
        roster: cohort.clone(),
        sample_cap: SampleCap::NONE,
        owed: BTreeMap::new(),
        counted: BTreeMap::new(),
        ledger: None,
        participations: BTreeMap::new(),
        exchange: 0,
    }
}

#[test]
fn failed_rounds_do_not_count_for_early_stopping_and_are_recorded() {
    let scenario = Scenario::small(&["run.rounds=5", "evaluate.every=1", "early-stopping.patience=2"]);
    let prepared = scenario.config.spec.data.preparation.clone();
    let tests = TestSet::new(scenario.shares[0].clone(), prepared, 16);
    let folder = tempfile::tempdir().unwrap();
    let directory = RunDirectory::new(folder.path().join("run"));
    let config = scenario.config.clone();
    let mut run = Run::begin(Arc::new(Disk), directory.clone(), config, Some(tests)).unwrap();
    let cohort = BTreeMap::from([(ClientId::from_bytes([1; 16]), 10)]);
    let void = Tally { sampled: 1, failed: 1, void: true, ..Tally::default() };
    for round in 1..=4 {
        run.open(&Opening { round, ..opening(&cohort) }).unwrap();
        let record = run.close(round, &void, Traffic::default()).unwrap();
        assert!(record.void && record.accuracy.is_some(), "{record:?}");
        assert_eq!(run.ended(), None, "the model had no chance to grow better");
    }
    run.settle().unwrap();
    drop(run);
    let resumed = || Run::resume(Arc::new(Disk), directory.clone(), scenario.config.clone(), None).unwrap();
    let (run, resume) = resumed();
    assert_eq!((run.ended(), resume.closed, resume.void, resume.failed, run.last()), (None, 4, 4, 4, 9));
    drop(run);
    std::fs::remove_file(directory.rounds()).unwrap();
    let (mut run, resume) = resumed();
    assert_eq!(
        (resume.closed, resume.failed, run.last()),
        (4, 4, 9),
        "the run is as long without the records"
    );
    let opening = Opening { round: 5, ..opening(&cohort) };
    run.open(&opening).unwrap();
    drop(run);
    let (run, resume) = resumed();
    assert_eq!((resume.closed, resume.failed, run.last()), (4, 4, 9), "and with an open round");
}

/// The model in the run's file, if there is one.
fn model_in(path: &Path) -> Option<ParamSet> {
    Some(models::read_model(&mut File::open(path).ok()?).unwrap().1)
}

#[test]
fn training_ends_when_it_is_enough_and_the_best_model_is_kept_after_any_crash() {
    // Too fast to stay where it is good.
    let fast = [
        "run.rounds=9",
        "training.optimizer.sgd.learning-rate=8",
        "early-stopping.metric=own-loss",
        "evaluate.every=6",
        "early-stopping.patience=2",
    ];
    let scenario = scenario(&fast);
    let directory = tempfile::tempdir().unwrap();
    let mut reference = simulator(&scenario, directory.path());
    assert_eq!(reference.run_until_end(LIMIT), Some(Outcome::Completed));
    let records = reference.records();
    let own: Vec<f64> = records.iter().filter_map(|record| record.metrics.get("own-loss").copied()).collect();
    let last = records.last().unwrap();
    assert!(last.closing && last.round < 10, "it ended early: {own:?}");
    assert!(
        records[records.len() - 2].accuracy.is_some(),
        "the last model is tested, whenever training ends"
    );
    // `own[k]` is of the model after round k + 1. The two before the closing round found nothing better.
    let best = (0..own.len()).reduce(|best, next| if own[next] < own[best] { next } else { best }).unwrap();
    let tail = &own[own.len() - 3..own.len() - 1];
    assert!(tail.iter().all(|value| *value >= own[own.len() - 4]), "{own:?}");
    let kept = model_in(&reference.run_directory().best())
        .unwrap_or_else(|| panic!("the last model is the best: {own:?}"));
    let mut short = Scenario::small(&[&["round.min-updates=4"], &fast[1..2]].concat());
    short.config.spec.evaluate.hold_out = 0.25;
    short.config.spec.rounds = best as u32 + 1;
    let other = tempfile::tempdir().unwrap();
    let mut until = simulator(&short, other.path());
    assert_eq!(until.run_until_end(LIMIT), Some(Outcome::Completed));
    assert_eq!(kept, until.model(), "the best is that of round {}", best + 1);
    for fatal in (0..reference.disk().operations()).step_by(5) {
        let directory = tempfile::tempdir().unwrap();
        let mut simulator = simulator(&scenario, directory.path());
        simulator.synced_uploads = true;
        simulator.die_at(fatal, Loss::Nothing);
        assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed), "death at operation {fatal}");
        assert_eq!(found(&simulator), found(&reference), "death at operation {fatal}");
        assert_eq!(simulator.model(), reference.model(), "death at operation {fatal}");
        assert_eq!(
            model_in(&simulator.run_directory().best()).as_ref(),
            Some(&kept),
            "death at operation {fatal}"
        );
    }
}

#[cfg(unix)]
mod processes {
    use std::fs;
    use std::path::Path;

    use aggregator::run::directory::RunDirectory;
    use edge_client::store::PersonalModels;
    use federation_tests::process::Process;
    use federation_tests::testbed::Testbed;

    /// The run ends when nothing gets better, and leaves the last model and the best one as the simulation does;
    /// every device has a personal model of the last round that has made one.
    #[test]
    fn last_and_best_are_those_of_the_simulation_and_devices_personalise_on_the_way() {
        let testbed = Testbed::new(
            2,
            &[
                "run.rounds=9",
                "training.optimizer.sgd.learning-rate=8",
                "evaluate.every=1",
                "early-stopping.patience=1",
                "evaluate.on-clients-every=1",
                "evaluate.hold-out=0.25",
                "personalisation.method=ft",
                "personalisation.every=1",
            ],
        );
        let server = testbed.serve();
        let devices: Vec<_> = (0..2).map(|index| testbed.join(index)).collect();
        let ended = devices.into_iter().chain([server]).map(Process::wait);
        for ended in ended.collect::<Vec<_>>() {
            assert_eq!(ended.code, Some(0), "{}", ended.text);
        }
        let records = testbed.rounds();
        let last = records.last().unwrap();
        assert!(last.closing && last.round < 10, "it did not end early: {}", last.round);
        assert!(testbed.model() == testbed.simulated(), "the last model is not the simulation's");
        let (run, name) = (testbed.run(), testbed.run().file_name().unwrap().to_owned());
        let simulated = testbed.path("simulated").join(name);
        let best = |run: &Path| fs::read(RunDirectory::new(run.to_owned()).best()).unwrap();
        assert!(best(&run) == best(&simulated), "the best model is not the simulation's");
        assert!(best(&run) != testbed.model(), "it became worse before it ended");
        for (record, other) in records.iter().zip(testbed.simulated_rounds()) {
            assert_eq!(record.clients.len(), if record.round == 1 { 0 } else { 2 }, "round {}", record.round);
            for (client, measured) in &record.clients {
                let [own, its] = [measured, &other.clients[client]].map(|measured| measured["own-loss"]);
                assert_eq!(own.to_bits(), its.to_bits(), "round {}", record.round);
                assert!(measured.contains_key("ft-local-test"), "{measured:?}");
            }
        }
        for index in 0..2 {
            let personal = PersonalModels::of(&testbed.state(index)).open(None).unwrap();
            assert_eq!(personal.round, last.round);
        }
    }
}

#[tokio::test]
async fn models_are_measured_on_what_the_server_keeps_and_chosen_by_it() {
    let kept = ["data.validation=40", "data.max-samples=400", "early-stopping.metric=validation-loss"];
    let all = ["round.min-updates=4", "evaluate.every=1", "run.rounds=4"];
    let scenario = Scenario::small(&[&kept[..], &all].concat());
    assert_eq!(scenario.shares.iter().map(View::len).sum::<usize>(), 360, "no client has them");
    let runs = tempfile::tempdir().unwrap();
    let run = whole(runs.path(), &scenario).await;
    let samples = data::kept(&scenario.config).unwrap().validation.unwrap();
    let architecture = &scenario.config.spec.architecture;
    let found = samples.evaluate(architecture, &run.current_model().unwrap(), &Backend::cpu()).unwrap();
    let measured = |record: &RoundRecord| record.metrics["validation-loss"];
    let last = run.records().last().unwrap();
    assert_eq!((found.samples, measured(last)), (40, found.loss));
    assert_eq!(last.metrics.get("validation-accuracy").copied(), found.accuracy);
    assert_ne!(last.loss, Some(found.loss), "the test samples are others");
    let least = run.records().iter().min_by(|a, b| measured(a).total_cmp(&measured(b))).unwrap();
    assert_eq!(run.best().map(|best| best.round), Some(least.round));
    // Whenever the server dies it measures the same again.
    let all = |records: &[RoundRecord]| records.iter().map(measured).collect::<Vec<f64>>();
    for seed in 0..4 {
        let directory = tempfile::tempdir().unwrap();
        let simulator = Simulator::completed(&scenario, Faults::HEAVY, seed, directory.path());
        assert_eq!(all(&simulator.records()), all(run.records()), "seed {seed}");
    }
}
