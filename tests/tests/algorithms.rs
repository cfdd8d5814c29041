//! Every algorithm and every axis of aggregation through whole runs: crashes at any step do not change the bits.

use std::sync::Arc;
use std::time::Duration;

use aggregator::coordinator::{Outcome, Resume};
use aggregator::data::TestSet;
use aggregator::events::Notice;
use aggregator::run::Run;
use aggregator::run::directory::RunDirectory;
use aggregator::simulate::{Transport, simulate};
use aggregator::storage::Disk;
use federation_tests::device::Device;
use federation_tests::faults::Faults;
use federation_tests::faulty_disk::Loss;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::{Simulator, model_of};
use models::{Architecture, Limits, ParamSet, Sgd};
use shared::aggregation::Mixture;
use shared::algorithm::{Settings, registry};
use shared::data::{Dataset, Samples, View};
use shared::record::Record;
use shared::spec::{DataSpec, LabelsAt, RunSpec, Training};
use tokio::sync::watch;

const LIMIT: Duration = Duration::from_hours(24);

/// All four clients in every round, and settings that no algorithm refuses.
fn scenario(more: &[&str]) -> Scenario {
    let mut overrides = vec!["round.min-updates=4", "training.batch=0"];
    overrides.extend_from_slice(more);
    Scenario::small(&overrides)
}

fn survives(name: &str, more: &[&str]) -> ParamSet {
    let scenario = scenario(more);
    let reference = model_of(&scenario, Faults::NONE, 0);
    for seed in 0..8 {
        assert_eq!(model_of(&scenario, Faults::HEAVY, seed), reference, "{name}, seed {seed}");
    }
    reference
}

/// Hyper-parameters with which an algorithm that has all of them learns within a few rounds.
const QUICK: [(&str, &str); 5] =
    [("gate", "0.2"), ("lambda-l2", "0.5"), ("lambda-a", "0.05"), ("refresh", "2"), ("bank", "3")];

/// The algorithm; where it compares representations, with a network that has some.
fn algorithm(name: &str) -> Vec<String> {
    let (spec, built) = (RunSpec::example(name), registry::by_default(name).unwrap());
    let linear = Architecture::by_name("linear", &[1, 28, 28], 10).unwrap();
    let settings = Settings {
        training: &Training { epochs: 1, batch: 0, ..spec.training },
        aggregation: &spec.aggregation,
        architecture: Some(&linear),
        mixture: Mixture::CLIENTS,
        private: None,
        secure: false,
        top_k: None,
        late: false,
    };
    let model = if built.conflicts(&settings).is_empty() { "linear" } else { "mlp-2nn" };
    let known = registry::complete(name, toml::Table::new()).unwrap();
    let has_all = QUICK.iter().all(|(key, _)| known.contains_key(*key));
    let quick = QUICK.iter().filter(|_| has_all);
    let quick: Vec<String> = quick.map(|(key, value)| format!("{key}={value}")).collect();
    let mut overrides =
        vec![format!("algorithm.{name}={{{}}}", quick.join(", ")), format!("model.name={model}")];
    let images = DataSpec { shape: vec![1, 28, 28], labels: LabelsAt::Server, ..spec.data };
    if built.check_data(&images, &Training { optimizer: Sgd::plain(0.01).into(), ..spec.training }).is_ok() {
        // It learns from devices without labels, and one party must have some.
        overrides.extend(["data.labels=server", "data.labelled=40"].map(str::to_owned));
    }
    overrides
}

