//! Malformed input: frames, hellos, updates.

use aggregator::coordinator::Outcome;
use federation_tests::gate::Gate;
use federation_tests::keys::device_key;
use federation_tests::raw_peer::{RawPeer, hello, update_header};
use models::compression::{Compression, Format};
use models::{Array, ParamSet, Precision};
use shared::frame::{self, HEADER_LEN, Header, MAX_MESSAGE};
use shared::message::{Discard, Progress, Refusal, Rejection, ToClient, ToServer, Verdict};
use shared::record::Record;
use shared::ticket::TicketSecret;

use super::{SAMPLES, SHAPE, assert_finished, honest, in_process, stranger, stranger_key};

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
    let (_directory, in_process) = in_process(2, &["round.min-updates=2", "run.rounds=2"]);
    let gates = honest(&in_process);
    let held = gates.iter().map(Gate::held).collect();

    let update = frame::encode(&ToServer::Update(update_header(1, SAMPLES)), 0);
    let mut on_control = wrong_frames();
    on_control.push((frame::encode(&ToServer::Goodbye, 1), "a payload of 1 bytes was announced, at most 0"));
    on_control.push((update, "a message with payload that takes none, or the other way round"));
    for joined in [false, true] {
        for (bytes, reason) in &on_control {
            let mut peer = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(7)).await;
            if joined {
                peer.join(stranger(7)).await;
            }
            peer.say(bytes).await;
            let said = peer.reason().await;
            assert!(said.contains(reason), "control, joined {joined}: {said:?} instead of {reason:?}");
            // Unknown peers are reported to the operator once a minute.
            if joined {
                in_process.remark(&[reason]);
            }
        }
        // Less than a frame, and then nothing any more.
        for length in [0, 1, HEADER_LEN - 1, HEADER_LEN] {
            let mut peer = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(7)).await;
            if joined {
                peer.join(stranger(7)).await;
            }
            peer.say(&frame::encode(&ToServer::Goodbye, 0)[..length]).await;
            peer.control.finish().unwrap();
            let said = peer.reason().await;
            let leaves = joined && length == 0;
            let reason = if leaves { "the device left" } else { "stream finished early" };
            assert!(said.contains(reason), "control, {length} bytes: {said:?}");
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
        let mut peer = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(7)).await;
        peer.join(stranger(7)).await;
        peer.send(bytes).await;
        let said = peer.reason().await;
        assert!(said.contains(reason), "upload: {said:?} instead of {reason:?}");
        in_process.remark(&[reason]);
    }
    assert_finished(in_process, &gates, held, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_fit_is_refused_with_the_reason() {
    let (_directory, in_process) = in_process(2, &["round.min-updates=2", "run.rounds=1"]);
    let gates = honest(&in_process);
    let held = gates.iter().map(Gate::held).collect();
    let id = stranger_key(7).public().client();
    let shape = Refusal::Shape { expected: vec![1, 28, 28], found: vec![3, 32, 32] };
    for (hello, refusal) in [
        (hello(id, SAMPLES, &[3, 32, 32], 10), shape),
        (hello(id, SAMPLES, &SHAPE, 100), Refusal::Classes { expected: 10, found: 100 }),
        (hello(id, 0, &SHAPE, 10), Refusal::NoSamples),
    ] {
        let mut peer = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(7)).await;
        peer.say(&frame::encode(&ToServer::Hello(hello), 0)).await;
        assert_eq!(peer.answer().await.unwrap(), ToClient::Refused(refusal));
        assert_eq!(peer.reason().await, "goodbye");
    }

    let mut twice = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(7)).await;
    twice.join(stranger(7)).await;
    twice.say(&frame::encode(&ToServer::Hello(stranger(7)), 0)).await;
    match twice.answer().await.unwrap() {
        ToClient::Refused(Refusal::Protocol(reason)) => assert!(reason.contains("hello twice"), "{reason}"),
        other => panic!("{other:?}"),
    }

    // A peer with the identity of another one replaces it; the other is told.
    let mut first = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(8)).await;
    first.join(stranger(8)).await;
    let mut second = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(8)).await;
    second.join(stranger(8)).await;
    assert_eq!(first.answer().await.unwrap(), ToClient::Refused(Refusal::Replaced));

    // The id of another, without its key.
    let mut thief = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(9)).await;
    thief.say(&frame::encode(&ToServer::Hello(stranger(8)), 0)).await;
    let known = stranger_key(9).public().client();
    assert_eq!(thief.answer().await.unwrap(), ToClient::Refused(Refusal::Identity { known }));
    assert_eq!(thief.reason().await, "refused");

    // A ticket comes before the hello, and once.
    let ticket = frame::encode(&ToServer::Redeem(TicketSecret::from_bytes([0; 16])), 0);
    let mut late = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(10)).await;
    late.join(stranger(10)).await;
    late.say(&ticket).await;
    assert!(matches!(late.answer().await.unwrap(), ToClient::Refused(Refusal::Protocol(_))));
    let mut twice = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(10)).await;
    twice.say(&ticket.repeat(2)).await;
    assert_eq!(twice.reason().await, "it said something else before hello");

    // No hello at all: nothing to refuse.
    let mut peer = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(7)).await;
    peer.say(&frame::encode(&ToServer::Heartbeat(Progress::default()), 0)).await;
    assert_eq!(peer.reason().await, "it said something else before hello");
    assert_finished(in_process, &gates, held, 1);
}

/// An update that fits the model and changes nothing.
fn nothing(broadcast: &Record) -> ParamSet {
    broadcast.tensors.zeros_like()
}

fn bytes(tensors: ParamSet) -> Vec<u8> {
    Record { tensors, ..Record::default() }.to_bytes(Precision::F32)
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
    let compression = Compression { format: Format::Int8, sparse: false, seed: [1; 32] };
    let compressed =
        Record { tensors: honest.clone(), ..Record::default() }.to_compressed(&compression, &|_| false);
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
        (value(-1e6), |rejection| matches!(rejection, Rejection::TooLarge { .. }), "1.000e6"),
        // The run has no compressed updates: some of its parts could not read one.
        (compressed, malformed, "holds I8 values"),
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
    let (_directory, in_process) = in_process(clients, &["round.min-updates=3", "run.rounds=2"]);
    let gates = honest(&in_process);
    let mut peers = Vec::new();
    for index in 2..clients {
        let mut peer = RawPeer::connect(in_process.address(), in_process.pin(), &device_key(index)).await;
        peer.join(hello(in_process.client(index), SAMPLES, &SHAPE, 10)).await;
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
    // A rejected client has no second try in the round.
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
    let mut stranger_in = RawPeer::connect(in_process.address(), in_process.pin(), &stranger_key(7)).await;
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
    let (outcome, records, model) = in_process.end();
    assert_eq!(outcome, Outcome::Completed);
    let counts: Vec<_> =
        records.iter().map(|round| (round.accepted, round.rejected, round.discarded)).collect();
    assert_eq!(counts, [(3, bad.len() + 4, 2), (3, 0, 1)]);
    assert_eq!(records[0].sampled, clients as usize);
    assert_eq!(model.first_non_finite(), None);
    assert!(model.distance(&broadcast.tensors).unwrap() > 0.01, "the honest two have trained it");
}
