//! Whole federations in this process: the transport and the number of threads leave no trace in the model.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use aggregator::coordinator::{Outcome, PeerId, Resume};
use aggregator::driver::drive;
use aggregator::events::{Level, Notice, text};
use aggregator::peer::{FromPeer, ToPeer};
use aggregator::run::Run;
use aggregator::run::directory::{RunDirectory, upload_of};
use aggregator::simulate::{Transport, simulate};
use aggregator::storage::Disk;
use federation_tests::scenario::Scenario;
use models::ParamSet;
use shared::message::ToClient;
use tokio::sync::{mpsc, watch};

/// Far more than any of these runs takes; a run that hangs fails instead of hanging the suite.
const PATIENCE: Duration = Duration::from_mins(2);

/// What a simulation leaves behind.
#[derive(PartialEq)]
struct Left {
    model: ParamSet,
    file: Vec<u8>,
    accepted: Vec<usize>,
}

async fn simulated(scenario: &Scenario, transport: Transport, threads: usize) -> Left {
    let directory = tempfile::tempdir().unwrap();
    let root = RunDirectory::new(directory.path().join("run"));
    let run = Run::begin(Arc::new(Disk), root, scenario.config.clone(), None).unwrap();
    let (_stop, stopped) = watch::channel(false);
    let (mut run, outcome) = tokio::time::timeout(
        PATIENCE,
        Box::pin(simulate(
            run,
            Resume::default(),
            scenario.shares.clone(),
            transport,
            threads,
            stopped,
            &mut |_: &Notice<'_>| {},
        )),
    )
    .await
    .expect("the simulation ends in time")
    .unwrap();
    assert_eq!(outcome, Outcome::Completed);
    let file = fs::read(run.write_model().unwrap()).unwrap();
    let accepted = run.records().iter().map(|record| record.accepted).collect();
    Left { model: run.current_model().unwrap(), file, accepted }
}

