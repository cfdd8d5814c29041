//! Secure aggregation: the bytes of a run without it, with devices lost at every step and both sides killed at every durable one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use aggregator::coordinator::Outcome;
use aggregator::run::directory::RunDirectory;
use federation_tests::copy_folder::copy_folder;
use federation_tests::faults::Faults;
use federation_tests::faulty_disk::Loss;
use federation_tests::keys::device_key;
use federation_tests::lost_devices::Federation;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::{Loses, Simulator, model_of};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_hours(24);

/// What is added to a configuration so that devices hide their updates.
const SECURE: [&str; 3] = [
    "secure-aggregation.enabled=true",
    "secure-aggregation.min-devices=3",
    "secure-aggregation.threshold=0.5",
];

/// Four devices in every round; with secure aggregation, if that is said.
fn four(secure: bool, more: &[&str]) -> Scenario {
    let secure: &[&str] = if secure { &SECURE } else { &[] };
    Scenario::of_devices(&[&["round.min-updates=4"], secure, more].concat())
}

/// The settings that go with it.
const ALGORITHMS: [(&str, &[&str]); 13] = [
    ("fedavg", &[]),
    ("fedavg by losses", &["aggregation.weights=loss"]),
    ("fedprox, clipped", &["algorithm.fedprox={}", "aggregation.rule.clipped-mean.max-norm=0.05"]),
    ("moon", &["algorithm.moon={}", "model.name=mlp-2nn", "data.max-samples=40"]),
    ("fednova", &["algorithm.fednova={}"]),
    ("fedetf", &["algorithm.fedetf={}"]),
    ("scaffold", &["algorithm.scaffold={}", "training.batch=0"]),
    ("fedavg, adam at the server", &["aggregation.server-optimizer.adam={}", "aggregation.weights=uniform"]),
    ("int8", &["update.precision=int8", "model.name=mlp-2nn", "data.max-samples=40"]),
    ("int4", &["update.precision=int4", "model.name=mlp-2nn", "data.max-samples=40"]),
    ("bf16", &["update.precision=bf16"]),
    ("fedsgd", &["algorithm.fedsgd={}", "training.epochs=1", "training.batch=0"]),
    (
        "fedavg with personal heads",
        &[
            "model.name=cnn-small",
            "data.max-samples=40",
            "run.rounds=2",
            "personalisation.method=[\"ft\",\"mf\"]",
            "evaluate.hold-out=0.25",
        ],
    ),
];

#[test]
fn every_algorithm_gives_the_bytes_of_a_run_without_masks() {
    for (name, settings) in ALGORITHMS {
        let plain = model_of(&four(false, settings), Faults::NONE, 0);
        let hidden = model_of(&four(true, settings), Faults::NONE, 0);
        assert_eq!(hidden, plain, "{name}");
    }
}

#[test]
fn connections_and_processes_that_die_change_nothing() {
    let plain = model_of(&four(false, &[]), Faults::NONE, 0);
    let scenario = four(true, &[]);
    for seed in 0..25 {
        assert_eq!(model_of(&scenario, Faults::HEAVY, seed), plain, "seed {seed}");
    }
}

/// Two rounds that close by time, each without the last device, which would need half as long again; with secure aggregation, if that is
/// said.
fn without_the_straggler(secure: bool, folder: &Path) -> Simulator {
    let overrides = ["run.rounds=2", "round.min-updates=3", "round.timeout=60", "algorithm.fednova={}"];
    let hidden: &[&str] = if secure { &SECURE } else { &[] };
    let scenario = Scenario::of_devices(&[&overrides[..], hidden].concat());
    let mut simulator = Simulator::new(scenario, Faults::NONE, 0, folder);
    simulator.slow_down(3, Duration::from_secs(90));
    simulator
}

#[test]
fn the_masks_that_a_missing_device_shares_are_taken_away() {
    let models = [false, true].map(|secure| {
        let folder = tempfile::tempdir().unwrap();
        let mut simulator = without_the_straggler(secure, folder.path());
        assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
        let accepted: Vec<_> = simulator.records().iter().map(|round| round.accepted).collect();
        assert_eq!(accepted, [3, 3]);
        simulator.model()
    });
    assert_eq!(models[0], models[1]);
}

