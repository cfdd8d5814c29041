//! Connections that end in the middle of a model, and addresses that change: what has arrived is not sent again.

use std::fs;

use aggregator::coordinator::Outcome;
use aggregator::run::directory::RunDirectory;
use federation_tests::gate::Gate;
use federation_tests::in_process::InProcessServer;
use federation_tests::keys::device_key;
use federation_tests::process::{INTERRUPTED, Process, until};
use federation_tests::raw_peer::{RawPeer, hello, update_header};
use federation_tests::relay::Relay;
use federation_tests::scenario::Scenario;
use federation_tests::testbed::Testbed;
use models::{Limits, Precision};
use quinn::VarInt;
use shared::frame::{self, HEADER_LEN, Header};
use shared::id::ClientId;
use shared::message::{Hello, ResumePoint, TaskId, ToClient, ToServer, Verdict};
use shared::protocol::Protocol;
use shared::record::Record;

/// A federation of two whose model has 800 kB.
fn in_process(rounds: u32) -> (tempfile::TempDir, InProcessServer) {
    let directory = tempfile::tempdir().unwrap();
    let rounds = format!("run.rounds={rounds}");
    let overrides = [
        "model.name=mlp-2nn",
        "data.clients=2",
        "data.max-samples=20",
        "round.min-updates=2",
        "round.reconnect-grace=60",
        &rounds,
    ];
    let in_process = InProcessServer::start(Scenario::small(&overrides), &directory.path().join("run"));
    (directory, in_process)
}

fn greeting(in_process: &InProcessServer, held: Option<u32>) -> Hello {
    let run = in_process.scenario().config.spec.run;
    let holds = held.map(|round| TaskId { run, round });
    Hello { holds, ..hello(in_process.client(1), 10, &[1, 28, 28], 10) }
}

async fn connect(in_process: &InProcessServer) -> RawPeer {
    RawPeer::connect(in_process.address(), in_process.pin(), &device_key(1)).await
}

async fn say(peer: &mut RawPeer, message: ToServer) {
    peer.say(&frame::encode(&message, 0)).await;
}

/// The update that changes nothing, as bytes.
fn nothing(broadcast: &Record) -> Vec<u8> {
    Record { tensors: broadcast.tensors.zeros_like(), ..Record::default() }.to_bytes(Precision::F32)
}

