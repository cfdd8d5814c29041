//! Floods: invented messages fill neither the log nor the database.

use std::net::SocketAddr;

use aggregator::database::Database;
use federation_tests::gate::Gate;
use federation_tests::raw_peer::{RawPeer, hello, update_header};
use federation_tests::testbed::Testbed;
use quinn::{ConnectionError, TransportConfig};
use shared::eligibility::Ineligible;
use shared::frame;
use shared::message::{ToServer, Verdict};

use super::{SAMPLES, SHAPE, assert_finished, honest, in_process, stranger_key};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_device_makes_up_of_rounds_is_told_once_and_otherwise_counted() {
    const FLOOD: u32 = 1000;
    /// A few lines for each of three peers, and one for each of two rounds.
    const LINES: usize = 60;
    // The liar gives no sign that it is there but its lies.
    let testbed = Testbed::new(2, &["run.rounds=1", "data.max-samples=20", "connection.timeout=15"]);
    let server = testbed.serve();
    let gates = [testbed.gate(0), testbed.gate(1)];
    let held: Vec<_> = gates.iter().map(Gate::held).collect();
    let address: SocketAddr = testbed.address().parse().unwrap();
    // Unknown peers that are never admitted come and go meanwhile.
    for _ in 0..20 {
        let mut mute = RawPeer::connect(address, testbed.key(), &stranger_key(8)).await;
        mute.say(b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n").await;
        mute.reason().await;
    }
    let client = stranger_key(7).public().client();
    let mut liar = RawPeer::connect(address, testbed.key(), &stranger_key(7)).await;
    liar.join(hello(client, SAMPLES, &SHAPE, 10)).await;
    for number in 0..FLOOD {
        let reason = "no reason at all ".repeat(20);
        let failed = |round| frame::encode(&ToServer::Failed { round, reason: reason.clone() }, 0);
        let not_now = |round| frame::encode(&ToServer::Ineligible { round, reason: Ineligible::Battery }, 0);
        let left_out = frame::encode(&ToServer::SkippedSamples { samples: u64::from(number % 2 == 0) }, 0);
        for said in [failed(number), failed(1), not_now(number), not_now(1), left_out] {
            liar.say(&said).await;
        }
    }
    for round in 2..40 {
        liar.update(update_header(round, SAMPLES), b"rubbish").await;
        assert!(matches!(liar.verdict(round).await, Verdict::Rejected(_)));
    }
    liar.say(&frame::encode(&ToServer::Goodbye, 0)).await;
    for held in held {
        held.open();
    }
    for gate in &gates {
        assert_eq!(gate.receipt(1), Verdict::Accepted);
    }
    let ended = server.wait();
    assert_eq!(ended.code, Some(0), "{}", ended.text);
    let lines = ended.text.lines().count();
    assert!(lines < LINES, "{lines} lines: {}", ended.text);
    let more = format!("client {} sent", client.short());
    let counted = |line: &str| line.contains(&more) && line.contains("more messages");
    assert_eq!(ended.text.lines().filter(|line| counted(line)).count(), 1, "{}", ended.text);

    let database = Database::open_existing(&testbed.path("identity")).unwrap().unwrap();
    let run = database.runs().unwrap().remove(0).run;
    let arrivals = |round| database.arrivals(&run, round).unwrap();
    let liars: Vec<_> = arrivals(1).into_iter().filter(|of| of.device == client.to_string()).collect();
    let liars: Vec<_> = liars.iter().map(|of| (of.verdict.as_str(), of.times)).collect();
    assert_eq!(liars, [("failed", 1), ("not-now", 1)]);
    let left_out = database.left_out(&run).unwrap();
    assert_eq!(
        left_out.iter().map(|of| of.samples).collect::<Vec<_>>(),
        [1],
        "what it said first on its connection"
    );
    // Round 2 would be the next one, of which it may as well speak.
    assert_eq!((3..=FLOOD).map(|round| arrivals(round).len()).sum::<usize>(), 0);
    let events = database.events(&run, u32::MAX).unwrap();
    assert!(events.len() < LINES, "{} events", events.len());
    assert!(!events.iter().any(|event| event.text.contains("this protocol")), "{events:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_of_another_version_is_reported_once() {
    let (_directory, in_process) = in_process(2, &["round.min-updates=2", "run.rounds=1"]);
    let gates = honest(&in_process);
    let held = gates.iter().map(Gate::held).collect();
    for _ in 0..3 {
        let names = vec![b"federation/1".to_vec(), b"h3".to_vec()];
        let key = stranger_key(7);
        let transport = TransportConfig::default();
        let refused =
            RawPeer::connect_offering(names, in_process.address(), in_process.pin(), &key, transport).await;
        assert!(matches!(refused, Err(ConnectionError::ConnectionClosed(_))), "there is no such version");
    }
    let spoken = ["127.0.0.1", "speaks no version", "federation/5", "update"];
    in_process.remark(&spoken);
    let again = in_process.said().iter().filter(|said| said.contains(spoken[1])).count();
    assert_eq!(again, 0, "it was said once");
    assert_finished(in_process, &gates, held, 1);
}
