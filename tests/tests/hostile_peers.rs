//! Peers that send anything but what they should, over real QUIC, against a real `serve` with honest clients in it.
//! Each hears what was wrong with it, the honest ones notice nothing, and the rounds count right.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

use std::fs;
use std::path::{Path, PathBuf};

use aggregator::coordinator::Outcome;
use aggregator::quic::limits::{STRANGERS, UPLOADS};
use aggregator::run::directory::RunDirectory;
use federation_tests::gate::Gate;
use federation_tests::hosted::Hosted;
use federation_tests::process::until;
use federation_tests::raw_peer::{RawPeer, hello, reason_of, update_header};
use federation_tests::scenario::Scenario;
use models::{Array, ParamSet, Precision};
use quinn::{ConnectionError, TransportConfig, TransportErrorCode, VarInt};
use shared::frame::{self, HEADER_LEN, Header, MAX_MESSAGE};
use shared::id::ClientId;
use shared::message::{Discard, Hello, Progress, Refusal, Rejection, ToClient, ToServer, Verdict};
use shared::parcel::Parcel;

const SHAPE: [usize; 3] = [1, 28, 28];
/// Samples of every client in these federations.
const SAMPLES: u64 = 10;

/// A federation of so many clients with ten samples each.
fn hosted(clients: u32, overrides: &[&str]) -> (tempfile::TempDir, Hosted) {
    let directory = tempfile::tempdir().unwrap();
    let sizes = [format!("data.clients={clients}"), format!("data.limit={}", 10 * clients)];
    let sizes = sizes.iter().map(String::as_str);
    let overrides: Vec<&str> = sizes.chain(overrides.iter().copied()).collect();
    let hosted = Hosted::start(Scenario::small(&overrides), &directory.path().join("run"));
    (directory, hosted)
}

/// A stranger: its identity is in no simulated federation.
fn stranger(number: u8) -> Hello {
    hello(ClientId::from_bytes([number; 16]), SAMPLES, &SHAPE, 10)
}

/// Two honest clients, held in the first round.
fn honest(hosted: &Hosted) -> [Gate; 2] {
    [hosted.gate(0), hosted.gate(1)]
}

/// The honest two finish `rounds` rounds, in each of which exactly their updates count.
fn assert_finished(hosted: Hosted, gates: &[Gate; 2], held: Vec<federation_tests::gate::Held>, rounds: u32) {
    let mut held = held;
    for round in 1..=rounds {
        for held in held.drain(..) {
            assert_eq!(held.round, round);
            held.open();
        }
        for gate in gates {
            assert_eq!(gate.receipt(round), Verdict::Accepted);
        }
        if round < rounds {
            held = gates.iter().map(Gate::held).collect();
        }
    }
    assert_counts(hosted, &vec![(2, 0, 0); rounds as usize]);
}

/// The run completes with so many updates accepted, rejected and discarded in each round.
fn assert_counts(hosted: Hosted, expected: &[(usize, usize, usize)]) {
    let (outcome, records, model) = hosted.end();
    assert_eq!(outcome, Outcome::Completed);
    let counts: Vec<_> =
        records.iter().map(|round| (round.accepted, round.rejected, round.discarded)).collect();
    assert_eq!(counts, expected);
    assert_eq!(model.first_non_finite(), None);
}

/// A frame around any bytes.
fn frame_of(body: &[u8], payload: u64) -> Vec<u8> {
    [&Header { message: body.len() as u32, payload }.to_bytes()[..], body].concat()
}

