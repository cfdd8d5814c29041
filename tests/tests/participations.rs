//! Bounded participations in private runs: a power failure at any durable step asks no device more often, and changes no byte.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use aggregator::coordinator::Outcome;
use aggregator::round::jsonl;
use federation_tests::faults::Faults;
use federation_tests::faulty_disk::Loss;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::Simulator;
use models::ParamSet;
use shared::id::ClientId;

/// K: how often a device is asked at most.
const MOST: usize = 2;

/// Devices of the run.
const DEVICES: usize = 4;

const LIMIT: Duration = Duration::from_hours(24);

fn simulator(runs: &Path) -> Simulator {
    let most = format!("privacy.max-participations={MOST}");
    let scenario = Scenario::small(&[
        "privacy.clip=0.5",
        "privacy.noise=0.7",
        "privacy.delta=1e-3",
        "privacy.sampling=none",
        &most,
        "privacy.rate=0.6",
        "aggregation.weights=uniform",
        "simulation.reproducible-noise=true",
        "run.rounds=40",
        "round.min-updates=4",
    ]);
    Simulator::new(scenario, Faults::NONE, 0, runs)
}

/// What a run leaves.
#[derive(Debug, PartialEq)]
struct Left {
    model: ParamSet,
    /// How many each round has asked, and had updates of.
    sizes: Vec<(usize, usize)>,
    /// The rounds in which each device has trained.
    trained: BTreeMap<ClientId, Vec<u32>>,
}

fn ends(simulator: &mut Simulator, runs: &Path) -> Left {
    assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
    let run = fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
    let records = jsonl::read(&fs::read(run.join("rounds.jsonl")).unwrap()).unwrap().records;
    let sizes = records.iter().map(|record| (record.sampled, record.accepted)).collect();
    let mut trained: BTreeMap<ClientId, Vec<u32>> = BTreeMap::new();
    // Of a round that was interrupted more than once, and counted once.
    for (round, client) in simulator.trainings().keys() {
        trained.entry(*client).or_default().push(*round);
    }
    Left { model: simulator.model(), sizes, trained }
}

#[test]
fn a_power_failure_at_any_durable_step_asks_no_device_more_often() {
    let folder = tempfile::tempdir().unwrap();
    let mut undisturbed = simulator(folder.path());
    let expected = ends(&mut undisturbed, folder.path());
    assert!(expected.sizes.len() < 40, "training ends when all are done");
    assert_eq!(expected.trained.len(), DEVICES);
    assert!(expected.trained.values().all(|rounds| rounds.len() == MOST), "{:?}", expected.trained);
    let steps = undisturbed.disk().operations();
    for step in 0..steps {
        let folder = tempfile::tempdir().unwrap();
        let mut disturbed = simulator(folder.path());
        disturbed.die_at(step, if step % 2 == 0 { Loss::Everything } else { Loss::Some(step as u64) });
        let left = ends(&mut disturbed, folder.path());
        assert!(left == expected, "step {step} of {steps}: {:?}, not {:?}", left.trained, expected.trained);
    }
    println!("{steps} power failures, and none changed anything");
}
