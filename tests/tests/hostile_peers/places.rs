//! Slots and turns of connections, with a driver that does nothing by itself.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use aggregator::database::Database;
use aggregator::enrolment::{Admission, Admittance, Device, Policy, Register, Standing};
use aggregator::peer::{FromPeer, ToPeer};
use aggregator::run::directory::upload_of;
use aggregator::transport::Listener;
use aggregator::transport::identity::ServerIdentity;
use aggregator::transport::limits::UPLOADS;
use federation_tests::process::{PATIENCE, until};
use federation_tests::raw_peer::{RawPeer, update_header};
use federation_tests::scenario::Scenario;
use shared::congestion::Congestion;
use shared::frame;
use shared::id::RunId;
use shared::identity::PublicKey;
use shared::message::{Hello, Refusal, TaskId, ToClient, ToServer};
use shared::spec::SpecText;
use tokio::sync::mpsc;

use super::{SAMPLES, stranger, stranger_key};

/// A listener, and what its driver would hear.
struct Listening {
    address: SocketAddr,
    key: PublicKey,
    events: mpsc::UnboundedReceiver<FromPeer>,
    /// Kept, with the commands' ends and the places that are in it.
    heard: Vec<FromPeer>,
    _spool: tempfile::TempDir,
}

impl Listening {
    fn start(register: Register) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), register)
    }

    /// The same, with a spool in which there may be something.
    fn start_in(spool: tempfile::TempDir, register: Register) -> Self {
        let identity = ServerIdentity::generate().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let admission = Admission::new(register);
        let listener =
            Listener::bind(any, &identity, admission, Duration::from_mins(1), Congestion::default()).unwrap();
        let address = listener.address();
        let (to_driver, events) = mpsc::unbounded_channel();
        tokio::spawn(listener.accept(spool.path().to_owned(), 1 << 20, 1, to_driver));
        Self { address, key: identity.key(), events, heard: Vec::new(), _spool: spool }
    }

    /// Hears on until there is such an event.
    async fn hears(&mut self, wanted: impl Fn(&FromPeer) -> bool) {
        loop {
            let event = tokio::time::timeout(PATIENCE, self.events.recv()).await;
            let event = event.expect("it is heard in time").expect("the listener is there");
            let found = wanted(&event);
            self.heard.push(event);
            if found {
                break;
            }
        }
    }

    /// A device of this number says hello.
    async fn comes(&self, number: u8) -> RawPeer {
        let mut peer = RawPeer::connect(self.address, self.key, &stranger_key(number)).await;
        peer.say(&frame::encode(&ToServer::Hello(stranger(number)), 0)).await;
        peer
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_device_has_two_connections_and_no_more() {
    let mut listening = Listening::start(Register::Anyone);
    let mut here = Vec::new();
    for number in [7, 7, 8, 7] {
        let peer = listening.comes(number).await;
        // Their hellos are heard one after the other.
        listening.hears(|event| matches!(event, FromPeer::Message { .. })).await;
        here.push(peer);
    }
    assert_eq!(here[0].reason().await, "newer connections of the device have taken its place");
    for peer in &here[1..] {
        assert_eq!(peer.connection.close_reason(), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_peer_may_send_datagrams() {
    let listening = Listening::start(Register::Anyone);
    let peer = RawPeer::connect(listening.address, listening.key, &stranger_key(7)).await;
    assert_eq!(peer.connection.max_datagram_size(), None, "before the hello");
    let sent = peer.connection.send_datagram(bytes::Bytes::from_static(b"x"));
    assert_eq!(sent, Err(quinn::SendDatagramError::UnsupportedByPeer));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hello_is_dropped_if_its_connection_ends_while_its_device_is_looked_up() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path()).unwrap();
    let register = Register::Lab { database: database.clone(), policy: Policy::Anyone };
    let mut listening = Listening::start(register);
    // No device can be recorded as long as another process writes.
    let (write, written) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = tokio::sync::oneshot::channel();
    let other = Database::open(folder.path()).unwrap();
    let writing = std::thread::spawn(move || {
        let held = other.write("hold up", |_| {
            let _ = begin.send(());
            Ok(written.recv().is_ok())
        });
        held.unwrap()
    });
    begun.await.unwrap();
    let mut peer = RawPeer::connect(listening.address, listening.key, &stranger_key(7)).await;
    // So long that the server gives credit for more once it has read it, which is how the peer knows.
    let hello = Hello { software: "x".repeat(60_000), ..stranger(7) };
    let credit = || peer.connection.stats().frame_rx.max_data;
    let before = credit();
    peer.control.write_all(&frame::encode(&ToServer::Hello(hello), 0)).await.unwrap();
    until("the hello is read", || credit() > before);
    peer.connection.close(quinn::VarInt::from_u32(0), b"");
    listening.hears(|event| matches!(event, FromPeer::Disconnected { .. })).await;
    let [FromPeer::Disconnected { reason, .. }] = &listening.heard[..] else {
        panic!("{:?}", listening.heard)
    };
    assert!(reason.contains("closed by peer"), "{reason}");
    write.send(()).unwrap();
    assert!(writing.join().unwrap());
}

/// Most of an update of the device with this number, as an earlier process has left it in the spool.
fn left_behind(spool: &Path, number: u8) -> PathBuf {
    let path = spool.join(upload_of(stranger(number).client, "0-0"));
    let frame = frame::encode(&ToServer::Update(update_header(1, SAMPLES)), 1 << 20);
    std::fs::write(&path, [frame, vec![0; 1 << 19]].concat()).unwrap();
    path
}

#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_that_is_revoked_while_its_connection_begins_is_known_to_be_after_its_hello() {
    let (folder, spool) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = left_behind(spool.path(), 7);
    let database = Database::open(folder.path()).unwrap();
    let theirs = Database::open(folder.path()).unwrap();
    let register = Register::Lab { database, policy: Policy::Anyone };
    let mut listening = Listening::start_in(spool, register);
    let mut peer = RawPeer::connect(listening.address, listening.key, &stranger_key(7)).await;
    // Its upload is a pipe, which cannot be opened until a process writes to it.
    std::fs::remove_file(&path).unwrap();
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let holds = Some(TaskId { run: RunId::from_bytes([1; 8]), round: 1 });
    let hello = Hello { holds, ..stranger(7) };
    let client = hello.client;
    peer.say(&frame::encode(&ToServer::Hello(hello), 0)).await;
    until("it is let in", || Device::find(&theirs, client).unwrap().is_some());
    assert!(Device::stand(&theirs, client, Standing::Revoked).unwrap());
    let revoked = |event: &FromPeer| matches!(event, FromPeer::Revoked { client: gone } if *gone == client);
    listening.hears(revoked).await;
    tokio::task::spawn_blocking(move || std::fs::write(&path, "").unwrap()).await.unwrap();
    listening.hears(|event| matches!(event, FromPeer::Message { message: ToServer::Hello(_), .. })).await;
    listening.hears(revoked).await;
    assert_eq!(peer.answer().await.ok(), Some(ToClient::Refused(Refusal::Revoked)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_device_that_is_revoked_no_part_of_an_update_stays() {
    let (folder, spool) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let [path, other] = [7, 8].map(|number| left_behind(spool.path(), number));
    let database = Database::open(folder.path()).unwrap();
    let (at, now) = ([192, 0, 2, 7].into(), SystemTime::now());
    let weighed = Device::admit(&database, stranger_key(7).public(), None, Policy::Anyone, at, now).unwrap();
    assert_eq!(weighed, Admittance::In);
    let theirs = Database::open(folder.path()).unwrap();
    assert!(Device::stand(&theirs, stranger(7).client, Standing::Revoked).unwrap());
    let mut listening = Listening::start_in(spool, Register::Lab { database, policy: Policy::Anyone });
    listening.hears(|event| matches!(event, FromPeer::Revoked { .. })).await;
    assert!(!path.exists() && other.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_a_device_cannot_be_looked_up_is_told_here_and_not_to_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::open(folder.path()).unwrap();
    database.write("break", |transaction| transaction.execute_batch("DROP TABLE devices")).unwrap();
    let mut listening = Listening::start(Register::Lab { database, policy: Policy::Anyone });
    let peer = listening.comes(7).await;
    let why = |event: &FromPeer| matches!(event, FromPeer::LookupFailed { error } if error.to_string().contains("no such table"));
    listening.hears(why).await;
    assert_eq!(peer.reason().await, "the aggregator cannot look the device up; try again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_with_many_uploads_waits_until_they_are_handled() {
    let mut listening = Listening::start(Register::Anyone);
    let mut peer = listening.comes(7).await;
    listening.hears(|event| matches!(event, FromPeer::Message { .. })).await;
    let spec = SpecText::of(&Scenario::small(&[]).config.spec);
    let Some(FromPeer::Connected { commands, .. }) = listening.heard.first() else {
        panic!("it is connected")
    };
    commands.send(ToPeer::Message(ToClient::Welcome { spec, wants: None })).unwrap();
    assert!(matches!(peer.answer().await, Ok(ToClient::Welcome { .. })));
    let connection = peer.connection.clone();
    tokio::spawn(async move {
        let update = frame::encode(&ToServer::Update(update_header(1, SAMPLES)), 4);
        while let Ok(mut stream) = connection.open_uni().await {
            if stream.write_all(&[&update[..], b"four"].concat()).await.is_err() {
                break;
            }
            let _ = stream.finish();
        }
    });
    let uploaded = |event: &FromPeer| matches!(event, FromPeer::Uploaded { .. });
    for _ in 0..UPLOADS {
        listening.hears(uploaded).await;
    }
    let waits = |event: &FromPeer| matches!(event, FromPeer::Waits { .. });
    listening.hears(|event| uploaded(event) || waits(event)).await;
    assert!(listening.heard.last().is_some_and(waits), "one more than there are turns");
    listening.heard.retain(|event| !uploaded(event));
    listening.hears(uploaded).await;
}
