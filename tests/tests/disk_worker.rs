//! The disk thread while the run is stopped, and while peers go on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use aggregator::coordinator::{PeerId, Resume};
use aggregator::driver::drive;
use aggregator::events::Notice;
use aggregator::peer::{FromPeer, ToPeer};
use aggregator::run::directory::RunDirectory;
use aggregator::run::{Run, RunError};
use aggregator::storage::FileLayer;
use federation_tests::process::until;
use federation_tests::scenario::Scenario;
use federation_tests::watched_disk::WatchedDisk;
use models::Precision;
use shared::frame;
use shared::id::ClientId;
use shared::message::{Hello, ToClient, ToServer, TrainReport, UpdateHeader, Verdict};
use shared::record::Record;
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
    let (disk, reached, release) = blocking_disk(true);
    let config = Scenario::small(&["data.clients=1"]).config;
    let run = Run::begin(Arc::new(disk), RunDirectory::new(folder.path().join("run")), config, None).unwrap();
    let spool = run.directory().spool();

    let (peers, from_peers) = channel::unbounded_channel();
    let (stop, stopped) = watch::channel(false);
    let mut told = joins(&peers, PEER, hello(&run));
    let driven = tokio::spawn(async move {
        Box::pin(drive(run, Resume::default(), from_peers, stopped, &mut |_: &Notice<'_>| {})).await
    });

    while !matches!(told.recv().await.unwrap(), ToPeer::Task(_)) {}
    uploads_rubbish(&peers, PEER, spool.join(WORTHLESS));
    tokio::task::spawn_blocking(move || reached.recv().unwrap()).await.unwrap();

    stop.send(true).unwrap();
    while !matches!(told.recv().await.unwrap(), ToPeer::Disconnect) {}
    // The loop is over now; only the shutdown still listens.
    drop(release);
    peers.send(FromPeer::Disconnected { peer: PEER, reason: "closed".to_owned(), parted: true }).unwrap();
    let error = driven.await.unwrap().err().expect("what the ledger could not do is told");
    assert!(matches!(&error, RunError::Disk { action: "remove", .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_round_that_closes_while_the_run_is_stopped_is_in_its_last_status() {
    let folder = tempfile::tempdir().unwrap();
    let directory = RunDirectory::new(folder.path().join("run"));
    let (reach, reached) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (reach, released) = (Mutex::new(reach), Mutex::new(released));
    // The record of a round is written when it opens, and once more with the decision to close it: there the worker is held up.
    let (record, written) = (directory.opening(1), AtomicUsize::new(0));
    let disk = WatchedDisk(move |operation: &'static str, path: &Path| {
        if operation == "rename" && path == record && written.fetch_add(1, Ordering::Relaxed) == 1 {
            reach.lock().unwrap().send(()).unwrap();
            let _ = released.lock().unwrap().recv();
        }
        Ok(())
    });
    let config = Scenario::small(&["data.clients=1"]).config;
    let run = Run::begin(Arc::new(disk), directory, config, None).unwrap();
    let spool = run.directory().spool();

    let (peers, from_peers) = channel::unbounded_channel();
    let (stop, stopped) = watch::channel(false);
    let mut told = joins(&peers, PEER, hello(&run));
    let statuses = Arc::new(Mutex::new(Vec::new()));
    let seen = statuses.clone();
    let driven = tokio::spawn(async move {
        let mut sink = move |notice: &Notice<'_>| {
            if let Notice::Status(status) = notice {
                seen.lock().unwrap().push((status.closed, status.failed));
            }
        };
        Box::pin(drive(run, Resume::default(), from_peers, stopped, &mut sink))
            .await
            .map(|ended| ended.run.closed())
    });
    while !matches!(told.recv().await.unwrap(), ToPeer::Task(_)) {}
    // Without an update that counts the round closes without a result.
    uploads_rubbish(&peers, PEER, spool.join(WORTHLESS));
    tokio::task::spawn_blocking(move || reached.recv().unwrap()).await.unwrap();
    stop.send(true).unwrap();
    while !matches!(told.recv().await.unwrap(), ToPeer::Disconnect) {}
    drop(release);
    peers.send(FromPeer::Disconnected { peer: PEER, reason: "closed".to_owned(), parted: true }).unwrap();
    assert_eq!(driven.await.unwrap().unwrap(), 1);
    assert_eq!(statuses.lock().unwrap().last(), Some(&(1, 1)));
}

/// The file that a [`blocking_disk`] waits at.
const WORTHLESS: &str = "worthless.upload";

/// A disk that holds the ledger up when it removes [`WORTHLESS`], until the sender is dropped, and then may fail. The receiver
/// is told when that begins.
fn blocking_disk(fails: bool) -> (impl FileLayer, mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (reach, reached) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (reach, released) = (Mutex::new(reach), Mutex::new(released));
    let disk = WatchedDisk(move |operation: &'static str, path: &Path| {
        if operation == "remove" && path.ends_with(WORTHLESS) {
            reach.lock().unwrap().send(()).unwrap();
            let _ = released.lock().unwrap().recv();
            if fails {
                return Err(io::Error::other("the disk was removed"));
            }
        }
        Ok(())
    });
    (disk, reached, release)
}

/// An upload that is no update, in `file`.
fn uploads_rubbish(peers: &channel::UnboundedSender<FromPeer>, peer: PeerId, file: PathBuf) -> PathBuf {
    fs::write(&file, "not an update").unwrap();
    let header = UpdateHeader { round: 1, report: TrainReport { samples: 10, ..TrainReport::default() } };
    let upload = file.clone().into();
    peers.send(FromPeer::Uploaded { peer, header, upload, turn: None, bytes: 13 }).unwrap();
    file
}

/// A new peer that has said hello.
fn joins(
    peers: &channel::UnboundedSender<FromPeer>,
    peer: PeerId,
    hello: Hello,
) -> channel::UnboundedReceiver<ToPeer> {
    let (commands, told) = channel::unbounded_channel();
    peers.send(FromPeer::Connected { peer, commands }).unwrap();
    let message = ToServer::Hello(hello);
    peers.send(FromPeer::Message { peer, message, bytes: 0, place: None }).unwrap();
    told
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn rubbish_is_removed_while_the_ledger_is_at_something_else() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, reached, release) = blocking_disk(false);
    let config = Scenario::small(&["data.clients=1"]).config;
    let run = Run::begin(Arc::new(disk), RunDirectory::new(folder.path().join("run")), config, None).unwrap();
    let spool = run.directory().spool();
    let (first, second) = (hello(&run), Hello { client: ClientId::from_bytes([2; 16]), ..hello(&run) });

    let (peers, from_peers) = channel::unbounded_channel();
    let (stop, stopped) = watch::channel(false);
    let mut told = joins(&peers, PEER, first);
    let driven = tokio::spawn(async move {
        Box::pin(drive(run, Resume::default(), from_peers, stopped, &mut |_: &Notice<'_>| {})).await
    });
    while !matches!(told.recv().await.unwrap(), ToPeer::Task(_)) {}
    let stranger = PeerId(2);
    let mut told = joins(&peers, stranger, second);
    let uploads = |peer, name: &str| uploads_rubbish(&peers, peer, spool.join(name));
    uploads(PEER, WORTHLESS);
    tokio::task::spawn_blocking(move || reached.recv().unwrap()).await.unwrap();
    // The ledger is held up from here on. The unknown peer is in no cohort.
    let rubbish: Vec<_> = (0..3).map(|number| uploads(stranger, &format!("{number}.upload"))).collect();
    tokio::task::spawn_blocking(move || {
        until("unneeded files are deleted", || !rubbish.iter().any(|file| file.exists()));
    })
    .await
    .unwrap();

    drop(release);
    stop.send(true).unwrap();
    while !matches!(told.recv().await.unwrap(), ToPeer::Disconnect) {}
    let too_late = uploads(stranger, "late.upload");
    for peer in [PEER, stranger] {
        peers.send(FromPeer::Disconnected { peer, reason: "closed".to_owned(), parted: true }).unwrap();
    }
    assert!(driven.await.unwrap().is_ok(), "the run goes on to its stop");
    tokio::task::spawn_blocking(move || until("so is what came too late", || !too_late.exists()))
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn updates_that_come_together_share_a_sync() {
    const CLIENTS: u8 = 4;
    let folder = tempfile::tempdir().unwrap();
    let (reach, reached) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (reach, released) = (Mutex::new(Some(reach)), Mutex::new(released));
    let steps = Arc::new(Mutex::new(Vec::new()));
    let seen = steps.clone();
    // The ledger is held up at the first update's change of place, and the others come meanwhile.
    let directory = RunDirectory::new(folder.path().join("run"));
    let accepted = directory.accepted(1);
    let disk = WatchedDisk(move |operation: &'static str, path: &Path| {
        if path.starts_with(&accepted) && ["rename", "sync"].contains(&operation) {
            seen.lock().unwrap().push(operation);
            if operation == "rename"
                && let Some(reach) = reach.lock().unwrap().take()
            {
                reach.send(()).unwrap();
                let _ = released.lock().unwrap().recv();
            }
        }
        Ok(())
    });
    let config =
        Scenario::small(&["data.clients=4", "data.max-samples=40", "run.rounds=1", "round.min-updates=3"])
            .config;
    let run = Run::begin(Arc::new(disk), directory, config, None).unwrap();
    let (spool, model) = (run.directory().spool(), run.spec().architecture.clone());
    let hellos =
        (0..CLIENTS).map(|number| Hello { client: ClientId::from_bytes([number; 16]), ..hello(&run) });
    let hellos: Vec<_> = hellos.collect();
    let misfit = hello(&run);

    let (peers, from_peers) = channel::unbounded_channel();
    let (_stop, stopped) = watch::channel(false);
    let mut told: Vec<_> =
        hellos.into_iter().zip(1..).map(|(hello, peer)| joins(&peers, PeerId(peer), hello)).collect();
    let driven = tokio::spawn(async move {
        Box::pin(drive(run, Resume::default(), from_peers, stopped, &mut |_: &Notice<'_>| {})).await
    });
    for told in &mut told {
        while !matches!(told.recv().await.unwrap(), ToPeer::Task(_)) {}
    }
    let header = UpdateHeader { round: 1, report: TrainReport { samples: 10, ..TrainReport::default() } };
    let nothing = model.initialise(|_| shared::seed::Seed::root(1).rng()).unwrap().zeros_like();
    let payload = Record { tensors: nothing, ..Record::default() }.to_bytes(Precision::F32);
    let upload = |number: u64| {
        // The third is rubbish, among good ones.
        let payload = if number == 3 { &b"rubbish"[..] } else { &payload };
        let frame = frame::encode(&ToServer::Update(header), payload.len() as u64);
        let file = spool.join(format!("{number}.upload"));
        fs::write(&file, [&frame, payload].concat()).unwrap();
        peers
            .send(FromPeer::Uploaded {
                peer: PeerId(number),
                header,
                upload: file.into(),
                turn: None,
                bytes: 1,
            })
            .unwrap();
    };
    upload(1);
    tokio::task::spawn_blocking(move || reached.recv().unwrap()).await.unwrap();
    for number in 2..=u64::from(CLIENTS) {
        upload(number);
    }
    // The driver has passed them on once it answers what came after them.
    let misfit = Hello { classes: 3, client: ClientId::from_bytes([9; 16]), ..misfit };
    let mut answers = joins(&peers, PeerId(9), misfit);
    assert!(matches!(answers.recv().await, Some(ToPeer::Message(ToClient::Refused(_)))));
    peers
        .send(FromPeer::Disconnected { peer: PeerId(9), reason: "closed".to_owned(), parted: true })
        .unwrap();
    drop(release);
    for (told, number) in told.iter_mut().zip(1..) {
        let Some(ToPeer::Message(ToClient::Receipt { verdict, .. })) = told.recv().await else {
            panic!("no receipt for {number}")
        };
        assert_eq!(matches!(verdict, Verdict::Rejected(_)), number == 3, "{number}: {verdict:?}");
        peers
            .send(FromPeer::Disconnected { peer: PeerId(number), reason: "closed".to_owned(), parted: true })
            .unwrap();
    }
    assert!(driven.await.unwrap().is_ok());
    assert_eq!(*steps.lock().unwrap(), ["rename", "sync", "rename", "rename", "sync"]);
}
