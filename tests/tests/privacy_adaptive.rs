//! Clipping that adapts, in whole runs: bounds that follow from what the records say, the same bytes in the simulation, on devices that are
//! killed, and after a power failure at any durable step.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aggregator::coordinator::Outcome;
use aggregator::round::{RoundRecord, jsonl};
use aggregator::storage::Disk;
use federation_tests::faults::Faults;
use federation_tests::faulty_disk::Loss;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::Simulator;
use federation_tests::whole_run::{finish, start, whole};
use models::ParamSet;

/// The first bound is far below the lengths of updates.
const ADAPTIVE: [&str; 6] = [
    "privacy.clip=0.05",
    "privacy.noise=0.7",
    "privacy.delta=1e-3",
    "aggregation.weights=uniform",
    "privacy.adaptive-clip.rate=0.5",
    "simulation.reproducible-noise=true",
];

const LIMIT: Duration = Duration::from_hours(24);

fn scenario(more: &[&str]) -> Scenario {
    Scenario::small(&[&ADAPTIVE[..], more].concat())
}

/// The bounds and noised shares of all rounds, to the bit.
fn bounds(records: &[RoundRecord]) -> Vec<(u64, Option<u64>)> {
    let metric = |record: &RoundRecord, name| record.metrics.get(name).copied().map(f64::to_bits);
    let of = |record| (metric(record, "clip").expect("every round has one"), metric(record, "within-clip"));
    records.iter().map(of).collect()
}

/// Checks that each bound follows from the record before it.
fn follow(scenario: &Scenario, records: &[RoundRecord]) {
    let adaptive = scenario.config.promise.unwrap().mechanism.adaptive.unwrap();
    let of = |record: &RoundRecord, name: &str| record.metrics[name];
    assert_eq!(of(&records[0], "clip").to_bits(), 0.05f64.to_bits());
    for pair in records.windows(2) {
        let next = adaptive.next(of(&pair[0], "clip"), of(&pair[0], "within-clip"));
        assert_eq!(of(&pair[1], "clip").to_bits(), next.to_bits(), "{pair:?}");
    }
}

#[tokio::test]
async fn bounds_follow_the_noised_shares_of_the_records_and_cost_no_epsilon() {
    let folder = tempfile::tempdir().unwrap();
    let of = scenario(&["run.rounds=12", "data.clients=12", "privacy.adaptive-clip.noise=0.5"]);
    let run = whole(folder.path(), &of).await;
    follow(&of, run.records());
    let promise = of.config.promise.unwrap();
    let mut exact = 0;
    for record in run.records() {
        assert_eq!(record.metrics["epsilon-if-secret"].to_bits(), promise.epsilon(record.round).to_bits());
        // Shares without noise are multiples of a twelfth.
        let parts = 12.0 * record.metrics["within-clip"];
        exact += usize::from((parts - parts.round()).abs() < 1e-6);
    }
    assert_eq!(exact, 0, "shares stand without noise in the records");
    let [first, last] = [0, 11].map(|at: usize| run.records()[at].metrics["clip"]);
    assert!(last > 3.0 * first, "no update is within the first bound: {first} {last}");
    let said = run.privacy().unwrap();
    for part in ["begins with 0.05 and follows the 0.5 quantile", "has its share (noise 0.5 on it, 0.9802 on"]
    {
        assert!(said.contains(part), "{part:?} is not in {said:?}");
    }
    let (_, _, metadata) = models::read_model(&mut &fs::read(run.directory().model()).unwrap()[..]).unwrap();
    assert_eq!(metadata["privacy"], said);
    let rounds = fs::read_to_string(run.directory().rounds()).unwrap();
    assert_eq!(rounds.matches("\"within-clip\":").count(), 12, "{rounds}");
}

#[tokio::test]
async fn a_run_that_goes_on_has_the_bounds_of_one_that_was_not_interrupted_also_without_its_records() {
    for bounded in [&[][..], &["privacy.sampling=none", "privacy.max-participations=3", "privacy.rate=0.6"]] {
        let [parts, at_once] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let of = |rounds: u32| scenario(&[&[format!("run.rounds={rounds}").as_str()], bounded].concat());
        let expected = whole(at_once.path(), &of(6)).await;
        follow(&of(6), expected.records());
        drop(whole(parts.path(), &of(2)).await);
        let begun = whole(parts.path(), &of(3)).await;
        // Neither the model nor the bound depends on them.
        for records in [begun.directory().rounds(), begun.directory().rounds_copy()] {
            fs::remove_file(records).unwrap();
        }
        drop(begun);
        let started = start(Arc::new(Disk), parts.path(), &of(6)).unwrap();
        assert!(started.continued);
        let run = finish(started, &of(6)).await;
        assert_eq!(bounds(run.records()), bounds(&expected.records()[3..]));
        let models = [&run, &expected].map(|run| fs::read(run.directory().model()).unwrap());
        assert!(models[0] == models[1], "another model");
    }
}

