//! The in-memory transport: frames through channels.
//!
//! Messages and payloads are encoded and decoded as by any transport. Only the spool is omitted: an update stays in its
//! client's memory, which is that of this process, until it is folded.
//!
//! Bytes are counted as if every training took the same time, so that the same seed gives the same numbers on a busy machine and on
//! an idle one: an update says how long its training took, in more bytes the longer it was, and heartbeats are sent by the clock.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use edge_client::address_book::Pass;
use edge_client::transport::{Channel, ConnectError, Connector, Incoming, Outgoing};
use serde::Serialize;
use serde::de::DeserializeOwned;
use shared::frame::{self, FrameError, HEADER_LEN, Header};
use shared::message::{TaskHeader, ToClient, ToServer};
use shared::payload::Payload;
use tokio::sync::mpsc;

use crate::coordinator::PeerId;
use crate::peer::{FromPeer, ToPeer};
use crate::run::Upload;
use crate::storage::checksum::write_checked;
use crate::storage::{FileLayer, partial};

/// The time of a training for which its update is counted: as many bytes as any has that takes from 0.3 to 128 seconds.
const COUNTED: Duration = Duration::from_millis(500);

/// Connects simulated clients to the driver of the same process.
#[derive(Clone)]
pub(super) struct MemoryConnector(Arc<Hub>);

struct Hub {
    driver: mpsc::UnboundedSender<FromPeer>,
    max_payload: u64,
    next: AtomicU64,
    spool: Option<Spool>,
}

/// Where updates are received by a process that must have them when it starts again.
pub(super) struct Spool {
    pub(super) files: Arc<dyn FileLayer>,
    pub(super) folder: PathBuf,
}

impl Spool {
    /// Writes an update, durably, as it came.
    fn receive(&self, number: u64, frame: &[u8], payload: &Payload) -> std::io::Result<Upload> {
        let path = self.folder.join(format!("simulated-{number}.update"));
        let written = write_checked(&*self.files, &path, |out| {
            out.write_all(frame)?;
            payload.pieces().iter().try_for_each(|piece| out.write_all(piece))
        });
        if written.is_err() {
            // The next attempt has another name.
            let _ = self.files.remove(&partial(&path));
        }
        written.map(|()| Upload::File(path))
    }
}

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
enum MemoryError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the broadcast cannot be read: {0}")]
    Broadcast(#[from] std::io::Error),
    #[error("an update cannot be written to the spool: {0}")]
    Spool(std::io::Error),
    #[error("the other side has disconnected")]
    Gone,
}

impl MemoryConnector {
    pub(super) fn new(driver: mpsc::UnboundedSender<FromPeer>, max_payload: u64) -> Self {
        Self(Arc::new(Hub { driver, max_payload, next: AtomicU64::new(0), spool: None }))
    }

    /// The same for a process that may also have connections over a network, and receives updates in a spool.
    #[cfg(feature = "cluster")]
    pub(super) fn spooling(driver: mpsc::UnboundedSender<FromPeer>, max_payload: u64, spool: Spool) -> Self {
        /// Numbers of connections that no listener gets to.
        const FIRST: u64 = 1 << 48;
        Self(Arc::new(Hub { driver, max_payload, next: AtomicU64::new(FIRST), spool: Some(spool) }))
    }
}

impl Connector for MemoryConnector {
    async fn connect(&mut self, _: Pass) -> Result<Channel, ConnectError> {
        let hub = self.0.clone();
        let peer = PeerId(hub.next.fetch_add(1, Ordering::Relaxed));
        let (outgoing, mut from_client) = mpsc::unbounded_channel();
        let (to_client, incoming) = mpsc::unbounded_channel();
        let (commands, mut from_driver) = mpsc::unbounded_channel();
        let unreachable = || ConnectError::Unreachable {
            server: "this process".to_owned(),
            reason: "the aggregator stops".to_owned(),
        };
        hub.driver.send(FromPeer::Connected { peer, commands }).map_err(|_| unreachable())?;
        tokio::spawn(async move {
            let (ended, parted) = loop {
                let step = tokio::select! {
                    outgoing = from_client.recv() => match outgoing {
                        None => break ("closed".to_owned(), true),
                        Some(outgoing) => hub.to_server(peer, outgoing),
                    },
                    command = from_driver.recv() => match command {
                        None | Some(ToPeer::Disconnect) => break ("closed".to_owned(), true),
                        Some(command) => hub.to_client(peer, command, &to_client),
                    },
                };
                if let Err(error) = step {
                    break (error.to_string(), false);
                }
            };
            let _ = to_client.send(Incoming::Closed { reason: ended.clone() });
            let _ = hub.driver.send(FromPeer::Disconnected { peer, reason: ended, parted });
        });
        Ok(Channel { server: "this process".to_owned(), elsewhere: false, outgoing, incoming })
    }
}

