//! Labels at the server through whole runs: the mixture, and its independence of crashes.

use std::sync::Arc;

use aggregator::coordinator::{Outcome, Resume};
use aggregator::events::Notice;
use aggregator::run::Run;
use aggregator::run::directory::RunDirectory;
use aggregator::simulate::{SimulateError, Transport, simulate};
use aggregator::storage::Disk;
use federation_tests::faults::Faults;
use federation_tests::scenario::Scenario;
use federation_tests::simulator::model_of;
use federation_tests::supervised::trained_alone;
use federation_tests::whole_run::whole;
use models::ParamSet;
use shared::aggregation::Mixture;
use tokio::sync::watch;

/// Four clients without labels, 40 labelled samples at the server.
const UNLABELLED: [&str; 6] = [
    "round.min-updates=4",
    "data.labels=server",
    "data.labelled=40",
    "algorithm.fedmix={gate=0.2, lambda-2=0.5}",
    "aggregation.weights=loss",
    "server.epochs=2",
];

fn scenario(more: &[&str]) -> Scenario {
    Scenario::small(&[&UNLABELLED[..], more].concat())
}

fn reference(more: &[&str]) -> ParamSet {
    model_of(&scenario(more), Faults::NONE, 0)
}

#[test]
fn after_any_crash_the_server_trains_the_same_again() {
    let still = reference(&[]);
    for seed in 0..8 {
        assert_eq!(model_of(&scenario(&[]), Faults::HEAVY, seed), still, "seed {seed}");
    }
    for other in [
        "server.mixing={clients=1, server=0, previous=0}",
        "server.mixing={clients=0, server=1, previous=0}",
        "server.epochs=1",
        "server.weight=0.5",
        "server.batch=7",
    ] {
        assert_ne!(reference(&[other]), still, "{other} does nothing");
    }
}

/// SL is the same path with mix 0, 1, 0: it is the server's own training alone, regardless of the clients.
#[test]
fn the_servers_share_alone_is_supervised_learning() {
    let only = ["server.mixing={clients=0, server=1, previous=0}", "server.weight=0.5"];
    let scenario = scenario(&only);
    let rounds = scenario.config.spec.rounds as usize;
    let sigma = trained_alone(&scenario, std::iter::repeat_n(1.0, rounds));
    assert_eq!(model_of(&scenario, Faults::NONE, 0), sigma);
    let idle = reference(&[&only[..], &["training.epochs=0"]].concat());
    assert_eq!(idle, sigma, "clients that do not train change nothing");
}

#[test]
fn the_clients_share_alone_is_the_plain_aggregation() {
    let labelled = scenario(&["server.mixing={clients=1, server=0, previous=0}"]);
    let mut plain = Scenario::small(&["round.min-updates=4", UNLABELLED[3], UNLABELLED[4]]);
    plain.shares.clone_from(&labelled.shares);
    assert_eq!(model_of(&labelled, Faults::NONE, 0), model_of(&plain, Faults::NONE, 0));
}

#[test]
fn a_round_is_the_mixture_of_its_three_models() {
    let one = |mix: &str| reference(&["run.rounds=1", mix]);
    let (mut psi, sigma) = (
        one("server.mixing={clients=1, server=0, previous=0}"),
        one("server.mixing={clients=0, server=1, previous=0}"),
    );
    let omega = scenario(&[]).initial();
    assert!(psi != sigma && psi != omega && sigma != omega);
    assert_eq!(one("server.mixing={clients=0, server=0, previous=1}"), omega);
    Mixture::PUBLISHED.mix(&mut psi, Some(&sigma), Some(&omega)).unwrap();
    assert_eq!(one("server.mixing={clients=0.5, server=0.3, previous=0.2}"), psi);
}

