//! The send queue of a peer: messages in order on the control stream, and the newest task on a stream of its own.
//!
//! Commands of the driver are accepted at once, however slow the network is. A peer that does not read costs a bounded number
//! of messages and one task, is not sent tasks of rounds that have closed meanwhile, and is disconnected when the driver
//! says so or when it has read nothing for the listener's timeout.

use std::time::Duration;

use bytes::Bytes;
use quinn::{SendStream, VarInt};
use shared::frame;
use shared::message::{ResumePoint, ToClient};
use tokio::sync::{mpsc, watch};

use super::connection::{Peer, PeerError, within};
use super::limits::{MIN_PROGRESS, SEND_WINDOW, UNSENT_MESSAGES};
use super::preauth::PreauthSlot;
use super::source::Source;
use crate::peer::{FromPeer, ToPeer};
use crate::run::Delivery;

/// How long a connection that is being closed may take to deliver its last messages.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

impl Peer {
    /// Carries commands out until the driver closes the connection or hangs up. Returns whether the peer has received everything
    /// that was sent until then.
    pub(super) async fn send_queued(
        &self,
        mut queue: mpsc::UnboundedReceiver<ToPeer>,
        control: SendStream,
        partial: Option<ResumePoint>,
        slot: PreauthSlot,
    ) -> Result<bool, PeerError> {
        let (messages, waiting) = mpsc::channel(UNSENT_MESSAGES);
        let (newest, tasks) = watch::channel(None);
        // The driver sends them once.
        let (frozen, wanted) = mpsc::channel(1);
        let dismissed = async {
            let mut slot = Some(slot);
            while let Some(command) = queue.recv().await {
                match command {
                    ToPeer::Message(message) => {
                        if matches!(message, ToClient::Welcome { .. }) {
                            slot = None;
                            // One upload at a time, from now on.
                            self.connection.set_max_concurrent_uni_streams(VarInt::from_u32(1));
                        }
                        let protocol = self.protocol();
                        let asks = matches!(message, ToClient::Conditions(_));
                        let welcomes = matches!(message, ToClient::Welcome { .. });
                        let message = message.for_peer(protocol);
                        let refused = welcomes && matches!(message, Some(ToClient::Refused(_)));
                        if refused || (asks && message.is_none()) {
                            self.tell(FromPeer::Outdated { peer: self.id, protocol, refused })?;
                        }
                        if let Some(message) = message {
                            let frame = frame::encode(&message, 0);
                            messages.try_send(frame).map_err(|_| PeerError::NotReading)?;
                        }
                        if welcomes && !refused {
                            let servers = self.servers().map(|servers| messages.try_send(servers));
                            servers.transpose().map_err(|_| PeerError::NotReading)?;
                        }
                    }
                    ToPeer::Task(delivery) => {
                        newest.send_replace(Some(delivery));
                    }
                    ToPeer::Frozen(digest, encoded) => {
                        frozen.try_send((digest, encoded)).map_err(|_| PeerError::NotReading)?;
                    }
                    ToPeer::Disconnect => break,
                }
            }
            drop((messages, slot));
            Ok::<_, PeerError>(())
        };
        let delivered = deliver(self, control, waiting);
        tokio::pin!(delivered);
        tokio::select! {
            result = dismissed => result?,
            // Before the queue is closed it ends only with an error.
            result = &mut delivered => return result,
            result = send_newest(self, tasks, partial) => return result,
            result = send_frozen(self, wanted) => return result,
        }
        let received = matches!(tokio::time::timeout(DRAIN_TIMEOUT, delivered).await, Ok(Ok(true)));
        self.connection.close(VarInt::from_u32(0), b"goodbye");
        Ok(received)
    }
}

impl Peer {
    /// The message that says where else the server is reached, if it is and the peer knows the message.
    fn servers(&self) -> Option<Vec<u8>> {
        let addresses = self.access.servers.to_vec();
        let servers = ToClient::Servers { addresses: Some(addresses).filter(|all| !all.is_empty())? };
        Some(frame::encode(&servers.for_peer(self.protocol())?, 0))
    }
}

