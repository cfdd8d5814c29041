//! The secret of a private run, where it could fail it: a power failure at any durable step, from the one that draws it on, and copies of
//! the whole run that go on in different ways.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aggregator::coordinator::Outcome;
use aggregator::run::Run;
use aggregator::storage::Disk;
use federation_tests::copy_folder::copy_folder;
use federation_tests::faults::Faults;
use federation_tests::faulty_disk::Loss;
use federation_tests::planted::plant_secret;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::Simulator;
use federation_tests::whole_run::{finish, start, whole};
use models::ParamSet;

const LIMIT: Duration = Duration::from_hours(24);

/// Nothing of it comes from the seed: neither noise nor cohorts.
const SECRET: [&str; 7] = [
    "run.rounds=2",
    "privacy.clip=0.5",
    "privacy.noise=0.7",
    "privacy.delta=1e-3",
    "privacy.rate=0.6",
    "aggregation.weights=uniform",
    "round.min-updates=4",
];

/// What a run leaves: its model, and of every round the devices that it asked and what was spent.
#[derive(Debug, PartialEq)]
struct Left {
    model: ParamSet,
    rounds: Vec<(usize, usize, u64)>,
}

fn simulator(runs: &Path) -> Simulator {
    Simulator::new(Scenario::small(&SECRET), Faults::NONE, 0, runs)
}

fn secret(simulator: &Simulator) -> Option<Vec<u8>> {
    fs::read(simulator.run_directory().root().join("state/secret")).ok()
}

/// Lets it run to its end; also gives the secrets that its lives had once the run had begun.
fn ends(simulator: &mut Simulator) -> (Left, BTreeSet<Vec<u8>>) {
    let mut secrets = BTreeSet::new();
    while simulator.run_until_end(simulator.now()).is_none() {
        assert!(simulator.now() < LIMIT, "it does not come to its end");
        simulator.step();
        if simulator.server().is_some() {
            secrets.extend(secret(simulator));
        }
    }
    assert_eq!(simulator.run_until_end(LIMIT), Some(Outcome::Completed));
    let records = simulator.records().into_iter();
    let rounds = records
        .map(|record| (record.sampled, record.accepted, record.metrics["epsilon"].to_bits()))
        .collect();
    (Left { model: simulator.model(), rounds }, secrets)
}

#[test]
fn a_power_failure_at_any_durable_step_leaves_one_secret_and_the_run_that_follows_from_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut undisturbed = simulator(folder.path());
    let (first, secrets) = ends(&mut undisturbed);
    assert_eq!((first.rounds.len(), secrets.len()), (2, 1));
    let steps = undisturbed.disk().operations();
    let (mut all, mut failures) = (secrets, 0);
    for step in 0..steps {
        let loss = [Loss::Nothing, Loss::Everything, Loss::Some(step as u64)][step % 3];
        let at = format!("step {step} of {steps}, {loss:?}");
        let [disturbed, undisturbed] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let mut run = simulator(disturbed.path());
        run.die_at(step, loss);
        let (left, secrets) = ends(&mut run);
        // With another secret fewer devices may have been asked, and the run may have made fewer steps.
        failures += run.server_deaths;
        let [secret] = <[Vec<u8>; 1]>::try_from(Vec::from_iter(secrets))
            .unwrap_or_else(|secrets| panic!("{at}: {} secrets", secrets.len()));
        let planted = <[u8; 32]>::try_from(&*secret).unwrap_or_else(|_| panic!("{at}: {secret:?}"));
        plant_secret(undisturbed.path(), &Scenario::small(&SECRET).config.spec.name, planted);
        let (expected, _) = ends(&mut simulator(undisturbed.path()));
        assert!(left == expected, "{at}: {:?}, not {:?}", left.rounds, expected.rounds);
        assert!(all.insert(secret), "{at}: two runs have one secret");
    }
    println!("{failures} power failures, and each run has the bytes that follow from its one secret");
    assert!(failures as usize > steps / 2, "{failures} power failures at {steps} steps");
}

/// The length of the difference of two models.
fn distance(a: &ParamSet, b: &ParamSet) -> f64 {
    let squares = a.iter().zip(b.iter()).flat_map(|((name, a), (other, b))| {
        assert_eq!(name, other);
        let [a, b] = [a, b].map(|tensor| tensor.values().to_vec());
        a.into_iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2))
    });
    squares.sum::<f64>().sqrt()
}

#[tokio::test]
async fn a_copy_that_closes_a_round_with_other_devices_has_other_noise_and_with_the_same_ones_the_same_bytes()
{
    const CLIP: f64 = 0.01;
    let of = |rounds: u32| {
        let rounds = format!("run.rounds={rounds}");
        // A round opens with three devices.
        let settings =
            ["privacy.clip=0.01", "privacy.noise=50", "privacy.delta=1e-3", "aggregation.weights=uniform"];
        Scenario::small(&[&settings[..], &["round.min-updates=3", &rounds]].concat())
    };
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let [original, copy, other] = folders.each_ref().map(tempfile::TempDir::path);
    let before = whole(original, &of(2)).await.current_model().unwrap();
    for to in [copy, other] {
        copy_folder(original, to);
    }
    let goes_on = async |runs: &Path, scenario: Scenario| -> Run {
        let started = start(Arc::new(Disk), runs, &scenario).unwrap();
        assert!(started.continued);
        finish(started, &scenario).await
    };
    let original = goes_on(original, of(3)).await;
    let copy = goes_on(copy, of(3)).await;
    let mut without = of(3);
    without.shares.truncate(3);
    let other = goes_on(other, without).await;
    let devices = [&original, &copy, &other].map(|run| run.records()[2].accepted);
    assert_eq!(devices, [4, 4, 3]);
    let [original, copy, other] = [original, copy, other].map(|run| run.current_model().unwrap());
    assert!(original == copy, "the same sum is published twice, with two noises");
    // The sums differ by one update, of which the mean has a quarter. Were the noise the same, so would the models.
    let apart = distance(&original, &other);
    let noise = distance(&original, &before);
    println!(
        "{noise:.3} of noise, {apart:.3} between two copies, whose sums differ by up to {:.4}",
        CLIP / 4.0
    );
    assert!(apart > 100.0 * CLIP, "the copies have one noise: {apart}");
    assert!(apart > noise && apart < 2.0 * noise, "two noises of one length: {noise} {apart}");
}
