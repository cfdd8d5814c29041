//! Updates that are folded together, on as many threads as it pays, make the model that they make one by one.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use aggregator::coordinator::Opening;
use aggregator::round::{SampleCap, Tally};
use aggregator::run::directory::RunDirectory;
use aggregator::run::{Run, Traffic};
use aggregator::storage::Disk;
use federation_tests::scenario::Scenario;
use models::{ParamSet, Precision};
use shared::frame;
use shared::id::ClientId;
use shared::message::{Rejection, TaskKind, ToServer, TrainReport, UpdateHeader};
use shared::record::Record;

const CLIENTS: u8 = 9;

fn client(n: u8) -> ClientId {
    ClientId::from_bytes([n; 16])
}

/// The model after one round of updates that come in groups of `together`. One of them is not finite.
fn model(algorithm: &str, together: usize) -> (ParamSet, Vec<Result<(), Rejection>>) {
    // 200 000 parameters: four of its updates are worth another thread.
    let more = ["data.clients=9", "model.name=mlp-2nn", "aggregation.weights=loss"];
    let algorithm = format!("algorithm.{algorithm}={{}}");
    let scenario = Scenario::small(&[&[algorithm.as_str()], &more[..]].concat());
    let folder = tempfile::tempdir().unwrap();
    let directory = RunDirectory::new(folder.path().join("run"));
    let mut run = Run::begin(Arc::new(Disk), directory, scenario.config.clone(), None).unwrap();
    let all: BTreeMap<ClientId, u64> = (0..CLIENTS).map(|n| (client(n), 10)).collect();
    run.open(&Opening {
        round: 1,
        work: TaskKind::TRAIN,
        cohort: all.clone(),
        roster: all,
        sample_cap: SampleCap::NONE,
        owed: BTreeMap::new(),
        counted: BTreeMap::new(),
        ledger: None,
        participations: BTreeMap::new(),
        exchange: 0,
    })
    .unwrap();
    let sent = run.current_model().unwrap();
    let uploads: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let mut tensors = sent.clone();
            tensors.scale(if n == 4 { f32::NAN } else { 0.1 + f32::from(n) / 7.0 });
            let payload = Record { tensors, ..Record::default() }.to_bytes(Precision::F32);
            let loss = f64::from(n) / 3.0;
            let report = TrainReport { samples: 10, steps: 1, loss, ..TrainReport::default() };
            let header = ToServer::Update(UpdateHeader { round: 1, report });
            let path = run.directory().spool().join(format!("{n}.upload"));
            fs::write(&path, [frame::encode(&header, payload.len() as u64), payload].concat()).unwrap();
            (client(n), path.into())
        })
        .collect();
    let groups = uploads.chunks(together);
    let outcomes =
        groups.flat_map(|group| run.fold(1, group).unwrap()).map(|outcome| outcome.map(drop)).collect();
    let accepted = usize::from(CLIENTS) - 1;
    let tally = Tally { sampled: accepted + 1, accepted, rejected: 1, ..Tally::default() };
    run.close(1, &tally, Traffic::default()).unwrap();
    (run.current_model().unwrap(), outcomes)
}

#[test]
fn updates_that_are_folded_together_make_the_bytes_of_updates_one_by_one() {
    for algorithm in ["fedavg", "moon"] {
        let (expected, outcomes) = model(algorithm, 1);
        let rejected: Vec<usize> = (0..outcomes.len()).filter(|&n| outcomes[n].is_err()).collect();
        assert_eq!(rejected, [4], "{outcomes:?}");
        for together in [4, 5, usize::from(CLIENTS)] {
            let (found, also) = model(algorithm, together);
            assert!(found == expected, "{algorithm}, {together} together");
            assert_eq!(also, outcomes, "{algorithm}, {together} together");
        }
    }
}
