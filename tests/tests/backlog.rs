//! Backpressure: a listener whose driver reads slowly.

use std::net::SocketAddr;
use std::time::Duration;

use aggregator::enrolment::{Admission, Register};
use aggregator::peer::{FromPeer, ToPeer};
use aggregator::transport::Listener;
use aggregator::transport::identity::ServerIdentity;
use aggregator::transport::limits::UNHANDLED_MESSAGES;
use federation_tests::keys::device_key;
use federation_tests::raw_peer::{RawPeer, hello, update_header};
use federation_tests::scenario::Scenario;
use shared::congestion::Congestion;
use shared::frame;
use shared::message::{Progress, ToClient, ToServer};
use shared::spec::SpecText;
use tokio::sync::mpsc;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_peer_talks_faster_than_the_driver_reads() {
    // Few enough to be in the listener's receive buffer all at once.
    const FLOOD: usize = 999;
    let spool = tempfile::tempdir().unwrap();
    let identity = ServerIdentity::generate().unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener = Listener::bind(
        any,
        &identity,
        Admission::new(Register::Anyone),
        Duration::from_mins(1),
        Congestion::default(),
    )
    .unwrap();
    let address = listener.address();
    let (to_driver, mut from_peers) = mpsc::unbounded_channel();
    tokio::spawn(listener.accept(spool.path().to_owned(), 1000, 1, to_driver));

    let mut peer = RawPeer::connect(address, identity.key(), &device_key(0)).await;
    let hello = hello(device_key(0).public().client(), 10, &[1, 28, 28], 10);
    peer.say(&frame::encode(&ToServer::Hello(hello), 0)).await;
    peer.say(&frame::encode(&ToServer::Heartbeat(Progress::default()), 0).repeat(FLOOD)).await;
    let Some(FromPeer::Connected { commands, .. }) = from_peers.recv().await else {
        panic!("it is connected")
    };
    let spec = SpecText::of(&Scenario::small(&[]).config.spec);
    commands.send(ToPeer::Message(ToClient::Welcome { spec, wants: None })).unwrap();
    assert!(matches!(peer.answer().await, Ok(ToClient::Welcome { .. })));
    peer.update(update_header(1, 10), b"four").await;

    // The upload overtakes the messages for which there is no place.
    let mut unheard = Vec::new();
    loop {
        match from_peers.recv().await {
            Some(FromPeer::Uploaded { .. }) => break,
            Some(message @ FromPeer::Message { .. }) => unheard.push(message),
            other => panic!("{other:?}"),
        }
    }
    assert!(unheard.len() <= UNHANDLED_MESSAGES, "{} messages wait", unheard.len());
    // Once those are heard the others come, every one.
    let mut heard = unheard.len();
    drop(unheard);
    while heard < FLOOD + 1 {
        match from_peers.recv().await {
            Some(FromPeer::Message { .. }) => heard += 1,
            other => panic!("{other:?}"),
        }
    }
}