#[test]
fn devices_lost_at_any_step_leave_the_model_of_a_run_without_masks_or_a_void_round() {
    // Of three devices none may be lost before their updates are there. Of ten, five may be lost before they have shared their secrets
    // with the others, and then not five of the ten holders of which six are needed.
    let voids = |devices, step, lost: usize| match devices {
        3 => lost > 0 && step != Loses::Reveal,
        _ => lost > 4 && matches!(step, Loses::Update | Loses::Reveal),
    };
    for (devices, lost) in [(3, 0.0), (3, 0.1), (3, 0.3), (10, 0.0), (10, 0.1), (10, 0.3), (10, 0.5)] {
        let federation = Federation { devices, lost };
        let (silent, what) = (federation.silent(), format!("{devices} devices, {lost} lost"));
        for step in Loses::STEPS {
            let found = federation.lose(step);
            assert_eq!(found.lost, silent, "{what}, {step:?}");
            let counted = if step == Loses::Reveal { devices } else { devices - silent };
            assert_eq!(found.void, voids(devices, step, silent), "{what}, {step:?}: {found:?}");
            assert!(found.void || found.counted == counted, "{what}, {step:?}: {found:?}");
            assert!(found.same_bits, "{what}, {step:?}: {found:?}");
        }
    }
}

