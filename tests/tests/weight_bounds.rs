//! What one device counts for: the attack with declared samples, and what the bounds leave alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use aggregator::compare::experiment::Experiment;
use aggregator::compare::plan::Plan;
use aggregator::config::{Config, Source};
use aggregator::coordinator::{Outcome, Resume};
use aggregator::data;
use aggregator::events::{Level, Notice, text};
use aggregator::round::{SampleCap, jsonl};
use aggregator::run::Run;
use aggregator::run::directory::RunDirectory;
use aggregator::simulate::{Transport, simulate};
use aggregator::storage::Disk;
use federation_tests::faults::Faults;
use federation_tests::faulty_disk::Loss;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::{Simulator, model_of};
use shared::data::{Dataset, Split, View};
use shared::id::RunId;
use tokio::sync::watch;

/// Far more than any of these runs takes.
const PATIENCE: Duration = Duration::from_mins(2);

/// One of ten clients declares 4,294,967,295 samples and sends zeros.
const ATTACK: [&str; 2] = ["simulation.attack.inflated-samples={}", "simulation.attackers=0.1"];

/// As it was before there were bounds.
const UNBOUNDED: [&str; 2] = ["round.max-weight-ratio=0", "round.max-weight-share=1"];

/// Ten clients for twenty rounds, tested after the last.
fn ten(overrides: &[&str]) -> Scenario {
    let more = ["data.clients=10", "data.max-samples=1000", "run.rounds=20", "evaluate.every=20"];
    Scenario::small(&[&more[..], overrides].concat())
}

/// The run after its simulation, and the alarms that it raised.
async fn simulated(scenario: &Scenario) -> (tempfile::TempDir, Run, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let root = RunDirectory::new(folder.path().join("run"));
    let tests = data::test_set(&scenario.config).unwrap();
    let run = Run::begin(Arc::new(Disk), root, scenario.config.clone(), tests).unwrap();
    let (_stop, stopped) = watch::channel(false);
    let mut alarms = Vec::new();
    let mut sink = |notice: &Notice<'_>| {
        if notice.level() == Level::Alarm {
            alarms.extend(text(notice));
        }
    };
    let shares = scenario.shares.clone();
    let simulation =
        Box::pin(simulate(run, Resume::default(), shares, Transport::Memory, 2, stopped, &mut sink));
    let (run, outcome) =
        tokio::time::timeout(PATIENCE, simulation).await.expect("the simulation ends in time").unwrap();
    assert_eq!(outcome, Outcome::Completed);
    (folder, run, alarms)
}