async fn simulated(scenario: &Scenario, transport: Transport) -> Result<Run, SimulateError> {
    let directory = tempfile::tempdir().unwrap();
    let root = RunDirectory::new(directory.path().join("run"));
    let run = Run::begin(Arc::new(Disk), root, scenario.config.clone(), None).unwrap();
    let (_stop, stopped) = watch::channel(false);
    let (resume, shares) = (Resume::default(), scenario.shares.clone());
    let (run, outcome) =
        simulate(run, resume, shares, transport, 2, stopped, &mut |_: &Notice<'_>| {}).await?;
    assert_eq!(outcome, Outcome::Completed);
    Ok(run)
}

#[tokio::test]
async fn every_transport_gives_the_same_bits_and_every_round_its_measurements() {
    let scenario = scenario(&[]);
    let expected = reference(&[]);
    for transport in [Transport::Memory, Transport::Quic] {
        let run = simulated(&scenario, transport).await.unwrap();
        assert_eq!(run.current_model().unwrap(), expected, "{transport:?}");
        for record in run.records() {
            let found: Vec<&str> = record.metrics.keys().map(String::as_str).collect();
            let names = [
                "class-coverage",
                "coverage",
                "entropy",
                "global-class-coverage",
                "global-entropy",
                "server-loss",
            ];
            assert_eq!(found, names);
            assert!(record.metrics["server-loss"] > 0.0 && !record.collapsed);
        }
    }
}

/// Rounds end without values that are not finite, with crashes at any step, and the operator is notified.
#[tokio::test]
async fn a_server_that_diverges_counts_for_nothing_and_says_so() {
    let wild = ["model.name=mlp-2nn", "server.weight=1e30"];
    let diverging = scenario(&wild);
    let run = simulated(&diverging, Transport::Memory).await.unwrap();
    let model = run.current_model().unwrap();
    for record in run.records() {
        assert!(record.diverged && !record.metrics.contains_key("server-loss"), "{record:?}");
        assert_eq!(record.accepted, 4);
    }
    for seed in 0..4 {
        assert_eq!(model_of(&diverging, Faults::HEAVY, seed), model, "seed {seed}");
    }
    // The others keep their proportion, 0.5 to 0.2.
    let without = Mixture::PUBLISHED.without_sigma();
    let share = format!("server.mixing={{clients={}, server=0, previous={}}}", without.alpha, without.gamma);
    assert_eq!(reference(&[wild[0], &share]), model);
    // Only the previous model is left.
    let alone = scenario(&[&wild[..], &["server.mixing={clients=0, server=1, previous=0}"]].concat());
    let run = simulated(&alone, Transport::Memory).await.unwrap();
    assert_eq!(run.current_model().unwrap(), alone.initial());
}

/// `FedMatch`: the server trains its part before the first round and at the end of each, and crashes do not change the bits.
const PARTS: [&str; 4] = [
    "algorithm.fedmatch={gate=0.2, lambda-l2=0.5, lambda-a=1.0, lambda-i=1.0, refresh=2, bank=3}",
    "aggregation.weights=uniform",
    "run.rounds=4",
    "evaluate.every=1",
];

fn in_parts(more: &[&str]) -> Scenario {
    let base = ["round.min-updates=4", "data.labels=server", "data.labelled=40", "server.epochs=2"];
    Scenario::small(&[&base[..], &PARTS, more].concat())
}

#[test]
fn the_parts_of_fedmatch_are_the_same_after_any_crash() {
    let still = model_of(&in_parts(&[]), Faults::NONE, 0);
    for seed in 0..8 {
        assert_eq!(model_of(&in_parts(&[]), Faults::HEAVY, seed), still, "seed {seed}");
    }
    let other = |more: &str| model_of(&in_parts(&[PARTS[0], more]), Faults::NONE, 0);
    for more in ["server.epochs=1", "training.epochs=0"] {
        assert_ne!(other(more), still, "{more} does nothing");
    }
    let table = |keys: &str| format!("algorithm.fedmatch={{gate=0.2, lambda-l2=0.5, lambda-a=1.0, {keys}}}");
    for keys in ["helpers=0", "lambda-i=1.0, refresh=2, bank=3, helpers=1", "lambda-i=1.0, refresh=1, bank=3"]
    {
        assert_ne!(model_of(&in_parts(&[&table(keys)]), Faults::NONE, 0), still, "{keys} does nothing");
    }
}

#[tokio::test]
async fn the_parts_of_fedmatch_are_the_same_over_every_transport() {
    let scenario = in_parts(&[]);
    let expected = model_of(&scenario, Faults::NONE, 0);
    for transport in [Transport::Memory, Transport::Quic] {
        let run = simulated(&scenario, transport).await.unwrap();
        assert_eq!(run.current_model().unwrap(), expected, "{transport:?}");
        for record in run.records() {
            assert!(record.metrics["server-loss"] > 0.0 && record.metrics["coverage"] > 0.0, "{record:?}");
        }
    }
}

/// With clients that train nothing, what is left is the server's own training: one before the first round, one after each.
#[test]
fn fedmatch_without_clients_is_supervised_learning() {
    let idle = ["training.epochs=0", "run.rounds=3"];
    let alone =
        scenario(&["server.mixing={clients=0, server=1, previous=0}", "training.epochs=0", "run.rounds=4"]);
    assert_eq!(model_of(&in_parts(&idle), Faults::NONE, 0), model_of(&alone, Faults::NONE, 0));
}

#[tokio::test]
async fn the_servers_part_stays_what_it_is_if_its_training_diverges() {
    let wild = ["model.name=mlp-2nn", "server.weight=1e30", "training.epochs=0"];
    let scenario = in_parts(&wild);
    let run = simulated(&scenario, Transport::Memory).await.unwrap();
    assert_eq!(run.current_model().unwrap(), scenario.initial());
    assert!(run.records().iter().all(|record| record.diverged));
    assert!(
        run.warnings().iter().any(|told| told.contains("before the first round")),
        "{:?}",
        run.warnings()
    );
}

/// No pseudo-label of any client passes the threshold: rounds close, nothing changes, and the reports say why.
#[tokio::test]
async fn behind_the_gate_the_model_stays_what_it_is() {
    let gated = ["algorithm.fedmix={gate=1, lambda-2=0}", "server.mixing={clients=1, server=0, previous=0}"];
    for weights in ["loss", "samples"] {
        let weights = format!("aggregation.weights={weights}");
        let scenario = scenario(&[&gated[..], &[weights.as_str()]].concat());
        let run = simulated(&scenario, Transport::Memory).await.unwrap();
        assert_eq!(run.current_model().unwrap(), scenario.initial());
        for record in run.records() {
            assert_eq!((record.accepted, record.train_loss), (4, Some(0.0)));
            assert!(record.metrics["coverage"].abs() < 1e-12);
        }
    }
}

/// Ten labels of a class at the server are few: what clients without labels add is worth a quarter of all answers.
#[tokio::test]
async fn fedmatch_learns_from_clients_without_labels() {
    let federation = [
        "data.labels=server",
        "data.labelled=100",
        "data.clients=8",
        "data.max-samples=1600",
        "model.name=mlp-2nn",
        "run.rounds=15",
        "evaluate.every=15",
        "training.optimizer.sgd.learning-rate=0.1",
        "aggregation.weights=uniform",
        "algorithm.fedmatch={lambda-l2=1.0}",
    ];
    for seed in ["run.seed=1234", "run.seed=5678"] {
        let mut found = Vec::new();
        for more in [&[seed][..], &[seed, "training.epochs=0"]] {
            let scenario = Scenario::small(&[&federation[..], more].concat());
            let runs = tempfile::tempdir().unwrap();
            let run = whole(runs.path(), &scenario).await;
            found.push(run.records().last().and_then(|record| record.accuracy).unwrap());
        }
        println!("{seed}: {} with clients, {} without", found[0], found[1]);
        assert!(found[0] > found[1] + 0.15, "{seed}: {found:?}");
    }
}