/// Sends the beginning of an update and leaves its stream open; all of that has arrived when this returns.
async fn begin(
    directory: &tempfile::TempDir,
    peer: &RawPeer,
    payload: &[u8],
    part: usize,
) -> quinn::SendStream {
    let mut stream = peer.connection.open_uni().await.unwrap();
    let header = ToServer::Update(update_header(1, 10));
    stream.write_all(&frame::encode(&header, payload.len() as u64)).await.unwrap();
    stream.write_all(&payload[..part]).await.unwrap();
    let spool = RunDirectory::new(directory.path().join("run")).spool();
    until("the beginning is in the spool", || {
        let files = fs::read_dir(&spool).unwrap().filter_map(|entry| entry.ok()?.metadata().ok());
        files.map(|file| file.len()).sum::<u64>() >= part as u64
    });
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_update_goes_on_where_its_connection_was_cut() {
    let (directory, in_process) = in_process(1);
    let gate = in_process.gate(0);
    let mut peer = connect(&in_process).await;
    peer.join(greeting(&in_process, None)).await;
    let held = gate.held();
    let (round, broadcast) = peer.task().await;
    assert_eq!(round, 1);
    let payload = nothing(&broadcast);
    let part = payload.len() / 2;
    assert!(part > ResumePoint::MIN_BYTES);
    let stream = begin(&directory, &peer, &payload, part).await;

    // The device is back before the server has noticed that it had disconnected: the older connection ends, its bytes count.
    let mut again = connect(&in_process).await;
    say(&mut again, ToServer::Hello(greeting(&in_process, Some(1)))).await;
    let Ok(ToClient::ResumePoint(partial)) = again.answer().await else { panic!("nothing is here") };
    assert!(partial.bytes <= part as u64, "{partial:?}");
    let offset = partial.offset_in(1, &payload).expect("what is here is a beginning of the update");
    assert!(matches!(again.answer().await, Ok(ToClient::Welcome { wants: Some(1), .. })));
    // The driver has ended it, which knew the newer one by then: at no moment was the device away.
    assert_eq!(peer.reason().await, "goodbye");
    drop(stream);
    let rest = ToServer::UpdateRest { header: update_header(1, 10), offset: offset as u64 };
    let mut bytes = frame::encode(&rest, (payload.len() - offset) as u64);
    bytes.extend_from_slice(&payload[offset..]);
    again.send(bytes).await;
    assert_eq!(again.verdict(1).await, Verdict::Accepted);
    held.open();
    assert_eq!(gate.receipt(1), Verdict::Accepted);
    let (outcome, records, _) = in_process.end();
    assert_eq!((outcome, records[0].accepted), (Outcome::Completed, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_was_killed_goes_on_with_what_it_had_of_an_update() {
    a_server_goes_on_with_what_it_had_of_an_update(Process::kill).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_so_does_one_that_was_stopped() {
    a_server_goes_on_with_what_it_had_of_an_update(|server| {
        server.interrupt();
        assert_eq!(server.wait().code, Some(INTERRUPTED));
    })
    .await;
}

async fn a_server_goes_on_with_what_it_had_of_an_update(end: fn(Process)) {
    // These peers give no sign that they are there but what they send.
    let lost = "connection.timeout=15";
    let testbed = Testbed::new(1, &["run.rounds=1", "model.name=mlp-2nn", "data.max-samples=20", lost]);
    let mut server = testbed.serve();
    let address = testbed.address().parse().unwrap();
    let greeting =
        |held: Option<TaskId>| Hello { holds: held, ..hello(testbed.client(0), 20, &[1, 28, 28], 10) };
    let mut peer = RawPeer::connect(address, testbed.key(), &device_key(0)).await;
    let spec = peer.join(greeting(None)).await;
    let (round, broadcast) = peer.task().await;
    let payload = nothing(&broadcast);
    let part = payload.len() / 2;
    let mut stream = peer.connection.open_uni().await.unwrap();
    let header = update_header(round, 20);
    stream.write_all(&frame::encode(&ToServer::Update(header), payload.len() as u64)).await.unwrap();
    stream.write_all(&payload[..part]).await.unwrap();
    let spool = testbed.run().join("state/spool");
    until("the beginning is in the spool", || {
        let files = fs::read_dir(&spool).unwrap().filter_map(|entry| entry.ok()?.metadata().ok());
        files.map(|file| file.len()).sum::<u64>() >= part as u64
    });
    end(server);
    server = testbed.serve();

    let mut again = RawPeer::connect(address, testbed.key(), &device_key(0)).await;
    say(&mut again, ToServer::Hello(greeting(Some(TaskId { run: spec.run, round })))).await;
    let Ok(ToClient::ResumePoint(partial)) = again.answer().await else { panic!("nothing is here") };
    let offset = partial.offset_in(round, &payload).expect("what is here is a beginning of the update");
    assert_eq!(offset, part);
    assert!(matches!(again.answer().await, Ok(ToClient::Welcome { wants: Some(1), .. })));
    let rest = ToServer::UpdateRest { header, offset: offset as u64 };
    let mut bytes = frame::encode(&rest, (payload.len() - offset) as u64);
    bytes.extend_from_slice(&payload[offset..]);
    again.send(bytes).await;
    assert_eq!(again.verdict(round).await, Verdict::Accepted);
    assert_eq!(server.wait().code, Some(0));
    assert_eq!(fs::read_dir(&spool).unwrap().count(), 0, "nothing is left behind");
}

/// The bytes that a message of the older version was recorded with, of a device with another id.
fn recorded(name: &str, client: ClientId) -> Vec<u8> {
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/tests/golden/to-server/");
    let text = fs::read_to_string(format!("{golden}{name}.hex")).unwrap();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let mut bytes: Vec<u8> = (0..digits.len() / 2)
        .map(|byte| u8::from_str_radix(&digits[2 * byte..2 * byte + 2], 16).unwrap())
        .collect();
    let id = b"0123456789abcdef";
    if let Some(at) = bytes.windows(id.len()).position(|window| window == id) {
        bytes[at..at + id.len()].copy_from_slice(client.as_bytes());
    }
    let header = Header { message: bytes.len() as u32, payload: 0 };
    [&header.to_bytes()[..], &bytes].concat()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_device_of_the_version_before_takes_part_and_is_sent_nothing_newer() {
    let (directory, in_process) = in_process(1);
    let gate = in_process.gate(0);
    let connect = async || {
        let transport = quinn::TransportConfig::default();
        RawPeer::connect_speaking(
            Protocol::V2,
            in_process.address(),
            in_process.pin(),
            &device_key(1),
            transport,
        )
        .await
        .unwrap()
    };
    let mut peer = connect().await;
    peer.say(&recorded("hello", in_process.client(1))).await;
    assert!(matches!(peer.answer().await, Ok(ToClient::PositionalWelcome { wants: None, .. })));
    peer.say(&recorded("heartbeat", in_process.client(1))).await;
    let held = gate.held();
    let (_, broadcast) = peer.task().await;
    let payload = nothing(&broadcast);
    let stream = begin(&directory, &peer, &payload, payload.len() / 2).await;
    // What is here of its update is of no use to it: it is asked for everything.
    let mut again = connect().await;
    let hello = Hello { samples: 60_000, ..greeting(&in_process, Some(1)) };
    say(&mut again, ToServer::Hello(hello)).await;
    assert!(matches!(again.answer().await, Ok(ToClient::PositionalWelcome { wants: Some(1), .. })));
    drop(stream);
    again.update(update_header(1, 60_000), &payload).await;
    assert_eq!(again.verdict(1).await, Verdict::Accepted);
    held.open();
    assert_eq!(gate.receipt(1), Verdict::Accepted);
    assert_eq!(in_process.end().0, Outcome::Completed);
}

/// A server with these settings, and a device of this version that has said hello to it.
async fn older_device(
    protocol: Protocol,
    settings: &[&str],
) -> (tempfile::TempDir, InProcessServer, RawPeer) {
    let directory = tempfile::tempdir().unwrap();
    let in_process = InProcessServer::start(Scenario::small(settings), &directory.path().join("run"));
    let (key, transport) = (device_key(1), quinn::TransportConfig::default());
    let older =
        RawPeer::connect_speaking(protocol, in_process.address(), in_process.pin(), &key, transport).await;
    let mut older = older.unwrap();
    say(&mut older, ToServer::Hello(greeting(&in_process, None))).await;
    (directory, in_process, older)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn that_an_older_device_cannot_be_asked_for_its_state_is_told() {
    let (_directory, in_process, mut older) =
        older_device(Protocol::V3, &["data.clients=2", "eligibility.max-temperature=80"]).await;
    assert!(matches!(older.answer().await, Ok(ToClient::PositionalWelcome { .. })), "it takes part");
    in_process.remark(&["federation/3", "[eligibility]", "until its edge-client is updated"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_device_is_refused_a_run_that_it_would_train_otherwise() {
    let (_directory, in_process, mut older) = older_device(Protocol::V5, &["training.warmup=2"]).await;
    let refused = older.answer().await;
    assert!(matches!(refused, Ok(ToClient::Refused(_))), "{refused:?}");
    in_process.remark(&["turned away", "federation/5", "update it"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rest_of_something_else_is_refused_and_the_whole_update_taken() {
    let (directory, in_process) = in_process(1);
    let gate = in_process.gate(0);
    let mut peer = connect(&in_process).await;
    peer.join(greeting(&in_process, None)).await;
    let held = gate.held();
    let (_, broadcast) = peer.task().await;
    let payload = nothing(&broadcast);
    let half = payload.len() / 2;
    for wrong in 0..3 {
        let stream = begin(&directory, &peer, &payload, half).await;
        let mut again = connect(&in_process).await;
        say(&mut again, ToServer::Hello(greeting(&in_process, Some(1)))).await;
        let Ok(ToClient::ResumePoint(partial)) = again.answer().await else { panic!("nothing is here") };
        assert!(matches!(again.answer().await, Ok(ToClient::Welcome { .. })));
        drop(stream);
        let (mut header, mut offset, mut rest) = (update_header(1, 10), partial.bytes, payload.len() as u64);
        rest -= partial.bytes;
        match wrong {
            0 => offset -= 1,
            1 => header.report.steps += 1,
            _ => rest += 1,
        }
        again.send(frame::encode(&ToServer::UpdateRest { header, offset }, rest)).await;
        assert!(again.reason().await.contains("the rest of an update that has not begun"), "{wrong}");
        // The bytes that had arrived are deleted with it.
        peer = connect(&in_process).await;
        say(&mut peer, ToServer::Hello(greeting(&in_process, Some(1)))).await;
        assert!(matches!(peer.answer().await, Ok(ToClient::Welcome { .. })));
    }
    peer.update(update_header(1, 10), &payload).await;
    assert_eq!(peer.verdict(1).await, Verdict::Accepted);
    held.open();
    assert_eq!(gate.receipt(1), Verdict::Accepted);
    assert_eq!(in_process.end().0, Outcome::Completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_goes_on_where_its_connection_was_cut() {
    let (_directory, in_process) = in_process(1);
    let gate = in_process.gate(0);
    let mut peer = connect(&in_process).await;
    peer.join(greeting(&in_process, None)).await;
    let held = gate.held();
    let mut stream = peer.connection.accept_uni().await.unwrap();
    let task = stream.read_to_end(64 << 20).await.unwrap();
    let header = Header::parse(*task.first_chunk::<HEADER_LEN>().unwrap(), u64::MAX).unwrap();
    let payload = &task[HEADER_LEN + header.message as usize..];
    peer.connection.close(VarInt::from_u32(0), b"cut");

    // What it says that it has: all but the last bytes, of which nothing has to be sent again; and something else.
    for (beginning, expected) in
        [(payload[..payload.len() - 100].to_vec(), 100), (vec![1; 300_000], payload.len())]
    {
        let mut again = connect(&in_process).await;
        say(&mut again, ToServer::ResumePoint(ResumePoint::of(1, &beginning))).await;
        again.join(greeting(&in_process, None)).await;
        let mut stream = again.connection.accept_uni().await.unwrap();
        let bytes = stream.read_to_end(64 << 20).await.unwrap();
        let header = Header::parse(*bytes.first_chunk::<HEADER_LEN>().unwrap(), u64::MAX).unwrap();
        let (message, sent) = bytes[HEADER_LEN..].split_at(header.message as usize);
        let message: ToClient = frame::decode(message).unwrap();
        assert_eq!(sent, &payload[payload.len() - expected..]);
        if expected == 100 {
            let offset = beginning.len() as u64;
            assert!(matches!(message, ToClient::TaskRest { round: 1, offset: at, .. } if at == offset));
            let whole = [&beginning[..], sent].concat();
            Record::read_from(&mut &whole[..], Limits::default()).unwrap();
        } else {
            assert!(matches!(message, ToClient::Task { round: 1, .. }));
            let record = Record::read_from(&mut &sent[..], Limits::default()).unwrap();
            again.update(update_header(1, 10), &nothing(&record)).await;
            assert_eq!(again.verdict(1).await, Verdict::Accepted);
        }
    }
    held.open();
    assert_eq!(gate.receipt(1), Verdict::Accepted);
    assert_eq!(in_process.end().0, Outcome::Completed);
}

#[test]
fn a_device_whose_address_changes_in_the_middle_of_its_update_goes_on() {
    let (_directory, in_process) = in_process(3);
    let still = in_process.gate(0);
    // A change after every 300 kB: in the middle of each update of 800 kB.
    let relay = Relay::start(in_process.address(), 300_000);
    let share = in_process.scenario().shares[1].clone();
    let moving = Gate::join(relay.address().to_string(), in_process.pin(), &device_key(1), share);
    for round in 1..=3 {
        let held = [still.held(), moving.held()];
        for held in held {
            held.open();
        }
        for client in [&still, &moving] {
            assert_eq!(client.receipt(round), Verdict::Accepted);
        }
    }
    assert!(relay.moves() >= 3, "it moved {} times", relay.moves());
    // Three updates of 800 kB, none of them begun anew: all that is sent twice are datagrams that were lost, more of them
    // where the system gives sockets little room.
    assert!(relay.passed() < 3 * 1_500_000, "{} bytes", relay.passed());
    let said = in_process.said().join("\n");
    assert_eq!(said.matches("says hello").count(), 2, "{said}");
    assert_eq!(in_process.end().0, Outcome::Completed);
}