/// Writes messages to the control stream until the queue is closed, and returns whether the peer has received them all.
async fn deliver(
    peer: &Peer,
    mut control: SendStream,
    mut waiting: mpsc::Receiver<Vec<u8>>,
) -> Result<bool, PeerError> {
    while let Some(frame) = waiting.recv().await {
        within(peer.budget.timeout, PeerError::NotReading, control.write_all(&frame)).await?;
    }
    // `stopped` resolves when the peer has everything, wants no more, or has disconnected.
    let _ = control.finish();
    Ok(matches!(control.stopped().await, Ok(None)))
}

/// Sends the newest task, and drops an older one that is still being sent.
async fn send_newest(
    peer: &Peer,
    mut tasks: watch::Receiver<Option<Delivery>>,
    mut partial: Option<ResumePoint>,
) -> Result<bool, PeerError> {
    while tasks.changed().await.is_ok() {
        let Some(mut delivery) = tasks.borrow_and_update().clone() else { continue };
        loop {
            let partial = partial.take();
            tokio::select! {
                sent = send(peer, &delivery, partial) => {
                    sent?;
                    break;
                }
                // The round closed without this peer: the rest of its task is useless.
                Ok(()) = tasks.changed() => match tasks.borrow_and_update().clone() {
                    Some(newer) => delivery = newer,
                    None => break,
                },
            }
        }
    }
    std::future::pending().await
}

/// Sends frozen parameters beside the tasks: no newer task makes them useless.
async fn send_frozen(peer: &Peer, mut wanted: mpsc::Receiver<(String, Bytes)>) -> Result<bool, PeerError> {
    while let Some((digest, encoded)) = wanted.recv().await {
        let stream = open(peer).await?;
        let length = encoded.len() as u64;
        send_payload(peer, stream, &ToClient::Frozen { digest }, length, Source::whole(encoded)).await?;
    }
    std::future::pending().await
}

/// A stream that is reset when it is dropped before the peer has received everything.
struct TaskStream(SendStream);

impl Drop for TaskStream {
    fn drop(&mut self) {
        // This fails for a stream that was delivered, which is fine.
        let _ = self.0.reset(VarInt::from_u32(0));
    }
}

/// Sends a task, or the rest of it if the peer has its beginning, `partial`.
///
/// A large broadcast is read from its file, chunk by chunk, so that the process does not hold a model per client. The file was
/// written moments ago and is in the page cache, so reading it does not block.
async fn send(peer: &Peer, delivery: &Delivery, partial: Option<ResumePoint>) -> Result<(), PeerError> {
    let stream = open(peer).await?;
    let (source, offset) = match partial.filter(|partial| partial.round == delivery.round) {
        Some(partial) => {
            let delivery = delivery.clone();
            peer.budget.hashed(move || Source::behind(&delivery, partial)).await?
        }
        None => (Source::of(delivery)?, 0),
    };
    let message = delivery.message(peer.protocol(), offset);
    send_payload(peer, stream, &message, delivery.length() - offset, source).await
}

async fn open(peer: &Peer) -> Result<TaskStream, PeerError> {
    let opened = within(peer.budget.timeout, PeerError::NotReading, peer.connection.open_uni());
    Ok(TaskStream(opened.await?))
}

/// Sends a message and its payload of this length.
async fn send_payload(
    peer: &Peer,
    mut stream: TaskStream,
    message: &ToClient,
    length: u64,
    mut source: Source,
) -> Result<(), PeerError> {
    let timeout = peer.budget.timeout;
    let mut next = Some(Bytes::from(frame::encode(message, length)));
    while let Some(mut chunk) = next {
        while !chunk.is_empty() {
            let written = stream.0.write_chunks(std::slice::from_mut(&mut chunk));
            within(timeout, PeerError::NotReading, written).await?;
        }
        next = source.chunk().map_err(PeerError::Broadcast)?;
    }
    let _ = stream.0.finish();
    // The rest is in the send window, whose progress cannot be seen: the peer has as much time for it as for any other part.
    let parts = 1 + length.min(SEND_WINDOW) / MIN_PROGRESS;
    let delivered = async { Ok::<_, PeerError>(stream.0.stopped().await) };
    within(timeout * parts as u32, PeerError::NotReading, delivered).await.map(drop)
}