#[test]
fn every_algorithm_gives_the_same_bits_under_any_faults() {
    for name in registry::names() {
        let overrides = algorithm(name);
        survives(name, &overrides.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn every_axis_gives_the_same_bits_under_any_faults() {
    let plain = survives("plain", &[]);
    for axis in [
        &["aggregation.weights=uniform", "data.partition.dirichlet.alpha=0.5"][..],
        &["aggregation.weights=loss"],
        &["aggregation.weights=uniform", "aggregation.rule.median={}"],
        &["aggregation.weights=uniform", "aggregation.rule.trimmed-mean.beta=0.25"],
        &["aggregation.weights=uniform", "aggregation.rule.krum.byzantine=0"],
        &["aggregation.weights=uniform", "aggregation.rule.multi-krum={byzantine=0, chosen=2}"],
        &["aggregation.rule.clipped-mean.max-norm=0.1"],
        &["aggregation.rule.fedma={}", "model.name=mlp-2nn", "training.epochs=2"],
        &["aggregation.server-optimizer.sgd.momentum=0.9"],
        &["aggregation.server-optimizer.adagrad={}"],
        &["aggregation.server-optimizer.adam={}"],
        &["aggregation.server-optimizer.yogi={}"],
        &["aggregation.buffers=local", "aggregation.weights=loss"],
        &["data.labelled=40", "aggregation.weights=uniform", "aggregation.rule.median={}"],
        &[
            "data.labelled=40",
            "server.mixing={clients=0.6, server=0, previous=0.4}",
            "aggregation.server-optimizer.adam={}",
        ],
    ] {
        assert_ne!(survives(&axis.join(" "), axis), plain, "{axis:?} does nothing");
    }
}

#[test]
fn a_client_that_diverges_is_left_out_and_the_round_goes_on() {
    let mut scenario = Scenario::small(&["round.min-updates=3"]);
    // Finite, and too large for any logit to be.
    let (samples, labels) = (scenario.shares[2].len(), vec![3; scenario.shares[2].len()]);
    let values = vec![3e38; samples * 28 * 28];
    let data = Dataset::labelled(vec![1, 28, 28], Samples::Floats(values), labels, 10).unwrap();
    scenario.shares[2] = View::whole(Arc::new(data));
    let directory = tempfile::tempdir().unwrap();
    let mut simulator = Simulator::new(scenario, Faults::NONE, 0, directory.path());
    assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
    let records = simulator.records();
    assert_eq!(records.len(), 3);
    for record in records {
        assert_eq!((record.accepted, record.failed, record.rejected), (3, 1, 0), "round {}", record.round);
        assert!(record.train_loss.is_some_and(f64::is_finite));
    }
    assert_eq!(simulator.model().first_non_finite(), None);
}

/// What a device keeps goes with its update: the server's control variate is the mean of its clients' in every round, although in
/// each of them the slowest update is of no use, receipts are lost, and processes crash.
#[test]
fn scaffolds_control_variate_is_the_mean_of_its_clients_for_any_verdicts() {
    let scenario = Scenario::small(&[
        "algorithm.scaffold={}",
        "round.min-updates=2",
        "round.max-updates=3",
        "run.rounds=8",
        "training.batch=0",
    ]);
    let (mut rounds, mut discarded) = (0, 0);
    for (seed, faults) in [(0, Faults::NONE)].into_iter().chain((1..12).map(|seed| (seed, Faults::HEAVY))) {
        let directory = tempfile::tempdir().unwrap();
        let mut simulator = Simulator::new(scenario.clone(), faults, seed, directory.path());
        assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed), "seed {seed}");
        discarded += simulator.records().iter().map(|round| round.discarded).sum::<usize>();
        for round in 2..=8 {
            let Some((off, _)) = control_variates(&simulator, round) else { continue };
            rounds += 1;
            assert!(off < 1e-5, "round {round}, seed {seed}: off by {off}");
        }
    }
    assert!(rounds > 12 && discarded > 12, "{rounds} rounds with all, {discarded} updates discarded");
}

/// If all devices have begun to train in this round: how far what they were sent is from the mean of what they kept, and how long
/// that is.
fn control_variates(simulator: &Simulator, round: u32) -> Option<(f32, f32)> {
    let began = |device: &Device| {
        let mut begun = device.begun.iter().rev();
        begun.find(|(number, ..)| *number == round).map(|(_, sent, kept)| (sent.clone(), kept.clone()))
    };
    let all: Vec<_> = simulator.devices().iter().map(began).collect::<Option<_>>()?;
    let longest = |set: &ParamSet| {
        set.iter().flat_map(|(_, array)| array.values()).fold(0.0_f32, |longest, c| longest.max(c.abs()))
    };
    let mut mean = record(&all[0].0).take_under("control.");
    let length = longest(&mean);
    mean.scale(all.len() as f32);
    for kept in all.iter().filter_map(|(_, kept)| kept.as_ref()) {
        mean = mean.difference(&record(kept)).unwrap();
    }
    Some((longest(&mean), length))
}

/// A client whose update was accepted keeps its state, although the round failed for lack of another update.
#[test]
fn scaffolds_control_variate_is_the_mean_of_its_clients_after_a_void_round() {
    let overrides =
        ["algorithm.scaffold={}", "round.min-updates=4", "round.max-failed=2", "training.batch=0"];
    let mut scenario = Scenario::small(&overrides);
    // Training diverges on the third device.
    let samples = scenario.shares[2].len();
    let labels = vec![3; samples];
    let data = Dataset::labelled(vec![1, 28, 28], Samples::Floats(vec![3e38; samples * 28 * 28]), labels, 10)
        .unwrap();
    scenario.shares[2] = View::whole(Arc::new(data));
    let directory = tempfile::tempdir().unwrap();
    let mut simulator = Simulator::new(scenario, Faults::NONE, 0, directory.path());
    let outcome = simulator.run_until_end(LIMIT);
    assert!(matches!(outcome, Some(Outcome::NoProgress { rounds: 2, .. })), "{outcome:?}");
    assert_eq!(simulator.promised(1), 3);
    let (off, length) = control_variates(&simulator, 2).expect("all have begun");
    assert!(off < 1e-5 && length > 1e-3, "off by {off}, of {length}");
}

fn record(bytes: &[u8]) -> ParamSet {
    let mut input = bytes;
    Record::read_from(&mut input, Limits::default()).unwrap().tensors
}

/// Updates of a simulation may stay in memory, but not those that the closing round reads again.
#[tokio::test]
async fn every_algorithm_is_simulated_and_its_models_are_tested() {
    let cases = registry::names().into_iter().map(algorithm);
    let median = ["aggregation.weights=uniform", "aggregation.rule.median={}"].map(str::to_owned).to_vec();
    for case in cases.chain([median]) {
        let overrides: Vec<&str> = case.iter().map(String::as_str).chain(["evaluate.every=1"]).collect();
        let scenario = scenario(&overrides);
        let tests =
            TestSet::new(scenario.shares[0].clone(), scenario.config.spec.data.preparation.clone(), 16);
        let directory = tempfile::tempdir().unwrap();
        let root = RunDirectory::new(directory.path().join("run"));
        let run = Run::begin(Arc::new(Disk), root, scenario.config.clone(), Some(tests)).unwrap();
        let (_stop, stopped) = watch::channel(false);
        let shares = scenario.shares.clone();
        let simulated =
            simulate(run, Resume::default(), shares, Transport::Memory, 2, stopped, &mut |_: &Notice<'_>| {})
                .await;
        let (run, outcome) = simulated.unwrap_or_else(|error| panic!("{case:?}: {error}"));
        assert_eq!(outcome, Outcome::Completed, "{case:?}");
        assert!(run.records().iter().all(|record| record.accuracy.is_some()), "{case:?}");
        let first = run.records()[0].loss;
        let last = run.records().last().unwrap().loss;
        if registry::build(&scenario.config.spec.algorithm).unwrap().ensemble().is_some() {
            assert_eq!(last, first, "a client whose model is in the ensemble is not trained again");
        } else {
            assert!(last < first, "{case:?}: what is tested learns: {first:?} {last:?}");
        }
    }
}

/// Seven clients whose updates wait on disk for the end of their round.
const WAITING: [&str; 5] = [
    "data.clients=7",
    "run.rounds=2",
    "round.min-updates=7",
    "aggregation.weights=uniform",
    "aggregation.rule.bulyan.byzantine=1",
];

#[test]
fn a_kill_while_updates_wait_or_are_read_again_gives_the_same_bits() {
    let scenario = scenario(&WAITING);
    let directory = tempfile::tempdir().unwrap();
    let mut simulator = Simulator::new(scenario.clone(), Faults::NONE, 0, directory.path());
    assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
    // Looking at the model is an operation too.
    let (operations, reference) = (simulator.disk().operations(), simulator.model());
    let (mut with_updates, mut with_all) = (0, 0);
    for fatal in 0..operations {
        let directory = tempfile::tempdir().unwrap();
        let mut simulator = Simulator::new(scenario.clone(), Faults::NONE, 0, directory.path());
        simulator.die_at(fatal, Loss::Nothing);
        assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed), "death at operation {fatal}");
        assert_eq!(simulator.server_deaths, 1, "death at operation {fatal}");
        assert_eq!(simulator.model(), reference, "death at operation {fatal}");
        let accepted =
            simulator.resumes.first().and_then(|resume| resume.open.as_ref()).map(|it| it.accepted.len());
        with_updates += usize::from(accepted.is_some_and(|accepted| accepted > 0));
        with_all += usize::from(accepted == Some(7));
    }
    assert!(with_updates > 50, "only {with_updates} deaths fell into a round with updates");
    assert!(with_all > 20, "only {with_all} deaths fell into closing");
}

#[test]
fn bulyan_gives_the_same_bits_under_any_faults() {
    survives("bulyan", &WAITING);
}