/// What a run in virtual time leaves.
#[derive(Debug, PartialEq)]
struct Left {
    model: ParamSet,
    bounds: Vec<(u64, Option<u64>)>,
    sizes: Vec<usize>,
}

fn simulator(runs: &Path) -> Simulator {
    // Some rounds have no device at all, and their shares are noise.
    let scenario = scenario(&["run.rounds=6", "round.min-updates=4", "privacy.rate=0.25"]);
    Simulator::new(scenario, Faults::NONE, 0, runs)
}

fn ends(simulator: &mut Simulator, runs: &Path) -> Left {
    assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
    let run = fs::read_dir(runs).unwrap().next().unwrap().unwrap().path();
    let records = jsonl::read(&fs::read(run.join("rounds.jsonl")).unwrap()).unwrap().records;
    let sizes = records.iter().map(|record| record.accepted).collect();
    Left { model: simulator.model(), bounds: bounds(&records), sizes }
}

#[test]
fn a_power_failure_at_any_durable_step_changes_no_bound() {
    let folder = tempfile::tempdir().unwrap();
    let mut undisturbed = simulator(folder.path());
    let expected = ends(&mut undisturbed, folder.path());
    assert!(expected.sizes.contains(&0) && expected.sizes.iter().any(|size| *size > 1), "{expected:?}");
    let steps = undisturbed.disk().operations();
    for step in 0..steps {
        let folder = tempfile::tempdir().unwrap();
        let mut disturbed = simulator(folder.path());
        disturbed.die_at(step, if step % 2 == 0 { Loss::Everything } else { Loss::Some(step as u64) });
        let left = ends(&mut disturbed, folder.path());
        assert!(left == expected, "step {step} of {steps}: {:?}, not {:?}", left.bounds, expected.bounds);
    }
    println!("{steps} power failures, and none changed anything");
}

#[cfg(unix)]
mod processes {
    use super::*;
    use federation_tests::planted::plant_secret;
    use federation_tests::process::Process;
    use federation_tests::testbed::Testbed;
    use serde_json::json;

    fn testbed(rounds: &str) -> Testbed {
        // Devices take no noise of the seed: both begin with the same secret.
        let secret = &ADAPTIVE[..ADAPTIVE.len() - 1];
        let settings = [rounds, "round.min-updates=4", "update.precision=int8"];
        let testbed = Testbed::new(4, &[secret, &settings].concat());
        let name = testbed.run().file_name().unwrap().to_string_lossy().into_owned();
        for runs in [testbed.run().parent().unwrap().to_owned(), testbed.path("simulated")] {
            plant_secret(&runs, &name, [9; 32]);
        }
        testbed
    }

    fn have_one_course(testbed: &Testbed) {
        let [found, expected] = [testbed.rounds(), testbed.simulated_rounds()].map(|rounds| bounds(&rounds));
        assert_eq!(found, expected);
        assert!(found.iter().all(|(_, share)| share.is_some()), "{found:?}");
    }

    #[test]
    fn devices_give_the_bytes_and_bounds_of_the_simulation() {
        let testbed = testbed("run.rounds=4");
        let server = testbed.serve();
        let devices = (0..4).map(|index| testbed.join(index)).collect();
        testbed.assert_completed(server, devices);
        have_one_course(&testbed);
    }

    #[test]
    fn kills_of_either_program_at_any_moment_change_no_bound() {
        let testbed = testbed("run.rounds=6");
        let mut server = testbed.serve();
        let mut devices: Vec<Process> = (0..4).map(|index| testbed.join(index)).collect();
        for (round, moment) in (1..=5).zip(["training", "trained"].into_iter().cycle()) {
            // The first device is not killed, and says how far the round is.
            devices[0].object(&json!({ "event": moment, "round": round }));
            if round == 4 {
                devices.remove(1).kill();
                devices.push(testbed.join(1));
            } else {
                server.kill();
                server = testbed.serve();
            }
        }
        testbed.assert_completed(server, devices);
        have_one_course(&testbed);
    }
}
