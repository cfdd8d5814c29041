//! Protocols in memory: whole runs with virtual time, delays, cuts and crashes of either side.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::sync::Arc;
use std::time::Duration;

use aggregator::coordinator::Outcome;
use federation_tests::faulty_disk::FaultyDisk;
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

#[test]
fn a_death_at_any_disk_operation_loses_nothing() {
    let scenario = patient(&["run.rounds=2"]);
    let calm = run(&scenario, Weather::CALM, 0);
    let whole = {
        let directory = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::counting();
        let mut world = World::new(scenario.clone(), Weather::CALM, 0, &directory.path().join("run"));
        world.use_disk_once(Arc::new(disk.clone()));
        assert_eq!(world.run_until_end(LIMIT), Some(Outcome::Completed));
        assert_eq!(world.server_deaths, 0);
        disk.operations()
    };
    assert!(whole > 50, "only {whole} operations were counted");
    for fatal in 0..whole {
        let directory = tempfile::tempdir().unwrap();
        let mut world = World::new(scenario.clone(), Weather::CALM, 0, &directory.path().join("run"));
        world.use_disk_once(Arc::new(FaultyDisk::dying_at(fatal)));
        assert_eq!(world.run_until_end(LIMIT), Some(Outcome::Completed), "death at operation {fatal}");
        assert_eq!(world.server_deaths, 1, "death at operation {fatal}");
        assert_eq!(world.model(), calm, "death at operation {fatal}");
    }
}
