//! Power failures and backups, of runs whose clients keep something: either the run ends in the bytes of an undisturbed one, or
//! device and server both say that it does not.
//!
//! Each test is a table: what the clients keep, and what happens to it. A new fault is a row.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aggregator::coordinator::Outcome;
use aggregator::round::jsonl;
use federation_tests::faults::Faults;
use federation_tests::faulty_disk::Loss;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::{Power, Simulator, copy};
use models::ParamSet;
use shared::id::RunId;
use shared::message::CountedUpdate;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_hours(24);
const RUN: RunId = RunId::from_bytes([9; 8]);

/// What clients keep, and the settings that make them.
const KEPT: [(&str, &[&str]); 5] = [
    ("scaffold", &["algorithm.scaffold={}", "training.batch=0"]),
    ("moon", &["algorithm.moon={}", "model.name=mlp-2nn", "data.max-samples=40"]),
    ("local", &["algorithm.local={}"]),
    ("what updates leave out", &["update.top-k=0.02", "update.precision=int8"]),
    (
        "personal models",
        &[
            "data.max-samples=40",
            "model.name=cnn-small",
            "personalisation.method=[\"mfe\",\"ft\"]",
            "personalisation.every=1",
        ],
    ),
];

/// What both sides were told: the device, the round of the server, and that of the device.
type Told = Vec<(usize, Option<u32>, Option<u32>)>;

/// A federation with its disks, in folders of its own.
struct Federation {
    simulator: Simulator,
    folder: TempDir,
}

/// What a run leaves, on both sides.
#[derive(Debug, PartialEq)]
struct Left {
    model: ParamSet,
    /// The client state of every device.
    states: Vec<Option<Vec<u8>>>,
    /// The personal model of every device.
    personal: Vec<Option<Vec<u8>>>,
}

impl Federation {
    /// All four clients take part in every round.
    fn new(settings: &[&str], rounds: u32) -> Self {
        let rounds = format!("run.rounds={rounds}");
        let scenario = Scenario::small(&[&["round.min-updates=4", &rounds], settings].concat());
        let folder = tempfile::tempdir().unwrap();
        let simulator = Simulator::new(scenario, Faults::NONE, 0, &folder.path().join("runs"));
        let simulator = simulator.with_disks(&folder.path().join("devices"));
        Self { simulator, folder }
    }

    /// Lets it run to its end.
    fn ends(&mut self) -> Left {
        assert_eq!(self.simulator.run_until_end(LIMIT), Some(Outcome::Completed));
        let states = (0..4).map(|device| self.simulator.device_mut(device).client_state(RUN)).collect();
        let personal = self.simulator.devices().iter().map(|device| device.personal(RUN)).collect();
        Left { model: self.simulator.model(), states, personal }
    }

    /// Lets it run until this number of rounds are closed.
    fn reaches(&mut self, round: u32) {
        self.simulator.run_until(|server| server.coordinator().closed() == round);
    }

    fn device(&self, device: usize) -> PathBuf {
        self.folder.path().join("devices").join(device.to_string())
    }

    fn backup(&self) -> PathBuf {
        self.folder.path().join("backup")
    }

    /// What both sides were told, which is the same.
    fn told(&self) -> Told {
        let devices = self.simulator.devices();
        let index = |client| devices.iter().position(|device| device.client() == client).unwrap();
        let rounds = |server: Option<CountedUpdate>, own: Option<CountedUpdate>| {
            (server.map(|update| update.round), own.map(|update| update.round))
        };
        let told = |&(client, server, own)| {
            let (server, own) = rounds(server, own);
            (index(client), server, own)
        };
        let mut operator: Vec<_> = self.simulator.told().iter().map(told).collect();
        operator.sort_unstable();
        let owners = devices.iter().enumerate();
        let mut owners: Vec<_> = owners
            .flat_map(|(index, device)| {
                device.told.iter().map(move |&(server, own)| {
                    let (server, own) = rounds(server, own);
                    (index, server, own)
                })
            })
            .collect();
        owners.sort_unstable();
        assert_eq!(operator, owners, "one side says what the other does not");
        operator
    }
}

/// Where the power fails: at every `step`th of the disk operations of a run.
fn every(step: usize, operations: usize) -> impl Iterator<Item = usize> {
    (0..operations).step_by(step)
}

fn losses(number: usize) -> Loss {
    if number.is_multiple_of(2) { Loss::Everything } else { Loss::Some(number as u64) }
}

#[test]
fn a_power_failure_at_any_durable_step_changes_nothing() {
    let mut failures = 0;
    for (name, settings) in KEPT {
        let mut undisturbed = Federation::new(settings, 2);
        let expected = undisturbed.ends();
        let steps = undisturbed.simulator.devices()[0].operations();
        assert!(steps > 20, "{name}: a device makes {steps} durable steps");
        let check = |mut federation: Federation, at: &str| {
            let left = federation.ends();
            assert_eq!(federation.told(), [], "{name}, {at}");
            assert!(left == expected, "{name}, {at}: the run ends in other bytes");
        };
        for power in [Power::Device, Power::Both] {
            for step in every(2, steps) {
                let mut federation = Federation::new(settings, 2);
                federation.simulator.device_dies_at(0, step, losses(step / 2), power);
                check(federation, &format!("{power:?}, step {step} of the device"));
                failures += 1;
            }
        }
        let steps = undisturbed.simulator.disk().operations();
        for step in every(steps / 12, steps) {
            let mut federation = Federation::new(settings, 2);
            federation.simulator.die_at(step, losses(step));
            check(federation, &format!("step {step} of the server"));
            failures += 1;
        }
    }
    println!("{failures} power failures, and none changed anything");
    assert!(failures >= 200, "{failures} power failures");
}

