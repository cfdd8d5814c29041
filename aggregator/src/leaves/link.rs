//! The link between a leaf and the root: frames in order, both ways, in memory or over one stream of QUIC.
//!
//! ```text
//! offset  size  field
//!      0     4  message length M, little-endian
//!      4     8  payload length P, little-endian
//!     12     M  message (postcard)
//!   12+M     P  payload
//! ```

use bytes::Bytes;
use postcard::ser_flavors::Size;
use postcard::serialize_with_flavor;
use quinn::{ReadExactError, RecvStream, SendStream};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::message::Frame;

/// The largest message: the opening of a round with more than a million devices, where it has 74 bytes for each. State that devices keep, and
/// late updates, take more.
const MAX_MESSAGE: u32 = 128 << 20;
/// The largest payload: the sums of a model of 500 million parameters.
const MAX_PAYLOAD: u64 = 8 << 30;
/// Memory that is made ready for what was announced: it follows what has come beyond that.
const READY: usize = 1 << 20;

/// One end of a link. It is broken when either half is.
#[derive(Debug)]
pub struct Link<Out, In> {
    /// What is sent.
    pub sender: UnboundedSender<Frame<Out>>,
    /// What is received.
    pub receiver: UnboundedReceiver<Frame<In>>,
}

/// Both ends of a link.
#[must_use]
pub fn pair<A, B>() -> (Link<A, B>, Link<B, A>) {
    let (to_second, from_first) = unbounded_channel();
    let (to_first, from_second) = unbounded_channel();
    (Link { sender: to_second, receiver: from_second }, Link { sender: to_first, receiver: from_first })
}

/// Why a link over a network has ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// This side has hung up.
    #[error("closed")]
    Closed,
    /// The network, or the other side.
    #[error("{0}")]
    Read(#[from] ReadExactError),
    /// The network, or the other side.
    #[error("{0}")]
    Write(#[from] quinn::WriteError),
    /// The other side says what this one does not understand.
    #[error(
        "it says what this version does not understand: run the same version on all servers, or the one before"
    )]
    Message,
    /// This side has more to say than a message can hold.
    #[error(
        "a message has {bytes} bytes, and {MAX_MESSAGE} is the most between servers: have fewer devices in the run, or several runs"
    )]
    TooLarge {
        /// Length of the message.
        bytes: usize,
    },
}

/// Carries what `near` is sent over the stream, and what comes over the stream to `near`, until either ends.
pub async fn carry<Out, In>(near: Link<In, Out>, mut send: SendStream, mut receive: RecvStream) -> LinkError
where
    Out: Serialize,
    In: DeserializeOwned,
{
    let Link { sender, mut receiver } = near;
    let outwards = async {
        while let Some(frame) = receiver.recv().await {
            write(&mut send, &frame).await?;
        }
        Err::<(), _>(LinkError::Closed)
    };
    let inwards = async {
        loop {
            let frame = read(&mut receive).await?;
            if sender.send(frame).is_err() {
                return Err::<(), _>(LinkError::Closed);
            }
        }
    };
    let ended = tokio::select! {
        ended = outwards => ended,
        ended = inwards => ended,
    };
    let error = ended.err().unwrap_or(LinkError::Closed);
    if matches!(error, LinkError::Closed) {
        let _ = send.finish();
    }
    error
}

async fn write<M: Serialize>(send: &mut SendStream, frame: &Frame<M>) -> Result<(), LinkError> {
    send.write_chunk(before_payload(frame)?.into()).await?;
    if !frame.payload.is_empty() {
        send.write_chunk(frame.payload.clone()).await?;
    }
    Ok(())
}

/// Refuses a message that the other side would not read.
///
/// # Errors
/// It is too large.
pub fn check_length<M: Serialize>(message: &M) -> Result<(), LinkError> {
    let bytes = serialize_with_flavor(message, Size::default()).map_err(|_| LinkError::Message)?;
    length(bytes).map(|_| ())
}

/// The length of a message that the other side reads.
fn length(bytes: usize) -> Result<u32, LinkError> {
    u32::try_from(bytes).ok().filter(|length| *length <= MAX_MESSAGE).ok_or(LinkError::TooLarge { bytes })
}

/// Both lengths and the message.
fn before_payload<M: Serialize>(frame: &Frame<M>) -> Result<Vec<u8>, LinkError> {
    let lengths = 4 + 8;
    let mut bytes = postcard::to_extend(&frame.message, vec![0; lengths]).map_err(|_| LinkError::Message)?;
    let message = length(bytes.len() - lengths)?;
    bytes[..4].copy_from_slice(&message.to_le_bytes());
    bytes[4..lengths].copy_from_slice(&(frame.payload.len() as u64).to_le_bytes());
    Ok(bytes)
}

async fn read<M: DeserializeOwned>(receive: &mut RecvStream) -> Result<Frame<M>, LinkError> {
    let mut head = [0; 12];
    receive.read_exact(&mut head).await?;
    let [m0, m1, m2, m3, payload @ ..] = head;
    let (message, payload) = (u32::from_le_bytes([m0, m1, m2, m3]), u64::from_le_bytes(payload));
    if message > MAX_MESSAGE || payload > MAX_PAYLOAD {
        return Err(LinkError::Message);
    }
    let message = bytes(receive, u64::from(message)).await?;
    let message = postcard::from_bytes(&message).map_err(|_| LinkError::Message)?;
    Ok(Frame { message, payload: bytes(receive, payload).await? })
}

async fn bytes(receive: &mut RecvStream, length: u64) -> Result<Bytes, LinkError> {
    let length = usize::try_from(length).map_err(|_| LinkError::Message)?;
    let mut bytes = Vec::with_capacity(length.min(READY));
    while bytes.len() < length {
        let left = length - bytes.len();
        match receive.read_chunk(left, true).await.map_err(ReadExactError::from)? {
            Some(chunk) => {
                if bytes.capacity() < length && bytes.len() + chunk.bytes.len() > bytes.capacity() {
                    // The other side has the lab's key, and sends what it announces.
                    bytes.reserve_exact(length.min(4 * bytes.capacity()) - bytes.len());
                }
                bytes.extend_from_slice(&chunk.bytes);
            }
            None => return Err(ReadExactError::FinishedEarly(bytes.len()).into()),
        }
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_the_other_side_would_not_read_is_not_sent() {
        assert_eq!(length(MAX_MESSAGE as usize).ok(), Some(MAX_MESSAGE));
        let refused = length(MAX_MESSAGE as usize + 1).map(|_| ()).unwrap_err().to_string();
        let expected = "a message has 134217729 bytes, and 134217728 is the most between servers: have fewer devices in the run, or \
                        several runs";
        assert_eq!(refused, expected);
        assert!(
            check_length(&"0".repeat(MAX_MESSAGE as usize)).is_err(),
            "the text's own length comes before it"
        );
        assert!(check_length(&"0".repeat(MAX_MESSAGE as usize - 4)).is_ok());
    }
}
