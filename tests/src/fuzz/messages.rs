//! Frames, messages of both directions, and resume points of transfers.

use std::fs;
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use shared::algorithm::registry;
use shared::frame::{self, FrameError, HEADER_LEN, Header, MAX_MESSAGE};
use shared::message::{ResumePoint, ToClient, ToServer};
use shared::protocol::Protocol;
use shared::spec::SpecText;

use super::Seen;

/// What a receiver takes at this moment, as a payload.
const MAX_PAYLOAD: u64 = 1 << 30;

/// A whole frame.
///
/// # Panics
/// If a header or a message does not come back as it was.
#[must_use]
pub fn frame(bytes: &[u8]) -> Seen {
    let Some((first, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else { return Seen::of(&"short") };
    let header = match Header::parse(*first, MAX_PAYLOAD) {
        Ok(header) => header,
        Err(error) => return Seen::of(&error),
    };
    assert_eq!(header.to_bytes(), *first);
    assert!(header.message <= MAX_MESSAGE && header.payload <= MAX_PAYLOAD);
    let Some(body) = rest.get(..header.message as usize) else { return Seen::of(&"cut") };
    Seen::of(&(again::<ToServer>(body).is_ok(), again::<ToClient>(body).is_ok()))
}

/// Decodes; what decodes is the same when it is sent on.
fn again<M: Serialize + DeserializeOwned>(body: &[u8]) -> Result<M, FrameError> {
    let message: M = frame::decode(body)?;
    let sent = frame::encode(&message, 0);
    let heard: M = frame::decode(&sent[HEADER_LEN..]).expect("what was decoded can be sent");
    // By bytes: a loss may be no number, which is unequal to itself.
    assert_eq!(frame::encode(&heard, 0), sent);
    Ok(message)
}

/// A message to the server.
///
/// # Panics
/// If it changes on the way.
#[must_use]
pub fn to_server(body: &[u8]) -> Seen {
    match again::<ToServer>(body) {
        Err(error) => Seen::of(&error),
        Ok(message) => {
            assert!(Protocol::SPOKEN.contains(&message.since()));
            if let ToServer::Update(header) | ToServer::UpdateRest { header, .. } = &message {
                for metric in header.report.metrics.iter().flatten() {
                    assert!(metric.values().all(|(name, _)| !name.is_empty()));
                }
            }
            Seen::of(&message)
        }
    }
}

/// A message to a device, as peers of every version are sent it.
///
/// # Panics
/// If it changes on the way, or an older peer is sent what it does not know.
#[must_use]
pub fn to_client(body: &[u8]) -> Seen {
    match again::<ToClient>(body) {
        Err(error) => Seen::of(&error),
        Ok(message) => {
            for version in Protocol::SPOKEN {
                if let Some(told) = message.clone().for_peer(version) {
                    assert!(told.since() <= version);
                    assert!(frame::encode(&told, 0).len() <= HEADER_LEN + MAX_MESSAGE as usize);
                }
            }
            match message {
                ToClient::Welcome { spec, .. } => {
                    let read = registry::read_spec(&spec);
                    if let Ok(spec) = &read {
                        let told = SpecText::of(spec);
                        assert_eq!(SpecText::of(&told.read().expect("its own text")), told);
                    }
                    Seen::result(&read)
                }
                ToClient::PositionalWelcome { spec, .. } => {
                    let read = spec.into_spec();
                    if let Ok(spec) = &read {
                        drop(SpecText::of(spec));
                    }
                    Seen::result(&read)
                }
                other => Seen::of(&other),
            }
        }
    }
}

/// A byte for the length of a device's word on the beginning of a payload, that word, then the payload.
///
/// # Panics
/// If a beginning is believed that is none, or the true one is not.
#[must_use]
pub fn partial(bytes: &[u8]) -> Seen {
    let Some((&length, rest)) = bytes.split_first() else { return Seen::of(&"empty") };
    let (said, payload) = rest.split_at(rest.len().min(usize::from(length)));
    let Ok(said) = frame::decode::<ResumePoint>(said) else { return Seen::of(&"no word") };
    let offset = said.offset_in(said.round, payload);
    assert!(offset.is_none_or(|offset| offset < payload.len() && offset as u64 == said.bytes));
    assert_eq!(said.offset_in(said.round.wrapping_add(1), payload), None, "of another round");
    let half = ResumePoint::of(said.round, &payload[..payload.len() / 2]);
    assert_eq!(half.offset_in(said.round, payload), (!payload.is_empty()).then_some(payload.len() / 2));
    assert_eq!(ResumePoint::of(said.round, payload).offset_in(said.round, payload), None, "all of it");
    Seen::of(&offset)
}

/// Words that are true, false, and of a payload that is longer.
#[must_use]
pub fn partials() -> Vec<Vec<u8>> {
    let payload = [7_u8; 300];
    [&payload[..], &payload[..100], &[0; 100], &[7; 400]]
        .map(|beginning| {
            let said = frame::encode(&ResumePoint::of(300, beginning), 0).split_off(HEADER_LEN);
            [&[said.len() as u8][..], &said, &payload].concat()
        })
        .into()
}

/// The golden messages of a direction, without the headers of their frames.
fn golden(direction: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/tests/golden")).join(direction);
    let entries = fs::read_dir(folder).expect("the golden messages lie there");
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    let read = |path| {
        let text: String = fs::read_to_string(path).expect("text");
        let digits: Vec<u8> =
            text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    };
    paths.iter().map(read).collect()
}

/// Every message to the server.
#[must_use]
pub fn to_server_seeds() -> Vec<Vec<u8>> {
    golden("to-server")
}

/// Every message to a device.
#[must_use]
pub fn to_client_seeds() -> Vec<Vec<u8>> {
    golden("to-client")
}

/// Every message as a frame.
#[must_use]
pub fn frames() -> Vec<Vec<u8>> {
    let framed = |body: Vec<u8>| {
        let header = Header { message: body.len() as u32, payload: 0 };
        [&header.to_bytes()[..], &body].concat()
    };
    [golden("to-server"), golden("to-client")].concat().into_iter().map(framed).collect()
}
