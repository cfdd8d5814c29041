//! A failed round of training moves no schedule on: what is learned is what is learned without it.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use aggregator::coordinator::Opening;
use aggregator::round::{SampleCap, Tally};
use aggregator::run::{Run, Traffic};
use aggregator::simulate::Transport;
use aggregator::storage::Disk;
use federation_tests::scenario::Scenario;
use federation_tests::whole_run::{finish_over, start, whole};
use models::ParamSet;
use shared::id::ClientId;
use shared::message::TaskKind;

/// Full batches, so that the rounds' numbers, from which shuffles are drawn, change nothing but the order of sums.
const SETTINGS: [&str; 5] = [
    "run.rounds=3",
    "training.batch=0",
    "training.epochs=2",
    "training.warmup=2",
    "training.schedule.exponential.gamma=0.3",
];

fn model(run: &Run) -> ParamSet {
    models::read_model(&mut File::open(run.directory().model()).unwrap()).unwrap().1
}

/// The run of this scenario, whose first `failed` rounds fail.
async fn after_failures(scenario: &Scenario, failed: u32, transport: Transport) -> ParamSet {
    let folder = tempfile::tempdir().unwrap();
    let mut started = start(Arc::new(Disk), folder.path(), scenario).unwrap();
    let cohort = BTreeMap::from([(ClientId::from_bytes([1; 16]), 10)]);
    let void = Tally { sampled: 1, failed: 1, void: true, ..Tally::default() };
    for round in 1..=failed {
        let opening = Opening {
            round,
            work: TaskKind::TRAIN,
            cohort: cohort.clone(),
            roster: cohort.clone(),
            sample_cap: SampleCap::NONE,
            owed: BTreeMap::new(),
            counted: BTreeMap::new(),
            ledger: None,
            participations: BTreeMap::new(),
            exchange: 0,
        };
        started.run.open(&opening).unwrap();
        assert!(started.run.close(round, &void, Traffic::default()).unwrap().void);
    }
    started.run.settle().unwrap();
    drop(started);
    let mut started = start(Arc::new(Disk), folder.path(), scenario).unwrap();
    // The client of those rounds will not come back.
    started.resume.roster.clear();
    let run = finish_over(transport, started, scenario).await;
    assert_eq!(run.closed(), 3 + failed);
    model(&run)
}

#[tokio::test]
async fn failed_rounds_move_no_schedule_on() {
    for more in [
        &["algorithm.fedavg={}"][..],
        &["algorithm.fedsgd={}", "training.epochs=1"],
        &["algorithm.fedavg={}", "training.schedule-by-step=true"],
        // What the server learns in a failed round is not kept.
        &["data.labelled=40", "server.mixing={clients=0, server=1, previous=0}", "server.batch=0"],
    ] {
        let scenario = Scenario::small(&[&SETTINGS[..], more].concat());
        let folder = tempfile::tempdir().unwrap();
        let expected = model(&whole(folder.path(), &scenario).await);
        for transport in [Transport::Memory, Transport::Quic] {
            for failed in [0, 2] {
                let found = Box::pin(after_failures(&scenario, failed, transport)).await;
                let apart = found.distance(&expected).unwrap();
                assert!(apart < 1e-4, "{more:?}, {failed} failed rounds, {transport:?}: {apart} apart");
            }
        }
        // The rates are so different that a round's number instead would have been seen.
        let steady = Scenario::small(&[&SETTINGS[..4], more].concat());
        let folder = tempfile::tempdir().unwrap();
        let apart = model(&whole(folder.path(), &steady).await).distance(&expected).unwrap();
        assert!(apart > 1e-2, "{more:?}: {apart}");
    }
}