/// Cohorts and noise come from the seed, so that runs can be compared; some rounds have no device at all.
const PRIVATE: [&str; 6] = [
    "privacy.clip=0.5",
    "privacy.noise=0.7",
    "privacy.delta=1e-3",
    "privacy.rate=0.25",
    "aggregation.weights=uniform",
    "simulation.reproducible-noise=true",
];

#[test]
fn a_private_run_has_the_same_cohorts_and_noise_after_a_power_failure_of_the_server() {
    const ROUNDS: u32 = 8;
    let cohorts = |federation: &Federation| -> Vec<usize> {
        let runs = federation.folder.path().join("runs");
        let run = fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
        let rounds = jsonl::read(&fs::read(run.join("rounds.jsonl")).unwrap()).unwrap().records;
        rounds.iter().map(|record| record.sampled).collect()
    };
    let mut undisturbed = Federation::new(&PRIVATE, ROUNDS);
    let expected = (undisturbed.ends(), cohorts(&undisturbed));
    assert_eq!(expected.1.len(), ROUNDS as usize);
    assert!(expected.1.contains(&0), "{:?}", expected.1);
    let steps = undisturbed.simulator.disk().operations();
    for step in every(steps / 12, steps) {
        let mut federation = Federation::new(&PRIVATE, ROUNDS);
        federation.simulator.die_at(step, losses(step));
        let left = (federation.ends(), cohorts(&federation));
        assert!(left == expected, "step {step} of {steps}: {:?}, not {:?}", left.1, expected.1);
    }
}

/// What is put back, or lost, when 15 rounds of 17 are closed; copies are of the moment when 5 were.
enum Fault {
    Run,
    Device,
    LostState,
    Both,
    /// The run, and later one device's state of a round that the run has had twice.
    DeviceOfThatCourse,
}

#[test]
fn a_backup_that_does_not_belong_to_the_other_side_is_told_on_both() {
    let all = |server, device| (0..4).map(move |client| (client, server, device)).collect::<Vec<_>>();
    let (five, fifteen) = (Some(5), Some(15));
    let scaffold = &["algorithm.scaffold={}", "training.batch=0"][..];
    let moon = &["algorithm.moon={}", "model.name=mlp-2nn", "data.max-samples=40"][..];
    let mut twice = [vec![(2, Some(12), Some(12))], all(five, fifteen)].concat();
    twice.sort_unstable();
    let top_k = &["update.top-k=0.02"][..];
    let rows: [(&str, &[&str], Fault, Told); 9] = [
        ("fedavg keeps nothing", &[], Fault::Run, Vec::new()),
        ("scaffold, the run", scaffold, Fault::Run, all(five, fifteen)),
        ("moon, the run", moon, Fault::Run, all(five, fifteen)),
        ("scaffold, a device", scaffold, Fault::Device, vec![(2, fifteen, five)]),
        ("scaffold, a device without its state", scaffold, Fault::LostState, vec![(2, fifteen, None)]),
        ("scaffold, the run and all devices", scaffold, Fault::Both, Vec::new()),
        ("what updates leave out, a device", top_k, Fault::Device, vec![(2, fifteen, five)]),
        ("what updates leave out, lost", top_k, Fault::LostState, vec![(2, fifteen, None)]),
        (
            "scaffold, the run and later a device of the rounds before",
            scaffold,
            Fault::DeviceOfThatCourse,
            twice,
        ),
    ];
    for (name, settings, fault, told) in rows {
        let undisturbed = Federation::new(settings, 17).ends();
        let disturbed = || {
            let mut federation = Federation::new(settings, 17);
            federation.reaches(5);
            let (backup, devices) = (federation.backup(), federation.folder.path().join("backups"));
            federation.simulator.back_up(&backup).unwrap();
            copy(&federation.folder.path().join("devices"), &devices).unwrap();
            federation.reaches(12);
            let twelfth = federation.folder.path().join("twelfth");
            copy(&federation.device(2), &twelfth).unwrap();
            federation.reaches(15);
            let back = |federation: &mut Federation, device: usize, from: Option<&Path>| {
                let directory = federation.device(device);
                federation.simulator.replace_device(device, &directory, from).unwrap();
            };
            match fault {
                Fault::Run => federation.simulator.put_back(&backup).unwrap(),
                Fault::Device => back(&mut federation, 2, Some(&devices.join("2"))),
                Fault::LostState => back(&mut federation, 2, None),
                Fault::DeviceOfThatCourse => {
                    federation.simulator.put_back(&backup).unwrap();
                    federation.reaches(12);
                    back(&mut federation, 2, Some(&twelfth));
                }
                Fault::Both => {
                    federation.simulator.put_back(&backup).unwrap();
                    (0..4).for_each(|device| {
                        back(&mut federation, device, Some(&devices.join(device.to_string())));
                    });
                }
            }
            let left = federation.ends();
            assert_eq!(federation.told(), told, "{name}");
            left
        };
        let left = disturbed();
        assert!(disturbed() == left, "{name}: the same faults end in the same bytes");
        assert_eq!(left == undisturbed, told.is_empty(), "{name}: what differs is told, and nothing else");
    }
}
