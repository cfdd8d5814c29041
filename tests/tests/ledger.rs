//! What the ledger is still at when the run is stopped.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};

use aggregator::coordinator::{PeerId, Resume};
use aggregator::driver::{FromPeer, ToPeer, drive};
use aggregator::run::directory::RunDirectory;
use aggregator::run::{Run, RunError};
use federation_tests::scenario::Scenario;
use federation_tests::watched_disk::WatchedDisk;
use shared::id::ClientId;
use shared::message::{Hello, ToServer, TrainReport, UpdateHeader};
use tokio::sync::{mpsc as channel, watch};

const PEER: PeerId = PeerId(1);

fn hello(run: &Run) -> Hello {
    let architecture = &run.spec().architecture;
    Hello {
        client: ClientId::from_bytes([1; 16]),
        software: "test 1".to_owned(),
        samples: 10,
        shape: architecture.input.iter().map(|&axis| axis as u32).collect(),
        classes: architecture.classes as u32,
        holds: None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_ledger_that_fails_while_peers_say_farewell_fails_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let (reach, reached) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (reach, released) = (Mutex::new(reach), Mutex::new(released));
    // A worthless update is removed from the spool: there the disk holds the ledger up, and then it fails.
    let disk = WatchedDisk(move |operation: &'static str, path: &Path| {
        if operation == "remove" && path.ends_with("worthless.upload") {
            reach.lock().unwrap().send(()).unwrap();
            let _ = released.lock().unwrap().recv();
            return Err(io::Error::other("the disk is gone"));
        }
        Ok(())
    });
    let config = Scenario::small(&["data.clients=1"]).config;
    let run = Run::begin(Arc::new(disk), RunDirectory::new(folder.path().join("run")), config, None).unwrap();
    let spool = run.directory().spool();

    let (peers, from_peers) = channel::unbounded_channel();
    let (commands, mut told) = channel::unbounded_channel();
    let (stop, stopped) = watch::channel(false);
    peers.send(FromPeer::Connected { peer: PEER, commands }).unwrap();
    let message = ToServer::Hello(hello(&run));
    peers.send(FromPeer::Message { peer: PEER, message, bytes: 0 }).unwrap();
    let driven =
        tokio::spawn(async move { drive(run, Resume::default(), from_peers, stopped, &mut |_| {}).await });

    while !matches!(told.recv().await.unwrap(), ToPeer::Task(_)) {}
    let file = spool.join("worthless.upload");
    fs::write(&file, "not an update").unwrap();
    let header = UpdateHeader { round: 1, report: TrainReport { samples: 10, ..TrainReport::default() } };
    peers.send(FromPeer::Uploaded { peer: PEER, header, file, bytes: 13 }).unwrap();
    tokio::task::spawn_blocking(move || reached.recv().unwrap()).await.unwrap();

    stop.send(true).unwrap();
    while !matches!(told.recv().await.unwrap(), ToPeer::Disconnect) {}
    // The loop is over now; nobody but the farewell listens.
    drop(release);
    peers.send(FromPeer::Disconnected { peer: PEER, reason: "closed".to_owned() }).unwrap();
    let error = driven.await.unwrap().err().expect("what the ledger could not do is told");
    assert!(matches!(&error, RunError::Disk { action: "remove", .. }), "{error}");
}