async fn accuracy(overrides: &[&str]) -> f64 {
    let (_folder, run, _) = simulated(&ten(overrides)).await;
    run.records().last().and_then(|record| record.accuracy).expect("the last round is tested")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_declares_billions_of_samples_does_not_stop_learning() {
    for algorithm in ["algorithm.fedavg={}", "algorithm.fednova={}"] {
        let honest = accuracy(&[algorithm]).await;
        let bounded = accuracy(&[&[algorithm], &ATTACK[..]].concat()).await;
        println!("{algorithm}: {honest} without the attack, {bounded} with it");
        assert!(bounded > honest - 0.05, "{algorithm}: {bounded} and not {honest}");
    }
    let unbounded = accuracy(&[&ATTACK[..], &UNBOUNDED].concat()).await;
    println!("{unbounded} without bounds");
    assert!(unbounded < 0.3, "{unbounded}: the attack is none");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_told_once_and_stands_in_every_record() {
    for (bounds, weight, advice) in [
        (&[][..], "its weight was bounded to 50.00 %", "set round.max-samples"),
        (&UNBOUNDED[..], "has 99.99 % of the weight", "lower round.max-weight-share"),
    ] {
        let scenario = ten(&[&ATTACK[..], bounds, &["run.rounds=3"]].concat());
        let (_folder, run, alarms) = simulated(&scenario).await;
        let [alarm] = &alarms[..] else { panic!("{alarms:?}") };
        assert!(alarm.contains(weight) && alarm.contains(advice), "{alarm}");
        let lines = std::fs::read_to_string(run.directory().rounds()).unwrap();
        let records = jsonl::read(&lines).unwrap().records;
        let found: Vec<_> = records.iter().map(|record| record.dominance.as_ref().unwrap()).collect();
        assert_eq!(found.len(), 3);
        for dominance in found {
            assert_eq!(dominance.samples, u64::from(u32::MAX));
            assert!(dominance.share_of_samples > 0.999_999, "{dominance:?}");
            assert!(alarm.contains(&dominance.client.short()), "{alarm}");
        }
    }
    let (_folder, run, alarms) = simulated(&ten(&["run.rounds=2"])).await;
    assert_eq!(
        (run.records().iter().filter(|record| record.dominance.is_some()).count(), alarms.len()),
        (0, 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_beyond_the_operators_bound_is_refused_and_not_waited_for() {
    let scenario = ten(&[&ATTACK[..], &["round.max-samples=100", "run.rounds=2"]].concat());
    let (_folder, run, _) = simulated(&scenario).await;
    let accepted: Vec<_> = run.records().iter().map(|record| (record.sampled, record.accepted)).collect();
    assert_eq!(accepted, [(9, 9); 2]);
}

/// Three clients with ten samples each, and one with the other 130.
fn skewed(overrides: &[&str]) -> Scenario {
    let mut scenario = Scenario::small(overrides);
    let all = scenario.shares[0].dataset().clone();
    let part = |range: std::ops::Range<u32>| View::select(all.clone(), range.collect::<Vec<u32>>()).unwrap();
    scenario.shares = vec![part(0..10), part(10..140), part(140..150), part(150..160)];
    scenario
}

#[test]
fn a_restart_in_a_bounded_round_leaves_no_trace() {
    let scenario = skewed(&[]);
    let expected = model_of(&scenario, Faults::NONE, 1);
    assert!(expected != model_of(&skewed(&UNBOUNDED), Faults::NONE, 1), "the weight is bounded");
    for fatal in (5..150).step_by(7) {
        let folder = tempfile::tempdir().unwrap();
        let mut simulator = Simulator::new(scenario.clone(), Faults::NONE, 1, folder.path());
        simulator.die_at(fatal, Loss::Everything);
        let outcome = simulator.run_until_end(Duration::from_hours(24));
        assert_eq!(outcome, Some(Outcome::Completed), "death at operation {fatal}");
        assert!(simulator.model() == expected, "death at operation {fatal}: another model");
    }
}

/// The training samples of a run; those of a set that is not here are as many, of ten classes in turn. `None` where
/// only its files say how many there are.
fn training_samples(config: &Config) -> Option<Dataset> {
    if let Ok(samples) = data::load(config, Split::Train) {
        return Some(samples);
    }
    let count = match &config.data.source {
        Source::Files { limit: Some(limit), .. } => Some(*limit),
        _ => config.data.set.training_samples,
    };
    let count = count.filter(|_| config.data.set.labels_each == Some(1))?;
    let shape = config.spec.data.shape.clone();
    let pixels = vec![0; count * shape.iter().product::<usize>()];
    let labels: Vec<u8> = (0..count).map(|sample| (sample % 10) as u8).collect();
    Some(Dataset::new(shape, pixels, labels, 10).unwrap())
}

/// Every shipped configuration that divides samples in another way.
fn shipped() -> BTreeMap<String, Config> {
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("configs");
    let files = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
    };
    // Where a published set is not here, its configurations still say how it is divided.
    let absent = ["data.path=nowhere".to_owned()];
    let overrides = if std::env::var_os("FEDERATION_DATA").is_some() { &[] } else { &absent[..] };
    let read = |file: &Path| {
        let read = |overrides: &[String]| Config::read(Some(file), overrides, RunId::from_bytes([1; 8]));
        read(&[]).or_else(|_| read(overrides)).unwrap()
    };
    let mut found = BTreeMap::new();
    let mut add = |config: &Config| {
        let (spec, data) = (&config.spec, &config.data);
        let division = (spec.training.chunks, spec.evaluate.hold_out, config.server.labelled);
        found.insert(format!("{data:?} seed {} {division:?}", spec.seed), config.clone());
    };
    add(&Config::read(None, &[], RunId::from_bytes([1; 8])).unwrap());
    for file in files(configs.clone()) {
        add(&read(&file));
    }
    for file in files(configs.join("experiments")) {
        for form in ["reduced", "full", "ablation", "mu5"] {
            let Ok(experiment) = Experiment::read(&file, form) else { continue };
            Plan::of(experiment, overrides).unwrap().runs.iter().for_each(|run| add(&run.config));
        }
    }
    found
}

/// The bounds are for what no honest federation does: none that ships here is changed by them.
#[test]
fn no_shipped_configuration_is_bounded() {
    let mut sets: BTreeMap<String, Option<Arc<Dataset>>> = BTreeMap::new();
    let mut partitions = BTreeSet::new();
    for (division, config) in shipped() {
        let drawn = if config.data.set.format.is_none() { config.spec.seed } else { 0 };
        let set = format!("{:?} {:?} {drawn}", config.data.set.name, config.data.source);
        if !sets.contains_key(&set) {
            // One at a time: some take hundreds of megabytes.
            sets.clear();
            let samples = training_samples(&config);
            if samples.is_none() {
                println!("skipped: {} is not here", config.data.set.name);
            }
            sets.insert(set.clone(), samples.map(Arc::new));
        }
        let Some(samples) = sets[&set].clone() else { continue };
        let shares = data::divide(&config, samples).unwrap();
        let spec = &config.spec;
        for round in 1..=spec.training.chunks.max(1) {
            let used = shares.iter().map(|share| spec.samples_in(round, share.len() as u64));
            assert_eq!(config.policy.weight_bounds.cap(used), SampleCap::NONE, "{division}");
        }
        partitions.insert(format!("{:?}", config.data.partition));
    }
    assert!(partitions.len() > 5, "{partitions:?}");
}