/// Both transports, one and two threads. Returns what all of them left.
async fn the_same_everywhere(overrides: &[&str]) -> Left {
    let scenario = Scenario::small(overrides);
    let first = simulated(&scenario, Transport::Memory, 1).await;
    for (transport, threads) in [(Transport::Memory, 2), (Transport::Quic, 1), (Transport::Quic, 2)] {
        let other = simulated(&scenario, transport, threads).await;
        let case = format!("{overrides:?} over {transport:?} with {threads} threads");
        assert_eq!(other.accepted, first.accepted, "{case}");
        assert!(other.model == first.model, "{case}: another model");
        assert!(other.file == first.file, "{case}: another file");
    }
    let initial = scenario.initial();
    assert!(first.model.distance(&initial).unwrap() > 0.01, "{overrides:?}: the model was trained");
    first
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transport_and_threads_leave_no_trace() {
    let left = the_same_everywhere(&[]).await;
    assert_eq!(left.accepted, [4, 4, 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_that_arrives_in_slices_gives_another_model_and_every_update_counts() {
    let left = the_same_everywhere(&["training.chunks=3"]).await;
    assert_eq!(left.accepted, [4, 4, 4]);
    let whole = simulated(&Scenario::small(&[]), Transport::Memory, 1).await;
    assert!(left.model != whole.model);
}

/// All clients attack, for one round.
fn everybody(attack: &str) -> [&str; 3] {
    ["run.rounds=1", "simulation.attackers=1", attack]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn attackers_attack_and_leave_no_other_trace() {
    let honest = simulated(&Scenario::small(&["run.rounds=1"]), Transport::Memory, 1).await.model;
    let scenario = Scenario::small(&[]);
    let initial = scenario.initial();
    let step = honest.clone().difference(&initial).unwrap();
    for (attack, factor) in [("sign-flip={}", -1.0), ("scaled.factor=3", 3.0)] {
        let attack = format!("simulation.attack.{attack}");
        let left = the_same_everywhere(&everybody(&attack)).await;
        let mut expected = step.clone();
        expected.scale(factor);
        let found = left.model.difference(&initial).unwrap();
        assert!(found.distance(&expected).unwrap() < 1e-4, "{attack}");
    }
    let flipped = the_same_everywhere(&everybody("simulation.attack.label-flip={}")).await.model;
    assert!(flipped.distance(&honest).unwrap() > 0.5 * step.distance(&step.zeros_like()).unwrap());
    // One of four.
    let one =
        the_same_everywhere(&["run.rounds=1", "simulation.attackers=0.25", "simulation.attack.sign-flip={}"]);
    let moved = one.await.model.distance(&honest).unwrap();
    assert!(moved > 0.01 && moved < 2.0 * step.distance(&step.zeros_like()).unwrap(), "{moved}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_do_they_with_half_of_the_clients_in_a_round() {
    let left = the_same_everywhere(&["round.fraction=0.5", "training.epochs=2"]).await;
    assert_eq!(left.accepted, [2, 2, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_do_they_with_16_bits_on_the_wire() {
    let half = the_same_everywhere(&["update.precision=f16", "run.rounds=2"]).await;
    let full = the_same_everywhere(&["run.rounds=2"]).await;
    assert!(half.model != full.model, "sixteen bits do round");
    assert!(half.model.distance(&full.model).unwrap() < 0.01, "and round little");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_do_they_with_8_and_4_bits_on_the_wire() {
    let full = the_same_everywhere(&["run.rounds=2"]).await;
    for (format, most) in [("int8", 0.02), ("int4", 0.3)] {
        let precision = format!("update.precision={format}");
        let found = the_same_everywhere(&[&precision, "run.rounds=2", "update.broadcast=f32"]).await;
        let apart = found.model.distance(&full.model).unwrap();
        assert!(apart > 0.0 && apart < most, "{format}: {apart}");
    }
    // Updates that a rule reads in step, and two sets in one update, of which the client keeps what the server reads.
    let median = [
        "update.precision=int4",
        "run.rounds=2",
        "aggregation.weights=uniform",
        "aggregation.rule.median={}",
    ];
    the_same_everywhere(&median).await;
    the_same_everywhere(&["update.precision=int8", "run.rounds=2", "algorithm.scaffold={}"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_do_they_with_a_few_values_on_the_wire() {
    let full = the_same_everywhere(&["run.rounds=2"]).await;
    let all = the_same_everywhere(&["run.rounds=2", "update.top-k=1"]).await;
    assert!(all.model == full.model && all.file == full.file, "all values are those of f32, to the bit");
    for more in [
        &["run.rounds=4"][..],
        // Clients that miss rounds, values in few bits, state of another kind beside it, and attackers.
        &["run.rounds=6", "round.fraction=0.5", "update.precision=int4"],
        &["algorithm.moon={}", "model.name=mlp-2nn", "update.precision=f16"],
        &["aggregation.server-optimizer.adam={}", "training.chunks=3", "update.precision=int8"],
        &["simulation.attackers=0.25", "simulation.attack.sign-flip={}"],
    ] {
        the_same_everywhere(&[&["update.top-k=0.02"], more].concat()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_do_they_with_models_as_differences() {
    let differences = ["update.broadcast=int8", "model.name=mlp-2nn"];
    for more in [
        &[][..],
        // Clients that miss rounds, variates beside the model, statistics, and models side by side.
        &["run.rounds=6", "round.fraction=0.5"],
        &["algorithm.scaffold={}", "update.precision=int8"],
        &["model.name=resnet-18", "model.norm=batch", "run.rounds=2", "data.max-samples=40"],
        &["algorithm.moon={}", "aggregation.server-optimizer.adam={}"],
    ] {
        the_same_everywhere(&[&differences, more].concat()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nor_do_they_with_hidden_layers_and_skewed_shares() {
    the_same_everywhere(&["model.name=mlp-2nn", "data.partition.shards.per-client=2", "run.rounds=2"]).await;
}

#[tokio::test]
async fn who_connects_as_the_run_ends_is_told_that_it_is_over() {
    let scenario = Scenario::small(&[]);
    let directory = tempfile::tempdir().unwrap();
    let root = RunDirectory::new(directory.path().join("run"));
    let run = Run::begin(Arc::new(Disk), root, scenario.config.clone(), None).unwrap();
    let (_stop, stopped) = watch::channel(false);
    let (to_driver, peers) = mpsc::unbounded_channel();
    let (commands, mut told) = mpsc::unbounded_channel();
    let peer = PeerId(0);
    to_driver.send(FromPeer::Connected { peer, commands }).unwrap();
    to_driver.send(FromPeer::Disconnected { peer, reason: "closed".to_owned(), parted: true }).unwrap();
    // All rounds are closed already: no client is asked anything any more.
    let resume = Resume { closed: 3, ..Resume::default() };
    let ended = Box::pin(drive(run, resume, peers, stopped, &mut |_: &Notice<'_>| {})).await.unwrap();
    assert_eq!(ended.outcome, Outcome::Completed);
    assert!(matches!(told.recv().await, Some(ToPeer::Message(ToClient::Finished { rounds: 3 }))));
    assert!(matches!(told.recv().await, Some(ToPeer::Disconnect)));
}

/// A disk that takes no update is this machine's trouble: the run pauses and says so, instead of counting its clients
/// as absent and closing rounds without them, and goes on when there is room. (Updates of the memory transport meet no
/// disk.)
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spool_on_a_full_disk_pauses_the_run_until_there_is_room() {
    use std::os::unix::fs::FileTypeExt as _;
    if !std::fs::metadata("/dev/full").is_ok_and(|full| full.file_type().is_char_device()) {
        println!("skipped: this system has no device that is always full");
        return;
    }
    let scenario = Scenario::small(&[]);
    let directory = tempfile::tempdir().unwrap();
    let root = RunDirectory::new(directory.path().join("run"));
    let run = Run::begin(Arc::new(Disk), root.clone(), scenario.config.clone(), None).unwrap();
    // The name of an upload's file does not matter: it is full before its first byte. What exists when the listener starts is no
    // business of this run, and removed.
    let clients: Vec<_> = (0..4).map(|index| scenario.config.client(index)).collect();
    let fill = |spool: &Path| {
        for (client, upload) in clients.iter().flat_map(|client| (0..500).map(move |upload| (client, upload)))
        {
            let file = spool.join(upload_of(*client, &format!("0-{upload}")));
            std::os::unix::fs::symlink("/dev/full", file).unwrap();
        }
    };
    let (_stop, stopped) = watch::channel(false);
    let (mut alarms, mut paused) = (Vec::new(), 0);
    let (rounds, spool) = (root.rounds(), root.spool());
    let mut evict_pending = |notice: &Notice<'_>| match notice {
        // No client has been asked for anything yet.
        Notice::Opened { round: 1, .. } => fill(&spool),
        alarm if alarm.level() == Level::Alarm => alarms.extend(text(alarm)),
        Notice::Status(status) if status.paused => {
            paused += 1;
            assert!(!rounds.exists(), "no round is closed without its updates");
            // After having looked at it for a while.
            if paused == 3 {
                for entry in std::fs::read_dir(&spool).unwrap() {
                    std::fs::remove_file(entry.unwrap().path()).unwrap();
                }
            }
        }
        _ => {}
    };
    let federation = simulate(
        run,
        Resume::default(),
        scenario.shares.clone(),
        Transport::Quic,
        1,
        stopped,
        &mut evict_pending,
    );
    let ended = tokio::time::timeout(PATIENCE, federation).await.expect("it ends in time");
    let (run, outcome) = ended.unwrap_or_else(|error| panic!("the run ended: {error}"));
    assert_eq!(outcome, Outcome::Completed);
    let accepted: Vec<_> = run.records().iter().map(|round| round.accepted).collect();
    assert_eq!(accepted, [4; 3]);
    let [alarm] = &alarms[..] else { panic!("it is said once: {alarms:?}") };
    assert!(alarm.contains("No space") && alarm.contains("The run pauses"), "{alarm}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_the_configuration_writes_down_is_trained_everywhere() {
    let layers = "model.layers=[{ conv = { out = 4, kernel = 5, stride = 2 } }, \"batch-norm\", \"relu\", { residual = \
                  [{ conv = { out = 4, kernel = 3, padding = \"same\" } }] }, { max-pool = 2 }, \"flatten\", { dropout = 0.3 }, { linear = \
                  \"classes\" }]";
    let left = the_same_everywhere(&[layers, "training.epochs=3"]).await;
    assert_eq!(left.accepted, [4, 4, 4]);
    let names: Vec<&str> = left.model.names().collect();
    assert!(names.contains(&"extractor.conv2.weight") && names.contains(&"head.linear1.bias"), "{names:?}");
}
