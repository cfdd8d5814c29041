//! `server.plateau`: the server trains on at a lower rate once it learns no more.

use std::fs;
use std::sync::Arc;

use aggregator::round::RoundRecord;
use aggregator::storage::Disk;
use federation_tests::faults::Faults;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::{Simulator, model_of};
use federation_tests::supervised::trained_alone;
use federation_tests::whole_run::{finish, start, whole};

/// A rate that is too high for the server's loss to fall from round to round.
const HIGH: &str = "training.optimizer.sgd.learning-rate=4.0";
/// The server's model alone counts.
const ALONE: [&str; 3] =
    [HIGH, "algorithm.fedmix={gate=0.2, lambda-2=0.5}", "server.mixing={clients=0, server=1, previous=0}"];
const PARTS: [&str; 3] = [
    HIGH,
    "algorithm.fedmatch={gate=0.2, lambda-l2=0.01, lambda-a=1.0, lambda-i=1.0}",
    "aggregation.weights=uniform",
];

fn scenario(algorithm: &[&str], more: &[&str]) -> Scenario {
    let base = [
        "round.min-updates=4",
        "run.rounds=8",
        "data.labels=server",
        "data.labelled=40",
        "data.validation=40",
        "data.max-samples=240",
        "evaluate.every=1",
        "server.plateau={patience=1, factor=0.5}",
    ];
    Scenario::small(&[&base[..], algorithm, more].concat())
}

/// The share of its rate that the server trains at in each round with a patience of one, by the losses that were found before.
fn expected(records: &[RoundRecord]) -> Vec<f64> {
    let (mut lowest, mut share) = (f64::INFINITY, 1.0);
    let mut shares = Vec::new();
    for record in records {
        shares.push(share);
        let loss = record.metrics["validation-loss"];
        if loss >= lowest {
            share *= 0.5;
        }
        lowest = lowest.min(loss);
    }
    shares
}

fn shares(records: &[RoundRecord]) -> Vec<f64> {
    records.iter().map(|record| record.metrics["server-rate-share"]).collect()
}

#[tokio::test]
async fn the_server_goes_on_at_the_rate_that_its_tests_leave() {
    // FedMatch's server trains before the first round as well, and then while each round closes.
    for (algorithm, before) in [(&ALONE, None), (&PARTS, Some(1.0))] {
        let scenario = scenario(algorithm, &["training.epochs=0"]);
        let runs = tempfile::tempdir().unwrap();
        let run = whole(runs.path(), &scenario).await;
        let found = shares(run.records());
        assert_eq!(found, expected(run.records()), "{algorithm:?}");
        assert!(found[0] > found[7] && found[7] > 0.0, "{algorithm:?}: {found:?}");
        let alone = trained_alone(&scenario, before.into_iter().chain(found));
        assert!(run.current_model().unwrap() == alone, "{algorithm:?}");
    }
}

#[tokio::test]
async fn after_any_crash_the_server_trains_at_the_same_rates_again() {
    for algorithm in [&ALONE, &PARTS] {
        let falling = scenario(algorithm, &[]);
        let runs = tempfile::tempdir().unwrap();
        let run = whole(runs.path(), &falling).await;
        let found = shares(run.records());
        assert_eq!(found, expected(run.records()), "{algorithm:?}");
        assert!(found[7] < 1.0, "{algorithm:?}: {found:?}");
        let model = run.current_model().unwrap();
        for seed in 0..8 {
            let directory = tempfile::tempdir().unwrap();
            let simulator = Simulator::completed(&falling, Faults::HEAVY, seed, directory.path());
            assert_eq!(shares(&simulator.records()), found, "{algorithm:?}, seed {seed}");
            assert!(simulator.model() == model, "{algorithm:?}, seed {seed}");
        }
        let patient = scenario(algorithm, &["server.plateau.patience=8"]);
        assert!(model_of(&patient, Faults::NONE, 0) != model, "{algorithm:?}: a lower rate changes nothing");
    }
}

/// The rate comes with the model and not from the records.
#[tokio::test]
async fn a_run_that_lost_its_records_goes_on_at_the_same_rate() {
    for algorithm in [&ALONE, &PARTS] {
        let long = scenario(algorithm, &[]);
        let runs = tempfile::tempdir().unwrap();
        let expected = whole(runs.path(), &long).await.current_model().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let short = scenario(algorithm, &["run.rounds=5"]);
        let run = whole(folder.path(), &short).await;
        assert!(shares(run.records())[4] < 1.0, "{algorithm:?}: nothing is lost with the records");
        let directory = run.directory().clone();
        drop(run);
        for file in [directory.rounds(), directory.rounds_copy()] {
            fs::write(&file, "").unwrap();
        }
        let started = start(Arc::new(Disk), folder.path(), &long).unwrap();
        let run = finish(started, &long).await;
        let numbers: Vec<u32> = run.records().iter().map(|record| record.round).collect();
        assert_eq!(numbers, [6, 7, 8]);
        assert!(run.current_model().unwrap() == expected, "{algorithm:?}");
    }
}