/// All files of the run among `runs`, by their path, once the server has stored the updates of all four devices.
fn stored(scenario: Scenario, runs: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut simulator = Simulator::new(scenario, Faults::NONE, 0, runs);
    let directory = simulator.run_directory();
    while fs::read_dir(directory.accepted(1)).map_or(0, Iterator::count) < 4 {
        assert!(simulator.now() < LIMIT, "the updates do not come");
        simulator.step();
    }
    let mut files = BTreeMap::new();
    let mut folders = vec![directory.root().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(directory.root()).unwrap().to_owned();
                files.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// Pearson's statistic of the values of bytes, where all are as likely: 255 degrees of freedom.
fn chi_square(bytes: &[u8]) -> f64 {
    let mut counts = [0_f64; 256];
    for byte in bytes {
        counts[usize::from(*byte)] += 1.0;
    }
    let expected = bytes.len() as f64 / 256.0;
    counts.iter().map(|count| (count - expected).powi(2) / expected).sum()
}

/// Plays a run twice of which devices 0 and 1 have exchanged their samples in the second. By the file, what the server has stored in both
/// before it learns the sum, of the files that differ.
fn with_samples_exchanged(secure: bool) -> BTreeMap<PathBuf, [Vec<u8>; 2]> {
    let scenario = four(secure, &["model.name=mlp-2nn", "data.max-samples=40", "run.rounds=1"]);
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let [one, other] = folders.each_ref().map(TempDir::path);
    // Copies of one run, and devices with the same secrets in both: the same keys, shares and masks.
    Simulator::new(scenario.clone(), Faults::NONE, 0, one).run_until(|_| true);
    copy_folder(one, other);
    let mut exchanged = scenario.clone();
    exchanged.shares.swap(0, 1);
    let (before, mut after) = (stored(scenario, one), stored(exchanged, other));
    assert!(before.keys().eq(after.keys()), "{:?} {:?}", before.keys(), after.keys());
    let both = before.into_iter().map(|(name, bytes)| {
        let others = after.remove(&name).expect("the names are the same");
        (name, [bytes, others])
    });
    both.filter(|(_, [before, after])| before != after).collect()
}

#[test]
fn of_all_that_the_server_has_stored_only_masked_values_depend_on_who_learned_from_what() {
    let accepted = RunDirectory::new("").accepted(1);
    let updates: BTreeSet<PathBuf> = (0..2)
        .map(|index| RunDirectory::new("").accepted_update(1, device_key(index).public().client()))
        .collect();
    for secure in [true, false] {
        let differ = with_samples_exchanged(secure);
        if secure {
            assert_eq!(differ.keys().cloned().collect::<BTreeSet<_>>(), updates);
        }
        for (name, files) in differ.into_iter().filter(|(name, _)| name.starts_with(&accepted)) {
            let same = files[0].iter().zip(&files[1]).take_while(|(one, other)| one == other).count();
            // Names, shapes and what a device says of its round: the same, from any samples that it has learned from.
            assert!(!secure || same > 200, "{name:?}: {same} bytes");
            for bytes in files {
                let chi = chi_square(&bytes[same..]);
                // Mean 255, deviation 22.6.
                assert_eq!(chi < 370.0, secure, "{name:?}: {chi}");
            }
        }
    }
}

/// The run of a scenario on disks that fail.
fn on_disks(scenario: &Scenario, folder: &Path) -> Simulator {
    let simulator = Simulator::new(scenario.clone(), Faults::NONE, 0, &folder.join("runs"));
    simulator.with_disks(&folder.join("devices"))
}

/// The server of this run dies at every so-manieth of its disk operations, from the first one on, with or without the power.
fn server_dies_at(scenario: &Scenario, every: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut whole = on_disks(scenario, folder.path());
    assert_eq!(whole.run_until_end(LIMIT), Some(Outcome::Completed));
    let (reference, operations) = (whole.model(), whole.disk().operations());
    for fatal in (0..operations).step_by(every) {
        let loss = if fatal % 2 == 0 { Loss::Nothing } else { Loss::Some(fatal as u64) };
        let folder = tempfile::tempdir().unwrap();
        let mut simulator = on_disks(scenario, folder.path());
        simulator.die_at(fatal, loss);
        assert_eq!(
            simulator.run_until_end(LIMIT),
            Some(Outcome::Completed),
            "{fatal} of {operations}, {loss:?}"
        );
        assert_eq!(simulator.model(), reference, "{fatal} of {operations}, {loss:?}");
        assert!(simulator.told().is_empty(), "{fatal}, {loss:?}: {:?}", simulator.told());
    }
    println!("{} deaths among {operations} disk operations of the server", operations.div_ceil(every));
}

#[test]
fn the_server_dies_at_every_seventh_durable_step_and_the_bytes_are_the_same() {
    server_dies_at(&four(true, &["run.rounds=2", "algorithm.scaffold={}", "training.batch=0"]), 7);
}

/// Printed by `cargo test --release -p federation-tests --test suite -- the_server_dies --ignored --nocapture`.
#[test]
#[ignore = "a minute in a release build"]
fn the_server_dies_at_every_durable_step_and_the_bytes_are_the_same() {
    server_dies_at(&four(true, &["run.rounds=2"]), 1);
    // The secrets of the devices of a simulation are the same in every run, and so is their noise.
    let noise = [
        "run.rounds=2",
        "secure-aggregation.integers=i32",
        "privacy.clip=0.5",
        "privacy.noise=0.7",
        "privacy.delta=1e-3",
        "aggregation.weights=uniform",
        "update.precision=int8",
    ];
    server_dies_at(&four(true, &noise), 1);
}

#[test]
fn a_device_that_lies_in_its_masked_update_makes_the_round_void_and_the_operator_is_told() {
    let said = Said::default();
    let told = said.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || told.clone()).finish();
    tracing::subscriber::with_default(subscriber, || {
        let folder = tempfile::tempdir().unwrap();
        let mut simulator = Simulator::new(four(true, &[]), Faults::NONE, 0, folder.path());
        simulator.run_until(|server| server.run().closed() == 1);
        let before = simulator.model();
        simulator.device_mut(2).lies_by = Some(1 << 60);
        simulator.run_until(|server| server.run().closed() == 2);
        let records = simulator.records();
        assert_eq!((records[0].void, records[1].void), (false, true));
        assert_eq!(simulator.model(), before, "nothing was learned");
        assert_eq!(said.text().matches("round 2: the sum of the hidden updates is of no use").count(), 1);
        // It is the lie that was found.
        simulator.device_mut(2).lies_by = None;
        assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
        let voids: Vec<_> = simulator.records().iter().map(|round| round.void).collect();
        assert_eq!(voids, [false, true, false, false]);
    });
}

/// What was logged.
#[derive(Clone, Default)]
struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_device_dies_at_every_durable_step_and_the_bytes_are_the_same() {
    let scenario = four(true, &["run.rounds=2", "algorithm.scaffold={}", "training.batch=0"]);
    let folder = tempfile::tempdir().unwrap();
    let mut whole = on_disks(&scenario, folder.path());
    assert_eq!(whole.run_until_end(LIMIT), Some(Outcome::Completed));
    let (reference, operations) = (whole.model(), whole.devices()[1].operations());
    assert!(operations > 30, "{operations}");
    for fatal in 0..operations {
        // The process alone, or the power with it.
        let loss = [Loss::Nothing, Loss::Some(fatal as u64), Loss::Some(2)][fatal % 3];
        let folder = tempfile::tempdir().unwrap();
        let mut simulator = on_disks(&scenario, folder.path());
        simulator.device_mut(1).die_at(fatal, loss);
        assert_eq!(
            simulator.run_until_end(LIMIT),
            Some(Outcome::Completed),
            "{fatal} of {operations}, {loss:?}"
        );
        assert_eq!(simulator.model(), reference, "{fatal} of {operations}, {loss:?}");
        assert!(simulator.told().is_empty(), "{fatal}, {loss:?}: {:?}", simulator.told());
        assert!(simulator.devices().iter().all(|device| device.refused.is_empty()), "{fatal}, {loss:?}");
    }
}