impl Hub {
    fn to_server(&self, peer: PeerId, outgoing: Outgoing) -> Result<(), MemoryError> {
        let event = match outgoing {
            Outgoing::Message(message) => {
                let (message, bytes) = across(&*message, 0, 0)?;
                let bytes = if matches!(message, ToServer::Heartbeat(_)) { 0 } else { bytes };
                FromPeer::Message { peer, message, bytes, place: None }
            }
            Outgoing::Update(header, payload) => {
                let message = ToServer::Update(*header);
                let (message, _) = across(&message, payload.len() as u64, self.max_payload)?;
                let ToServer::Update(header) = message else { return Err(MemoryError::Gone) };
                let mut counted = header;
                counted.report.duration = COUNTED;
                let counted = frame::encode(&ToServer::Update(counted), payload.len() as u64);
                let bytes = counted.len() as u64 + payload.len() as u64;
                let frame: Bytes = frame::encode(&ToServer::Update(header), payload.len() as u64).into();
                let upload = match &self.spool {
                    None => Upload::Memory { frame, payload },
                    Some(spool) => {
                        let number = self.next.fetch_add(1, Ordering::Relaxed);
                        tokio::task::block_in_place(|| spool.receive(number, &frame, &payload))
                            .map_err(MemoryError::Spool)?
                    }
                };
                FromPeer::Uploaded { peer, header, upload, turn: None, bytes }
            }
        };
        self.driver.send(event).map_err(|_| MemoryError::Gone)
    }

    fn to_client(
        &self,
        peer: PeerId,
        command: ToPeer,
        to_client: &mpsc::UnboundedSender<Incoming>,
    ) -> Result<(), MemoryError> {
        let incoming = match command {
            ToPeer::Message(message) => Incoming::Message(across(&message, 0, 0)?.0),
            ToPeer::Task(delivery) => {
                // Differences lead to these bytes, which all clients share.
                let payload = match delivery.model.read() {
                    Ok(payload) => payload,
                    // Its round has closed and deleted the file: the client will get another task.
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
                    Err(error) => return Err(error.into()),
                };
                let (message, _) = across(&delivery.task(), delivery.length(), u64::MAX)?;
                if let Some(digest) = delivery.digest() {
                    let (message, bytes) = across(&ToServer::Base { digest }, 0, 0)?;
                    let event = FromPeer::Message { peer, message, bytes, place: None };
                    self.driver.send(event).map_err(|_| MemoryError::Gone)?;
                }
                let TaskHeader { round, work, failed, .. } = message.task().ok_or(MemoryError::Gone)?;
                Incoming::Task { round, work, failed, payload }
            }
            ToPeer::Frozen(digest, payload) => {
                let (message, _) = across(&ToClient::Frozen { digest }, payload.len() as u64, u64::MAX)?;
                let ToClient::Frozen { digest } = message else { return Err(MemoryError::Gone) };
                Incoming::Frozen { digest, payload }
            }
            ToPeer::Disconnect => return Ok(()),
        };
        to_client.send(incoming).map_err(|_| MemoryError::Gone)
    }
}

/// Encodes a message as a frame and decodes it again; also returns the length of the frame with its payload.
fn across<M: Serialize + DeserializeOwned>(
    message: &M,
    payload: u64,
    max_payload: u64,
) -> Result<(M, u64), FrameError> {
    let bytes = frame::encode(message, payload);
    let (header, body) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(FrameError::Truncated)?;
    let header = Header::parse(*header, max_payload)?;
    Ok((frame::decode(body)?, bytes.len() as u64 + header.payload))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use shared::message::{Progress, TrainReport, UpdateHeader};
    use shared::payload::Payload;

    use super::*;

    #[test]
    fn bytes_do_not_depend_on_how_long_training_takes() {
        let (driver, mut events) = mpsc::unbounded_channel();
        let hub = Hub { driver, max_payload: 1000, next: AtomicU64::new(0), spool: None };
        let mut counted = |outgoing| {
            hub.to_server(PeerId(1), outgoing).expect("it fits");
            match events.try_recv().expect("it came") {
                FromPeer::Uploaded { header, bytes, .. } => (Some(header.report.duration), bytes),
                FromPeer::Message { bytes, .. } => (None, bytes),
                _ => panic!("neither an update nor a message"),
            }
        };
        let update = |duration| {
            let report = TrainReport { samples: 80, steps: 10, duration, ..TrainReport::default() };
            Outgoing::Update(
                Box::new(UpdateHeader { round: 1, report }),
                Payload::new(vec![Bytes::from_static(&[7; 100])]),
            )
        };
        let times =
            [Duration::ZERO, Duration::from_micros(900), Duration::from_millis(700), Duration::from_hours(2)];
        let all = times.map(|time| counted(update(time)));
        assert_eq!(all.map(|(duration, _)| duration), times.map(Some), "it is told all the same");
        assert!(all.iter().all(|(_, bytes)| *bytes == all[2].1 && *bytes > 100), "{all:?}");
        assert_eq!(counted(Outgoing::Message(Box::new(ToServer::Heartbeat(Progress::default())))), (None, 0));
        assert!(counted(Outgoing::Message(Box::new(ToServer::Goodbye))).1 > 0);
    }
}
