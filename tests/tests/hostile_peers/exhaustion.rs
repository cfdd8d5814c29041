//! Resource exhaustion: peers that use up time, memory, disk and connections of the server.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use aggregator::coordinator::Outcome;
use aggregator::run::directory::RunDirectory;
use aggregator::transport::limits::{PREAUTH_CONNECTIONS, UPLOADS};
use federation_tests::gate::Gate;
use federation_tests::in_process::InProcessServer;
use federation_tests::keys::device_key;
use federation_tests::process::until;
use federation_tests::raw_peer::{RawPeer, hello, reason_of, update_header};
use federation_tests::scenario::Scenario;
use quinn::{ConnectionError, TransportConfig, TransportErrorCode, VarInt};
use shared::frame::{self, HEADER_LEN, Header};
use shared::message::{Progress, ToClient, ToServer, Verdict};

use super::{SAMPLES, SHAPE, assert_counts, assert_finished, honest, in_process, stranger, stranger_key};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_says_nothing_is_sent_away_and_holds_nothing_up() {
    let (_directory, in_process) = in_process(2, &["round.min-updates=2", "run.rounds=1"]);
    let mute = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(7)).await;
    let gates = honest(&in_process);
    let held = gates.iter().map(Gate::held).collect();
    assert_eq!(mute.reason().await, "it did not say hello in time");
    in_process.remark(&["it did not say hello in time"]);
    let still_mute = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(7)).await;
    assert_finished(in_process, &gates, held, 1);
    // It is told that the aggregator stops, or at least cut off.
    still_mute.closed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_heartbeats_disturbs_no_other_peer() {
    const FLOOD: usize = 50_000;
    let (_directory, in_process) = in_process(2, &["round.min-updates=2", "run.rounds=1"]);
    let gates = honest(&in_process);
    let held = gates.iter().map(Gate::held).collect();
    let mut peer = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(7)).await;
    peer.join(stranger(7)).await;
    let sign = frame::encode(&ToServer::Heartbeat(Progress { round: Some(1), done: 1, total: 0 }), 0);
    let flood = tokio::spawn(async move {
        for _ in 0..FLOOD / 100 {
            // The server may go home in the middle of it.
            if peer.control.write_all(&sign.repeat(100)).await.is_err() {
                break;
            }
        }
        peer.closed().await
    });
    assert_finished(in_process, &gates, held, 1);
    flood.await.unwrap();
}

/// Where uploads of the run in `directory` are written.
fn spool(directory: &tempfile::TempDir) -> PathBuf {
    RunDirectory::new(directory.path().join("run")).spool()
}