/// Frames that no receiver takes, each with what has to be said of it.
fn wrong_frames() -> Vec<(Vec<u8>, &'static str)> {
    let good = frame::encode(&ToServer::Goodbye, 0);
    let with = |position: usize, bytes: &[u8]| {
        let mut frame = good.clone();
        frame[position..position + bytes.len()].copy_from_slice(bytes);
        frame
    };
    vec![
        (b"GET / HTTP/1.1\r\nHost: lab\r\n\r\n".to_vec(), "does not speak this protocol"),
        (with(3, &[9]), "speaks protocol version 9"),
        (with(4, &(MAX_MESSAGE + 1).to_le_bytes()), "a message of 65537 bytes was announced"),
        (with(8, &u64::MAX.to_le_bytes()), "a payload of 18446744073709551615 bytes was announced"),
        (frame_of(&[0xff; 40], 0), "a message of 40 bytes does not decode"),
        (frame_of(&[], 0), "a message of 0 bytes does not decode"),
        (frame_of(&[good[HEADER_LEN], 0], 0), "a message of 2 bytes does not decode"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_frame_closes_the_connection_with_the_reason() {
    let (_directory, hosted) = hosted(2, &["round.count.min=2", "run.rounds=2"]);
    let gates = honest(&hosted);
    let held = gates.iter().map(Gate::held).collect();

    let update = frame::encode(&ToServer::Update(update_header(1, SAMPLES)), 0);
    let mut on_control = wrong_frames();
    on_control.push((frame::encode(&ToServer::Goodbye, 1), "a payload of 1 bytes was announced, at most 0"));
    on_control.push((update, "a message with payload that takes none, or the other way round"));
    for joined in [false, true] {
        for (bytes, reason) in &on_control {
            let mut peer = RawPeer::connect(hosted.address(), hosted.pin()).await;
            if joined {
                peer.join(stranger(7)).await;
            }
            peer.say(bytes).await;
            let said = peer.reason().await;
            assert!(said.contains(reason), "control, joined {joined}: {said:?} instead of {reason:?}");
            hosted.remark(&[reason]);
        }
        // Less than a frame, and then nothing any more.
        for length in [0, 1, HEADER_LEN - 1, HEADER_LEN] {
            let mut peer = RawPeer::connect(hosted.address(), hosted.pin()).await;
            if joined {
                peer.join(stranger(7)).await;
            }
            peer.say(&frame::encode(&ToServer::Goodbye, 0)[..length]).await;
            peer.control.finish().unwrap();
            let said = peer.reason().await;
            assert!(said.contains("stream finished early"), "control, {length} bytes: {said:?}");
        }
    }

    let limit = {
        let parameters = 10 * 784 + 10;
        4 * 4 * parameters + (1 << 20)
    };
    let header = ToServer::Update(update_header(1, SAMPLES));
    let mut on_uploads = wrong_frames();
    on_uploads.push((frame::encode(&header, limit + 1), "bytes was announced, at most"));
    on_uploads.push((
        [frame::encode(&ToServer::Goodbye, 4), vec![0; 4]].concat(),
        "a message with payload that takes none, or the other way round",
    ));
    let half = [frame::encode(&header, 100), vec![0; 50]].concat();
    on_uploads.push((half, "the stream ended inside a frame"));
    on_uploads.push((frame::encode(&header, limit), "the stream ended inside a frame"));
    on_uploads.push((Vec::new(), "stream finished early"));
    on_uploads.push((frame::encode(&header, 9)[..=HEADER_LEN].to_vec(), "stream finished early"));
    for (bytes, reason) in on_uploads {
        let mut peer = RawPeer::connect(hosted.address(), hosted.pin()).await;
        peer.join(stranger(7)).await;
        peer.send(bytes).await;
        let said = peer.reason().await;
        assert!(said.contains(reason), "upload: {said:?} instead of {reason:?}");
        hosted.remark(&[reason]);
    }
    assert_finished(hosted, &gates, held, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_fit_is_refused_with_the_reason() {
    let (_directory, hosted) = hosted(2, &["round.count.min=2", "run.rounds=1"]);
    let gates = honest(&hosted);
    let held = gates.iter().map(Gate::held).collect();
    let id = ClientId::from_bytes([7; 16]);
    let shape = Refusal::Shape { expected: vec![1, 28, 28], found: vec![3, 32, 32] };
    for (hello, refusal) in [
        (hello(id, SAMPLES, &[3, 32, 32], 10), shape),
        (hello(id, SAMPLES, &SHAPE, 100), Refusal::Classes { expected: 10, found: 100 }),
        (hello(id, 0, &SHAPE, 10), Refusal::NoSamples),
    ] {
        let mut peer = RawPeer::connect(hosted.address(), hosted.pin()).await;
        peer.say(&frame::encode(&ToServer::Hello(hello), 0)).await;
        assert_eq!(peer.answer().await.unwrap(), ToClient::Refused(refusal));
        assert_eq!(peer.reason().await, "goodbye");
    }

    let mut twice = RawPeer::connect(hosted.address(), hosted.pin()).await;
    twice.join(stranger(7)).await;
    twice.say(&frame::encode(&ToServer::Hello(stranger(7)), 0)).await;
    match twice.answer().await.unwrap() {
        ToClient::Refused(Refusal::Protocol(reason)) => assert!(reason.contains("hello twice"), "{reason}"),
        other => panic!("{other:?}"),
    }

    // Whoever comes with the identity of another takes its place; the other is told.
    let mut first = RawPeer::connect(hosted.address(), hosted.pin()).await;
    first.join(stranger(8)).await;
    let mut second = RawPeer::connect(hosted.address(), hosted.pin()).await;
    second.join(stranger(8)).await;
    assert_eq!(first.answer().await.unwrap(), ToClient::Refused(Refusal::Replaced));

    // No hello at all: nothing to refuse.
    let mut peer = RawPeer::connect(hosted.address(), hosted.pin()).await;
    peer.say(&frame::encode(&ToServer::Heartbeat(Progress::default()), 0)).await;
    assert_eq!(peer.reason().await, "goodbye");
    assert_finished(hosted, &gates, held, 1);
}

/// An update that fits the model and changes nothing.
fn nothing(broadcast: &Parcel) -> ParamSet {
    broadcast.tensors.zeros_like()
}

fn bytes(tensors: ParamSet) -> Vec<u8> {
    Parcel { tensors, scalars: Vec::new() }.to_bytes(Precision::F32)
}

const WEIGHT: &str = "head.fc.weight";
const BIAS: &str = "head.fc.bias";

/// Everything but one tensor.
fn without(set: &ParamSet, name: &str) -> ParamSet {
    set.iter().filter(|(other, _)| *other != name).map(|(name, array)| (name.to_owned(), array.clone())).fold(
        ParamSet::new(),
        |mut rest, (name, array)| {
            rest.insert(name, array);
            rest
        },
    )
}

/// A payload, the kind of its rejection, and a part of what that says.
type BadPayload = (Vec<u8>, fn(&Rejection) -> bool, &'static str);

/// The payloads of clients that lie or have gone mad.
fn bad_payloads(honest: &ParamSet) -> Vec<BadPayload> {
    let layout = |rejection: &Rejection| matches!(rejection, Rejection::Layout { .. });
    let finite = |rejection: &Rejection| matches!(rejection, Rejection::NotFinite { .. });
    let malformed = |rejection: &Rejection| matches!(rejection, Rejection::Malformed { .. });
    let with = |set: &ParamSet, name: &str, array: Array| {
        let mut set = set.clone();
        set.insert(name, array);
        bytes(set)
    };
    let value = |value: f32| {
        let mut set = honest.clone();
        set.get_mut(WEIGHT).unwrap().values_mut()[783] = value;
        bytes(set)
    };
    let mut cut = bytes(honest.clone());
    cut.truncate(cut.len() - 4);
    vec![
        (bytes(without(honest, BIAS)), layout, BIAS),
        (with(honest, "head.fc.scale", Array::zeros([1])), layout, "head.fc.scale"),
        (with(&without(honest, BIAS), "head.fc.bia", Array::zeros([10])), layout, BIAS),
        (with(honest, WEIGHT, Array::zeros([784, 10])), layout, WEIGHT),
        (with(honest, BIAS, Array::zeros([11])), layout, BIAS),
        (bytes(ParamSet::new()), layout, BIAS),
        (value(f32::NAN), finite, WEIGHT),
        (value(f32::INFINITY), finite, WEIGHT),
        (value(f32::NEG_INFINITY), finite, WEIGHT),
        (value(-1e6), |rejection| matches!(rejection, Rejection::TooLarge { .. }), "1000000"),
        (cut, malformed, "does not decode"),
        (vec![0x7b; 64], malformed, "does not decode"),
        (u64::MAX.to_le_bytes().to_vec(), malformed, "does not decode"),
        (Vec::new(), malformed, "does not decode"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_bad_update_gets_its_verdict_and_none_counts() {
    // Two honest clients, one for each bad payload, two with bad reports, and one that sends all it can think of.
    let bad = bad_payloads(&{
        let mut set = ParamSet::new();
        set.insert(WEIGHT, Array::zeros([10, 784]));
        set.insert(BIAS, Array::zeros([10]));
        set
    });
    let clients = bad.len() as u32 + 5;
    let (_directory, hosted) = hosted(clients, &["round.count.min=3", "run.rounds=2"]);
    let gates = honest(&hosted);
    let mut peers = Vec::new();
    for index in 2..clients {
        let mut peer = RawPeer::connect(hosted.address(), hosted.pin()).await;
        peer.join(hello(hosted.client(index), SAMPLES, &SHAPE, 10)).await;
        peers.push(peer);
    }
    let held: Vec<_> = gates.iter().map(Gate::held).collect();
    let mut many = peers.pop().unwrap();
    let mut reports = peers.split_off(bad.len());
    let (round, broadcast) = many.task().await;
    assert_eq!(round, 1);
    let honest = nothing(&broadcast);

    for (peer, (payload, kind, part)) in peers.iter_mut().zip(&bad) {
        peer.update(update_header(1, SAMPLES), payload).await;
        let Verdict::Rejected(rejection) = peer.verdict(1).await else { panic!("{part} was not rejected") };
        assert!(kind(&rejection) && rejection.to_string().contains(part), "{rejection:?} instead of {part}");
    }
    // Whoever was rejected has no second try in the round.
    peers[0].update(update_header(1, SAMPLES), &bytes(honest.clone())).await;
    assert_eq!(peers[0].verdict(1).await, Verdict::Discarded(Discard::Duplicate));

    reports[0].update(update_header(1, 11), &bytes(honest.clone())).await;
    let samples = Rejection::Samples { declared: 10, reported: 11 };
    assert_eq!(reports[0].verdict(1).await, Verdict::Rejected(samples));
    let mut loss = update_header(1, SAMPLES);
    loss.report.loss = f64::NAN;
    reports[1].update(loss, &bytes(honest.clone())).await;
    let Verdict::Rejected(Rejection::Loss { .. }) = reports[1].verdict(1).await else {
        panic!("NaN is no loss")
    };

    // Who came after the round had opened.
    let mut stranger_in = RawPeer::connect(hosted.address(), hosted.pin()).await;
    stranger_in.join(stranger(7)).await;
    stranger_in.update(update_header(1, SAMPLES), &bytes(honest.clone())).await;
    assert_eq!(stranger_in.verdict(1).await, Verdict::Rejected(Rejection::NotInCohort { round: 1 }));

    // A round that never was, a good update, and the same again.
    many.update(update_header(9, SAMPLES), &bytes(honest.clone())).await;
    let Verdict::Rejected(Rejection::UnknownRound { round: 9, .. }) = many.verdict(9).await else {
        panic!("there is no round 9")
    };
    many.update(update_header(1, SAMPLES), &bytes(honest.clone())).await;
    assert_eq!(many.verdict(1).await, Verdict::Accepted);
    many.update(update_header(1, SAMPLES), &bytes(honest.clone())).await;
    assert_eq!(many.verdict(1).await, Verdict::Discarded(Discard::Duplicate));

    drop((peers, reports, stranger_in));
    for held in held {
        held.open();
    }
    for gate in &gates {
        assert_eq!(gate.receipt(1), Verdict::Accepted);
    }
    let (round, _) = many.task().await;
    assert_eq!(round, 2);
    let held: Vec<_> = gates.iter().map(Gate::held).collect();
    many.update(update_header(1, SAMPLES), &bytes(honest.clone())).await;
    assert_eq!(many.verdict(1).await, Verdict::Discarded(Discard::Late));
    many.update(update_header(2, SAMPLES), &bytes(honest)).await;
    assert_eq!(many.verdict(2).await, Verdict::Accepted);
    for held in held {
        held.open();
    }
    let (outcome, records, model) = hosted.end();
    assert_eq!(outcome, Outcome::Completed);
    let counts: Vec<_> =
        records.iter().map(|round| (round.accepted, round.rejected, round.discarded)).collect();
    assert_eq!(counts, [(3, bad.len() + 4, 2), (3, 0, 1)]);
    assert_eq!(records[0].sampled, clients as usize);
    assert_eq!(model.first_non_finite(), None);
    assert!(model.distance(&broadcast.tensors).unwrap() > 0.01, "the honest two have trained it");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_says_nothing_is_sent_away_and_holds_nothing_up() {
    let (_directory, hosted) = hosted(2, &["round.count.min=2", "run.rounds=1"]);
    let mute = RawPeer::connect(hosted.address(), hosted.pin()).await;
    let gates = honest(&hosted);
    let held = gates.iter().map(Gate::held).collect();
    assert_eq!(mute.reason().await, "it did not say hello in time");
    hosted.remark(&["it did not say hello in time"]);
    let still_mute = RawPeer::connect(hosted.address(), hosted.pin()).await;
    assert_finished(hosted, &gates, held, 1);
    // It is told that the aggregator stops, or at least cut off.
    still_mute.closed().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_signs_of_life_drowns_nobody() {
    const FLOOD: usize = 50_000;
    let (_directory, hosted) = hosted(2, &["round.count.min=2", "run.rounds=1"]);
    let gates = honest(&hosted);
    let held = gates.iter().map(Gate::held).collect();
    let mut peer = RawPeer::connect(hosted.address(), hosted.pin()).await;
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
    assert_finished(hosted, &gates, held, 1);
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
async fn nobody_uploads_before_the_welcome() {
    let (_directory, hosted) = hosted(2, &["round.count.min=2", "run.rounds=1"]);
    let gates = honest(&hosted);
    let held = gates.iter().map(Gate::held).collect();
    let mut peer = RawPeer::connect(hosted.address(), hosted.pin()).await;
    let connection = peer.connection.clone();
    let stream = connection.open_uni();
    tokio::pin!(stream);
    let opened = tokio::select! {
        biased;
        _ = &mut stream => true,
        () = std::future::ready(()) => false,
    };
    assert!(!opened, "a stranger may open no stream for an upload");
    peer.join(stranger(7)).await;
    stream.await.expect("whoever was welcomed may");
    assert_finished(hosted, &gates, held, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_uploads_that_come_to_a_halt_wait_for_their_turn_and_lose_it() {
    let signs = ["connection.heartbeat=0.25", "connection.lost-after=2"];
    let (directory, hosted) = hosted(2, &[&["round.count.min=2", "run.rounds=1"][..], &signs].concat());
    let spool = spool(&directory);
    let gates = honest(&hosted);
    let held: Vec<_> = gates.iter().map(Gate::held).collect();
    let mut halted = Vec::new();
    for number in 0..UPLOADS as u8 + 3 {
        // The last three would be done in no time, if they had their turn.
        let (announced, sent) = if usize::from(number) < UPLOADS { (100_000, 50_000) } else { (4, 4) };
        let mut peer = RawPeer::connect(hosted.address(), hosted.pin()).await;
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
    // Whoever comes now is heard, and in the meantime nobody else has begun to upload.
    for number in 100..105 {
        RawPeer::connect(hosted.address(), hosted.pin()).await.join(stranger(number)).await;
    }
    assert_eq!(files(&spool), UPLOADS);
    // The honest two wait like everyone else, until those before them have been sent away.
    for held in held {
        held.open();
    }
    for gate in &gates {
        assert_eq!(gate.receipt(1), Verdict::Accepted);
    }
    assert_counts(hosted, &[(2, 3, 0)]);
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
    let (directory, hosted) = hosted(2, &["round.count.min=2", "run.rounds=1"]);
    let spool = spool(&directory);
    let gates = honest(&hosted);
    let held: Vec<_> = gates.iter().map(Gate::held).collect();
    // Not the disk's fault, and it passes: as too many open files do.
    fs::remove_dir(&spool).unwrap();
    fs::write(&spool, "").unwrap();
    for held in held {
        held.open();
    }
    hosted.remark(&["cannot write updates to", spool.to_str().unwrap(), "Not a directory"]);
    hosted.remark(&["says hello"]);
    hosted.remark(&["says hello"]);
    hosted.remark(&["says hello"]);
    fs::remove_file(&spool).unwrap();
    fs::create_dir(&spool).unwrap();
    for gate in &gates {
        assert_eq!(gate.receipt(1), Verdict::Accepted);
    }
    let more = hosted.said();
    // Between the file and the folder there is a moment without either, which is another thing to say.
    let again = |text: &String| text.contains("cannot write updates to") && text.contains("Not a directory");
    assert!(!more.iter().any(again), "it was said once: {more:#?}");
    assert_counts(hosted, &[(2, 0, 0)]);
}

/// A peer that takes so little in that no task gets through, and allows so many streams for tasks.
fn narrow(window: u32, tasks: u32) -> TransportConfig {
    let mut transport = TransportConfig::default();
    transport.receive_window(VarInt::from_u32(window)).max_concurrent_uni_streams(VarInt::from_u32(tasks));
    transport
}

/// Tries to connect, and is refused for want of a place.
async fn assert_turned_away(hosted: &Hosted) {
    match RawPeer::connect_as(hosted.address(), hosted.pin(), TransportConfig::default()).await {
        Err(ConnectionError::ConnectionClosed(close)) => {
            assert_eq!(close.error_code, TransportErrorCode::CONNECTION_REFUSED);
        }
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("there was a place"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_have_few_places_until_they_are_welcome() {
    let (_directory, hosted) = hosted(2, &["round.count.min=2", "run.rounds=1"]);
    let gates = honest(&hosted);
    let held = gates.iter().map(Gate::held).collect();
    let mut strangers = Vec::new();
    for _ in 0..STRANGERS {
        strangers.push(RawPeer::connect(hosted.address(), hosted.pin()).await);
    }
    assert_turned_away(&hosted).await;
    hosted.remark(&["turned a connection away"]);
    assert_turned_away(&hosted).await;
    strangers[0].join(stranger(7)).await;
    let _another = RawPeer::connect(hosted.address(), hosted.pin()).await;
    assert_turned_away(&hosted).await;
    assert_finished(hosted, &gates, held, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_so_many_places_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let overrides = ["data.clients=2", "data.limit=20", "round.count.min=2", "run.rounds=1"];
    let root = directory.path().join("run");
    let hosted = Hosted::start_with(Scenario::small(&overrides), &root, |listener| listener.with_places(3));
    let gates = honest(&hosted);
    let held = gates.iter().map(Gate::held).collect();
    let mut third = RawPeer::connect(hosted.address(), hosted.pin()).await;
    third.join(stranger(7)).await;
    assert_turned_away(&hosted).await;
    hosted.remark(&["turned a connection away", "3 places"]);
    // It has its place until it is gone.
    third.connection.close(VarInt::from_u32(0), b"");
    hosted.remark(&["disconnected"]);
    let mut fourth = Err(ConnectionError::TimedOut);
    for _ in 0..1000 {
        if fourth.is_err() {
            fourth = RawPeer::connect_as(hosted.address(), hosted.pin(), TransportConfig::default()).await;
        }
    }
    fourth.unwrap_or_else(|error| panic!("{error}")).join(stranger(8)).await;
    assert_finished(hosted, &gates, held, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_takes_nothing_of_its_task_is_sent_away() {
    // A task that fits into the send window, and one that does not.
    for model in ["linear", "mlp-2nn"] {
        let model = format!("model.name={model}");
        let lost = ["connection.heartbeat=0.25", "connection.lost-after=1"];
        let rounds = ["round.count.min=2", "round.start=3", "run.rounds=1"];
        let (_directory, hosted) = hosted(3, &[&[&model[..]][..], &lost, &rounds].concat());
        let mut deaf = RawPeer::connect_as(hosted.address(), hosted.pin(), narrow(2000, 10)).await.unwrap();
        deaf.join(hello(hosted.client(2), SAMPLES, &SHAPE, 10)).await;
        let gates = honest(&hosted);
        let held = gates.iter().map(Gate::held).collect();
        assert_eq!(reason_of(deaf.stays().await), "it takes nothing of what it is sent");
        assert_finished(hosted, &gates, held, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_falls_behind_is_sent_the_newest_task_alone() {
    const ROUNDS: u32 = 6;
    let rounds = ["round.count.min=2", "round.count.max=2", "round.start=3", "run.rounds=6"];
    let (_directory, hosted) = hosted(3, &[&rounds[..], &["connection.lost-after=60"]].concat());
    let mut slow = RawPeer::connect_as(hosted.address(), hosted.pin(), narrow(1 << 20, 0)).await.unwrap();
    slow.join(hello(hosted.client(2), SAMPLES, &SHAPE, 10)).await;
    let gates = honest(&hosted);
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
        let ToClient::Task { round } = message else { panic!("{message:?} is no task") };
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
    assert_counts(hosted, &[(2, 0, 0); ROUNDS as usize]);
}
