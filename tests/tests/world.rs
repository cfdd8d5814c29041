//! Protocols in memory: whole runs with virtual time, delays, cuts and crashes of either side.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::path::Path;
use std::time::Duration;

use aggregator::coordinator::Outcome;
use aggregator::report::WaitedFor;
use federation_tests::faulty_disk::Loss;
use federation_tests::scenario::Scenario;
use federation_tests::weather::Weather;
use federation_tests::world::World;
use models::ParamSet;

const LIMIT: Duration = Duration::from_secs(24 * 3600);

fn run(scenario: &Scenario, weather: Weather, seed: u64) -> ParamSet {
    let directory = tempfile::tempdir().unwrap();
    let mut world = World::new(scenario.clone(), weather, seed, &directory.path().join("run"));
    assert_eq!(world.run_until_end(LIMIT), Some(Outcome::Completed), "seed {seed} at {:?}", world.now());
    world.model()
}

/// All four clients in every round, however long it takes.
fn patient(more: &[&str]) -> Scenario {
    let mut overrides = vec!["round.count.min=4"];
    overrides.extend_from_slice(more);
    Scenario::small(&overrides)
}

#[test]
fn a_calm_run_completes_and_learns() {
    let scenario = patient(&[]);
    let model = run(&scenario, Weather::CALM, 1);
    let seed = scenario.config.spec.root_seed().derive("initial parameters");
    let initial = scenario.config.spec.architecture.initialise(|tensor| seed.derive(tensor).rng()).unwrap();
    assert!(model.distance(&initial).unwrap() > 0.1, "three rounds of training move the model");
}

#[test]
fn any_weather_gives_the_bits_of_calm_weather() {
    let scenario = patient(&[]);
    let calm = run(&scenario, Weather::CALM, 0);
    for seed in 0..200 {
        assert_eq!(run(&scenario, Weather::STORM, seed), calm, "seed {seed}");
    }
}

/// Two rounds that close by time, each without device 3, which would need half as long again.
fn without_the_straggler(directory: &Path) -> World {
    let scenario = Scenario::small(&["run.rounds=2", "round.count.min=2", "round.time.max=60"]);
    let mut world = World::new(scenario, Weather::CALM, 0, &directory.join("run"));
    world.slow_down(3, Duration::from_secs(90));
    world
}

#[test]
fn a_round_that_was_decided_by_time_closes_as_decided_whenever_the_aggregator_dies() {
    let (calm, whole) = {
        let directory = tempfile::tempdir().unwrap();
        let mut world = without_the_straggler(directory.path());
        assert_eq!(world.run_until_end(LIMIT), Some(Outcome::Completed));
        assert!(world.now() >= Duration::from_secs(120), "both rounds closed by time");
        let accepted: Vec<_> =
            world.server().unwrap().run().records().iter().map(|round| round.accepted).collect();
        assert_eq!(accepted, [3, 3]);
        let whole = world.disk().operations();
        (world.model(), whole)
    };
    let (mut decided, mut undecided) = (0, 0);
    for fatal in 0..whole {
        let directory = tempfile::tempdir().unwrap();
        let mut world = without_the_straggler(directory.path());
        world.die_at(fatal, Loss::Nothing);
        assert_eq!(world.run_until_end(LIMIT), Some(Outcome::Completed), "death at operation {fatal}");
        assert_eq!(world.server_deaths, 1, "death at operation {fatal}");
        let reopened = world.resumes.first().and_then(|resume| resume.open.as_ref());
        if reopened.is_some_and(|open| open.closing.is_some()) {
            decided += 1;
            let records = world.server().unwrap().run().records();
            assert!(records.iter().all(|round| round.waited_for == WaitedFor::MaxTime), "{records:?}");
        }
        // While the decision itself is being written there is none, and the straggler is as welcome as before.
        let is_undecided = reopened.is_some_and(|open| open.closing.is_none() && open.accepted.len() == 3);
        if world.model() != calm {
            assert!(is_undecided, "death at operation {fatal}: {:?}", world.resumes);
            undecided += 1;
        }
    }
    assert!(decided > 20, "only {decided} deaths fell between a decision and its checkpoint");
    assert!(undecided <= 2 * DECISION, "{undecided} deaths gave another model");
}

/// Disk operations until a decision is durable: create, write in pieces, sync, rename.
const DECISION: usize = 14;

#[test]
fn a_death_at_any_disk_operation_loses_nothing() {
    let scenario = patient(&["run.rounds=2"]);
    let calm = run(&scenario, Weather::CALM, 0);
    let whole = {
        let directory = tempfile::tempdir().unwrap();
        let mut world = World::new(scenario.clone(), Weather::CALM, 0, &directory.path().join("run"));
        assert_eq!(world.run_until_end(LIMIT), Some(Outcome::Completed));
        assert_eq!(world.server_deaths, 0);
        world.disk().operations()
    };
    assert!(whole > 50, "only {whole} operations were counted");
    for fatal in 0..whole {
        let directory = tempfile::tempdir().unwrap();
        let mut world = World::new(scenario.clone(), Weather::CALM, 0, &directory.path().join("run"));
        world.die_at(fatal, Loss::Nothing);
        assert_eq!(world.run_until_end(LIMIT), Some(Outcome::Completed), "death at operation {fatal}");
        assert_eq!(world.server_deaths, 1, "death at operation {fatal}");
        assert_eq!(world.model(), calm, "death at operation {fatal}");
        // Devices keep their updates until the receipt, so none of them trains twice.
        assert!(world.trainings().values().all(|&times| times == 1), "death at operation {fatal}");
    }
}