fn files(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_peer_uploads_before_the_welcome() {
    let (_directory, in_process) = in_process(2, &["round.min-updates=2", "run.rounds=1"]);
    let gates = honest(&in_process);
    let held = gates.iter().map(Gate::held).collect();
    let mut peer = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(7)).await;
    let connection = peer.connection.clone();
    let stream = connection.open_uni();
    tokio::pin!(stream);
    let opened = tokio::select! {
        biased;
        _ = &mut stream => true,
        () = std::future::ready(()) => false,
    };
    assert!(!opened, "a peer that was not welcomed may open no stream for an upload");
    peer.join(stranger(7)).await;
    stream.await.expect("a welcomed peer may");
    assert_finished(in_process, &gates, held, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_uploads_that_come_to_a_halt_wait_for_their_turn_and_lose_it() {
    // Long enough for all of them to come before the first is sent away, on a machine with other things to do as well.
    let signs = ["connection.heartbeat=1", "connection.timeout=10"];
    let (directory, in_process) =
        in_process(2, &[&["round.min-updates=2", "run.rounds=1"][..], &signs].concat());
    let spool = spool(&directory);
    let gates = honest(&in_process);
    let held: Vec<_> = gates.iter().map(Gate::held).collect();
    let mut halted = Vec::new();
    for number in 0..UPLOADS as u8 + 3 {
        // The last three would be done in no time, if they had their turn.
        let (announced, sent) = if usize::from(number) < UPLOADS { (100_000, 50_000) } else { (4, 4) };
        let mut peer = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(number)).await;
        peer.join(stranger(number)).await;
        let mut stream = peer.connection.open_uni().await.unwrap();
        let update = ToServer::Update(update_header(1, SAMPLES));
        stream.write_all(&[frame::encode(&update, announced), vec![0; sent]].concat()).await.unwrap();
        if usize::from(number) < UPLOADS {
            until("its upload begins", || files(&spool) > usize::from(number));
        }
        halted.push(tokio::spawn(async move {
            let ended = peer.stays().await;
            drop(stream);
            ended
        }));
    }
    // New peers are served, and in the meantime no other upload has begun.
    let mut quiet = Vec::new();
    for number in 100..105 {
        let mut peer = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(number)).await;
        peer.join(stranger(number)).await;
        quiet.push(peer);
    }
    assert_eq!(files(&spool), UPLOADS);
    // The honest two wait like everyone else, until those before them have been sent away.
    for held in held {
        held.open();
    }
    for gate in &gates {
        assert_eq!(gate.receipt(1), Verdict::Accepted);
    }
    let (outcome, records, model) = in_process.end();
    assert_eq!((outcome, records.len(), records[0].accepted), (Outcome::Completed, 1, 2));
    // The three that are no updates had their turn first, but the round need not wait for their verdicts.
    assert!(records[0].rejected <= 3, "{:?}", records[0]);
    assert_eq!(model.first_non_finite(), None);
    let mut sent_away = 0;
    for halted in halted.drain(..UPLOADS) {
        match &reason_of(halted.await.unwrap())[..] {
            "its upload came to a halt" => sent_away += 1,
            // The run was over before its time was up.
            reason => assert_eq!(reason, "goodbye"),
        }
    }
    assert!(sent_away > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_that_cannot_be_written_down_costs_only_that_upload() {
    let (directory, in_process) = in_process(2, &["round.min-updates=2", "run.rounds=1"]);
    let spool = spool(&directory);
    let gates = honest(&in_process);
    let held: Vec<_> = gates.iter().map(Gate::held).collect();
    // Not the disk's fault, and it passes: as too many open files do. Links, because a link is exchanged for another at once:
    // a run whose spool is missing for a moment ends.
    let (file, folder, link) =
        (spool.with_extension("file"), spool.with_extension("folder"), spool.with_extension("link"));
    fs::rename(&spool, &folder).unwrap();
    fs::write(&file, "").unwrap();
    symlink(&file, &spool).unwrap();
    for held in held {
        held.open();
    }
    in_process.remark(&["cannot write updates to", spool.to_str().unwrap(), "Not a directory"]);
    in_process.remark(&["says hello"]);
    in_process.remark(&["says hello"]);
    in_process.remark(&["says hello"]);
    symlink(&folder, &link).unwrap();
    fs::rename(&link, &spool).unwrap();
    for gate in &gates {
        assert_eq!(gate.receipt(1), Verdict::Accepted);
    }
    let more = in_process.said();
    assert!(!more.iter().any(|text| text.contains("cannot write updates to")), "it was said once: {more:#?}");
    assert_counts(in_process, &[(2, 0, 0)]);
}

/// A peer whose receive window is too small for any task, and which allows this number of streams for tasks.
fn narrow(window: u32, tasks: u32) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.receive_window(VarInt::from_u32(window)).max_concurrent_uni_streams(VarInt::from_u32(tasks));
    transport
}

/// Tries to connect, and is refused for lack of a free slot.
async fn assert_turned_away(in_process: &InProcessServer) {
    match RawPeer::connect_as(
        in_process.address(),
        in_process.pin(),
        &stranger_key(7),
        TransportConfig::default(),
    )
    .await
    {
        Err(ConnectionError::ConnectionClosed(close)) => {
            assert_eq!(close.error_code, TransportErrorCode::CONNECTION_REFUSED);
        }
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("there was a place"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_peers_have_few_slots_until_they_are_welcome() {
    let (_directory, in_process) = in_process(2, &["round.min-updates=2", "run.rounds=1"]);
    let gates = honest(&in_process);
    let held = gates.iter().map(Gate::held).collect();
    let mut strangers = Vec::new();
    for _ in 0..PREAUTH_CONNECTIONS {
        strangers.push(RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(7)).await);
    }
    assert_turned_away(&in_process).await;
    in_process.remark(&["turned a connection away"]);
    assert_turned_away(&in_process).await;
    strangers[0].join(stranger(7)).await;
    let _another = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(7)).await;
    assert_turned_away(&in_process).await;
    assert_finished(in_process, &gates, held, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_connections_is_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let overrides = ["data.clients=2", "data.max-samples=20", "round.min-updates=2", "run.rounds=1"];
    let root = directory.path().join("run");
    let in_process = InProcessServer::start_with(Scenario::small(&overrides), &root, |mut listener| {
        listener.max_connections = Some(3);
        listener
    });
    let gates = honest(&in_process);
    let held = gates.iter().map(Gate::held).collect();
    let mut third = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(7)).await;
    third.join(stranger(7)).await;
    assert_turned_away(&in_process).await;
    in_process.remark(&["turned a connection away", "3 places"]);
    // It keeps its slot until it has disconnected.
    third.connection.close(VarInt::from_u32(0), b"");
    in_process.remark(&["disconnected"]);
    let mut fourth = Err(ConnectionError::TimedOut);
    for _ in 0..1000 {
        if fourth.is_err() {
            fourth = RawPeer::connect_as(
                in_process.address(),
                in_process.pin(),
                &stranger_key(8),
                TransportConfig::default(),
            )
            .await;
        }
    }
    fourth.unwrap_or_else(|error| panic!("{error}")).join(stranger(8)).await;
    assert_finished(in_process, &gates, held, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_nothing_of_its_task_is_sent_away() {
    // A task that fits into the send window, and one that does not.
    for model in ["linear", "mlp-2nn"] {
        let model = format!("model.name={model}");
        // Longer than a busy machine stands still: the connection itself would be lost then.
        let lost = ["connection.heartbeat=0.5", "connection.timeout=3"];
        let rounds = ["round.min-updates=2", "round.min-clients-to-start=3", "run.rounds=1"];
        let (_directory, in_process) = in_process(3, &[&[&model[..]][..], &lost, &rounds].concat());
        let mut deaf =
            RawPeer::connect_as(in_process.address(), in_process.pin(), &device_key(2), narrow(2000, 10))
                .await
                .unwrap();
        deaf.join(hello(in_process.client(2), SAMPLES, &SHAPE, 10)).await;
        let gates = honest(&in_process);
        let held = gates.iter().map(Gate::held).collect();
        assert_eq!(reason_of(deaf.stays().await), "it takes nothing of what it is sent");
        assert_finished(in_process, &gates, held, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_falls_behind_is_sent_the_newest_task_alone() {
    const ROUNDS: u32 = 6;
    let rounds =
        ["round.min-updates=2", "round.max-updates=2", "round.min-clients-to-start=3", "run.rounds=6"];
    let (_directory, in_process) = in_process(3, &[&rounds[..], &["connection.timeout=60"]].concat());
    let mut slow =
        RawPeer::connect_as(in_process.address(), in_process.pin(), &device_key(2), narrow(1 << 20, 0))
            .await
            .unwrap();
    slow.join(hello(in_process.client(2), SAMPLES, &SHAPE, 10)).await;
    let gates = honest(&in_process);
    let mut held: Vec<_> = Vec::new();
    for round in 1..ROUNDS {
        held = gates.iter().map(Gate::held).collect();
        for held in held.drain(..) {
            held.open();
        }
        for gate in &gates {
            assert_eq!(gate.receipt(round), Verdict::Accepted);
        }
    }
    held.extend(gates.iter().map(Gate::held));
    slow.connection.set_max_concurrent_uni_streams(VarInt::from_u32(100));
    let mut streams = 0;
    loop {
        let mut stream = slow.connection.accept_uni().await.unwrap();
        streams += 1;
        // One that was overtaken is broken off.
        let Ok(bytes) = stream.read_to_end(1 << 20).await else { continue };
        let length = Header::parse(bytes[..HEADER_LEN].try_into().unwrap(), u64::MAX).unwrap().message;
        let message = frame::decode(&bytes[HEADER_LEN..HEADER_LEN + length as usize]).unwrap();
        let ToClient::Task { round, .. } = message else { panic!("{message:?} is no task") };
        if round == ROUNDS {
            break;
        }
        assert_eq!(round, ROUNDS - 1, "a round that has long been closed");
    }
    // The newest, and at most one that was the newest when the stream opened.
    assert!(streams <= 2, "{streams} tasks were waiting");
    for held in held {
        held.open();
    }
    for gate in &gates {
        assert_eq!(gate.receipt(ROUNDS), Verdict::Accepted);
    }
    assert_counts(in_process, &[(2, 0, 0); ROUNDS as usize]);
}
