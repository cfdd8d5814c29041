//! Framing of messages: a 16-byte header, a postcard message and an optional payload.
//!
//! ```text
//! offset  size  field
//!      0     3  magic "FL\n"
//!      3     1  protocol version
//!      4     4  message length M, little-endian
//!      8     8  payload length P, little-endian; 0 = no payload
//!     16     M  message (postcard)
//!   16+M     P  payload (a record: safetensors)
//! ```
//!
//! Both lengths are checked against limits before anything is allocated. The header is the same in all versions of the
//! protocol, so that a peer of another version is recognised as such.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// First bytes of every frame.
pub const MAGIC: [u8; 3] = *b"FL\n";
/// The version of the framing. The version of the messages is negotiated in the handshake ([`Protocol`](crate::protocol::Protocol)).
pub const VERSION: u8 = 3;
/// Length of the header.
pub const HEADER_LEN: usize = 16;
/// Largest message: a `Welcome` with a network of a thousand layers of 60 bytes fits.
pub const MAX_MESSAGE: u32 = 64 * 1024;

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Length of the message in bytes, at most [`MAX_MESSAGE`].
    pub message: u32,
    /// Length of the payload in bytes; 0 if there is none.
    pub payload: u64,
}

/// The bytes are not a valid frame, which is always the peer's fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The peer does not speak this protocol.
    #[error("the peer does not speak this protocol (it sent {found:02x?} first)")]
    Magic {
        /// The first bytes that it sent.
        found: [u8; 3],
    },
    /// The peer speaks another version of this protocol.
    #[error("the peer speaks protocol version {found}, this build speaks {VERSION}: update the older side")]
    Version {
        /// The peer's version.
        found: u8,
    },
    /// The message is too long.
    #[error("a message of {found} bytes was announced, at most {MAX_MESSAGE} are taken")]
    MessageTooLong {
        /// The announced length.
        found: u32,
    },
    /// The payload is too long.
    #[error("a payload of {found} bytes was announced, at most {limit} are taken here")]
    PayloadTooLong {
        /// The announced length.
        found: u64,
        /// The receiver's limit.
        limit: u64,
    },
    /// The message does not decode.
    #[error("a message of {length} bytes does not decode")]
    Message {
        /// The message's length.
        length: usize,
    },
    /// The stream ended inside a frame.
    #[error("the stream ended inside a frame")]
    Truncated,
}

impl Header {
    /// Parses a header. `max_payload` is the receiver's current limit.
    pub fn parse(bytes: [u8; HEADER_LEN], max_payload: u64) -> Result<Self, FrameError> {
        let [m0, m1, m2, version, l0, l1, l2, l3, payload @ ..] = bytes;
        if [m0, m1, m2] != MAGIC {
            return Err(FrameError::Magic { found: [m0, m1, m2] });
        }
        if version != VERSION {
            return Err(FrameError::Version { found: version });
        }
        let message = u32::from_le_bytes([l0, l1, l2, l3]);
        if message > MAX_MESSAGE {
            return Err(FrameError::MessageTooLong { found: message });
        }
        let payload = u64::from_le_bytes(payload);
        if payload > max_payload {
            return Err(FrameError::PayloadTooLong { found: payload, limit: max_payload });
        }
        Ok(Self { message, payload })
    }

    /// The header's bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..3].copy_from_slice(&MAGIC);
        bytes[3] = VERSION;
        bytes[4..8].copy_from_slice(&self.message.to_le_bytes());
        bytes[8..].copy_from_slice(&self.payload.to_le_bytes());
        bytes
    }
}

/// The header and message of a frame, for a payload of `payload` bytes.
///
/// # Panics
/// If the message is longer than [`MAX_MESSAGE`]. Configurations with such messages are refused.
#[must_use]
pub fn encode<M: Serialize>(message: &M, payload: u64) -> Vec<u8> {
    let body = postcard::to_stdvec(message).expect("messages are plain enums, which postcard encodes");
    assert!(body.len() <= MAX_MESSAGE as usize, "configurations with longer messages are refused");
    let mut frame = Header { message: body.len() as u32, payload }.to_bytes().to_vec();
    frame.extend_from_slice(&body);
    frame
}

/// Decodes a frame's message, which must use all of `body`.
pub fn decode<M: DeserializeOwned>(body: &[u8]) -> Result<M, FrameError> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        _ => Err(FrameError::Message { length: body.len() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Discard, Progress, ToClient, ToServer, Verdict};
    use proptest::prelude::*;

    fn header(bytes: &[u8]) -> Result<Header, FrameError> {
        Header::parse(bytes[..HEADER_LEN].try_into().expect("sixteen bytes"), 1000)
    }

    #[test]
    fn golden_bytes() {
        let frame = encode(&ToClient::Receipt { round: 300, verdict: Verdict::Discarded(Discard::Late) }, 0);
        assert_eq!(frame, [b'F', b'L', b'\n', 3, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0xac, 0x02, 2, 0]);
        let frame = encode(&ToServer::Heartbeat(Progress { round: Some(2), done: 5, total: 9 }), 258);
        assert_eq!(frame, [b'F', b'L', b'\n', 3, 5, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 1, 1, 2, 5, 9]);
    }

    #[test]
    fn each_malformed_header_has_its_error() {
        let good = encode(&ToServer::Goodbye, 1000);
        assert_eq!(header(&good), Ok(Header { message: 1, payload: 1000 }));

        let mut bytes = good.clone();
        bytes[0] = b'G';
        assert_eq!(header(&bytes), Err(FrameError::Magic { found: *b"GL\n" }));

        let mut bytes = good.clone();
        bytes[3] = 9;
        assert_eq!(header(&bytes), Err(FrameError::Version { found: 9 }));

        let mut bytes = good.clone();
        bytes[4..8].copy_from_slice(&(MAX_MESSAGE + 1).to_le_bytes());
        assert_eq!(header(&bytes), Err(FrameError::MessageTooLong { found: MAX_MESSAGE + 1 }));

        let mut bytes = good;
        bytes[8..16].copy_from_slice(&1001u64.to_le_bytes());
        assert_eq!(header(&bytes), Err(FrameError::PayloadTooLong { found: 1001, limit: 1000 }));
    }

    #[test]
    fn messages_must_be_used_up() {
        let frame = encode(&ToServer::Goodbye, 0);
        let body = &frame[HEADER_LEN..];
        assert_eq!(decode::<ToServer>(body), Ok(ToServer::Goodbye));
        assert_eq!(decode::<ToServer>(&[body, &[0]].concat()), Err(FrameError::Message { length: 2 }));
        assert_eq!(decode::<ToServer>(&[]), Err(FrameError::Message { length: 0 }));
    }

    proptest! {
        #[test]
        fn garbage_never_panics(header_bytes: [u8; HEADER_LEN], body in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Header::parse(header_bytes, u64::MAX);
            let _ = decode::<ToServer>(&body);
            let _ = decode::<ToClient>(&body);
        }

        #[test]
        fn headers_round_trip(message in 0..=MAX_MESSAGE, payload: u64) {
            let header = Header { message, payload };
            prop_assert_eq!(Header::parse(header.to_bytes(), u64::MAX), Ok(header));
        }
    }
}
