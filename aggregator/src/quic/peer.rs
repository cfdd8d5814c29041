//! One connection, served by one task.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use quinn::{Connection, RecvStream, VarInt};
use shared::frame::{self, FrameError, HEADER_LEN, Header};
use shared::message::ToServer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tracing::debug;

use super::limits::{GREETING, Limits, UNHEARD};
use super::outbox;
use crate::coordinator::PeerId;
use crate::driver::{FromPeer, ToPeer};

/// Why a connection was given up. All of these are the peer's doing, or the disk's.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("it sent a message with payload that takes none, or the other way round")]
    Payload,
    #[error("it did not say hello in time")]
    Mute,
    #[error("its upload came to a halt")]
    Halted,
    #[error("it takes nothing of what it is sent")]
    Deaf,
    #[error("{0}")]
    Read(#[from] quinn::ReadExactError),
    #[error("{0}")]
    ReadPayload(#[from] quinn::ReadError),
    #[error("{0}")]
    Write(#[from] quinn::WriteError),
    #[error("{0}")]
    Connection(#[from] quinn::ConnectionError),
    #[error("the aggregator cannot write the update down ({0}); try again")]
    Spool(std::io::Error),
    #[error("the broadcast cannot be read: {0}")]
    Broadcast(std::io::Error),
    #[error("the aggregator stops")]
    DriverGone,
}

pub(super) struct Peer {
    pub(super) id: PeerId,
    pub(super) connection: Connection,
    pub(super) driver: mpsc::UnboundedSender<FromPeer>,
    pub(super) limits: Arc<Limits>,
    /// Places for messages that the driver has not heard yet.
    unheard: Arc<Semaphore>,
}

impl Peer {
    pub(super) fn new(
        id: PeerId,
        connection: Connection,
        driver: mpsc::UnboundedSender<FromPeer>,
        limits: Arc<Limits>,
    ) -> Self {
        Self { id, connection, driver, limits, unheard: Arc::new(Semaphore::new(UNHEARD)) }
    }

    /// Serves the connection to its end. `stranger` is its place among those who were not welcomed yet.
    pub(super) async fn run(self, stranger: OwnedSemaphorePermit) {
        let (commands, queue) = mpsc::unbounded_channel();
        let _ = self.driver.send(FromPeer::Connected { peer: self.id, commands });
        let reason = match self.serve(queue, stranger).await {
            Ok(()) => "closed".to_owned(),
            Err(error) => {
                debug!(peer = self.id.0, %error);
                let text = error.to_string();
                self.connection.close(VarInt::from_u32(1), text.as_bytes());
                text
            }
        };
        let _ = self.driver.send(FromPeer::Disconnected { peer: self.id, reason });
    }

    async fn serve(
        &self,
        queue: mpsc::UnboundedReceiver<ToPeer>,
        stranger: OwnedSemaphorePermit,
    ) -> Result<(), PeerError> {
        let greeting = tokio::time::timeout(GREETING, async {
            let (sender, mut receiver) = self.connection.accept_bi().await?;
            self.control_message(&mut receiver).await?;
            Ok::<_, PeerError>((sender, receiver))
        });
        let (control, mut receiver) = greeting.await.map_err(|_| PeerError::Mute)??;
        let inbound = async {
            loop {
                self.control_message(&mut receiver).await?;
            }
        };
        let uploads = async {
            loop {
                // There is none before the welcome: that opens the connection for them.
                let stream = self.connection.accept_uni().await?;
                self.upload(stream).await?;
            }
        };
        tokio::select! {
            result = inbound => result,
            result = uploads => result,
            result = outbox::empty(self, queue, control, stranger) => result,
        }
    }

    /// Reads one message of the control stream and hands it to the driver.
    async fn control_message(&self, receiver: &mut RecvStream) -> Result<(), PeerError> {
        let (message, _, bytes) = self.message(receiver, 0).await?;
        if matches!(message, ToServer::Update(_)) {
            return Err(PeerError::Payload);
        }
        // Without a place the control stream is not read on, and flow control holds the peer.
        let place = self.unheard.clone().acquire_owned().await.expect("the semaphore is never closed");
        self.tell(FromPeer::Message { peer: self.id, message, bytes, place: Some(place) })
    }

    pub(super) async fn message(
        &self,
        receiver: &mut RecvStream,
        max_payload: u64,
    ) -> Result<(ToServer, Header, u64), PeerError> {
        let mut header = [0; HEADER_LEN];
        receiver.read_exact(&mut header).await?;
        let header = Header::parse(header, max_payload)?;
        let mut body = vec![0; header.message as usize];
        receiver.read_exact(&mut body).await?;
        let message = frame::decode(&body)?;
        Ok((message, header, HEADER_LEN as u64 + u64::from(header.message) + header.payload))
    }

    pub(super) fn tell(&self, event: FromPeer) -> Result<(), PeerError> {
        self.driver.send(event).map_err(|_| PeerError::DriverGone)
    }
}

/// The future's result, or `late` if there is none within `patience`.
pub(super) async fn within<T, E: Into<PeerError>>(
    patience: Duration,
    late: PeerError,
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, PeerError> {
    tokio::time::timeout(patience, future).await.map_err(|_| late)?.map_err(Into::into)
}
