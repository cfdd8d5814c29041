//! One connection of a peer, served by one task.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use quinn::crypto::rustls::HandshakeData;
use quinn::{
    Connection, ConnectionError, ReadError, ReadExactError, RecvStream, SendStream, VarInt, WriteError,
};
use rustls::pki_types::CertificateDer;
use shared::differences::Digest;
use shared::frame::{self, FrameError, HEADER_LEN, Header};
use shared::id::ClientId;
use shared::identity::{PublicKey, tls};
use shared::message::{Hello, Refusal, ResumePoint, ToClient, ToServer};
use shared::protocol::Protocol;
use shared::ticket::TicketSecret;
use tokio::sync::{Semaphore, mpsc};
use tracing::debug;

use super::budget::Budget;
use super::limits::UNHANDLED_MESSAGES;
use super::preauth::PreauthSlot;
use super::resume::{Resumable, Taken};
use super::{Access, partial_upload};
use crate::coordinator::PeerId;
use crate::enrolment::Denied;
use crate::peer::{FromPeer, ToPeer};

/// Why a connection was closed. All of these are the peer's fault, or the disk's.
#[derive(Debug, thiserror::Error)]
pub(super) enum PeerError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("it sent a message with payload that takes none, or the other way round")]
    Payload,
    /// What it did, or did not do in time.
    #[error("{0}")]
    Fault(&'static str),
    #[error("stream finished early: no message came")]
    Nothing,
    #[error("the device left")]
    Left,
    #[error("it may not take part")]
    Dismissed,
    #[error("it sent the rest of an update that has not begun here")]
    NoSuchRest,
    #[error("another connection of the device goes on with its upload")]
    ResumedElsewhere,
    #[error("its upload came to a halt")]
    Stalled,
    #[error("it takes nothing of what it is sent")]
    NotReading,
    #[error("{0}")]
    Read(ReadExactError),
    #[error("{0}")]
    ReadPayload(ReadError),
    #[error("{0}")]
    Write(WriteError),
    #[error("{0}")]
    Connection(#[from] quinn::ConnectionError),
    #[error("the aggregator cannot write the update down ({0}); try again")]
    Spool(std::io::Error),
    #[error("the broadcast cannot be read: {0}")]
    Broadcast(std::io::Error),
    #[error("the aggregator stops")]
    DriverGone,
}

// Of a connection that has ended it is told how, whichever of its streams notices first.
impl From<ReadExactError> for PeerError {
    fn from(error: ReadExactError) -> Self {
        match error {
            ReadExactError::ReadError(ReadError::ConnectionLost(lost)) => Self::Connection(lost),
            error => Self::Read(error),
        }
    }
}

impl From<ReadError> for PeerError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::ConnectionLost(lost) => Self::Connection(lost),
            error => Self::ReadPayload(error),
        }
    }
}

impl From<WriteError> for PeerError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::ConnectionLost(lost) => Self::Connection(lost),
            error => Self::Write(error),
        }
    }
}

/// The first messages of a peer.
struct Greeting {
    hello: Hello,
    ticket: Option<TicketSecret>,
    /// The part of a task that it already has.
    partial: Option<ResumePoint>,
    /// The model that it has.
    base: Option<Digest>,
    /// Bytes on the wire.
    bytes: u64,
}

pub(super) struct Peer {
    pub(super) id: PeerId,
    pub(super) connection: Connection,
    pub(super) driver: mpsc::UnboundedSender<FromPeer>,
    pub(super) budget: Arc<Budget>,
    pub(super) access: Access,
    /// The outcome of the handshake.
    handshake: Option<Box<HandshakeData>>,
    /// Places for messages that the driver has not handled yet.
    unhandled: Arc<Semaphore>,
}

impl Peer {
    pub(super) fn new(
        id: PeerId,
        connection: Connection,
        driver: mpsc::UnboundedSender<FromPeer>,
        budget: Arc<Budget>,
        access: Access,
    ) -> Self {
        let handshake = connection.handshake_data().and_then(|data| data.downcast::<HandshakeData>().ok());
        Self {
            id,
            connection,
            driver,
            budget,
            access,
            handshake,
            unhandled: Arc::new(Semaphore::new(UNHANDLED_MESSAGES)),
        }
    }

    /// Serves the connection to its end. `slot` is held until it is welcomed.
    pub(super) async fn run(self, slot: PreauthSlot) {
        let (reason, parted) = match self.serve(slot).await {
            Ok(received) => ("closed".to_owned(), received || self.was_closed_by_peer()),
            // The driver was notified of the refusal, and never knew the connection.
            Err(PeerError::Dismissed) => return,
            Err(error) => {
                debug!(peer = self.id.0, %error);
                let text = error.to_string();
                let parted = matches!(error, PeerError::Left) || self.was_closed_by_peer();
                self.connection.close(VarInt::from_u32(1), text.as_bytes());
                (text, parted)
            }
        };
        let _ = self.driver.send(FromPeer::Disconnected { peer: self.id, reason, parted });
    }

    /// Whether the peer has closed the connection without an error.
    fn was_closed_by_peer(&self) -> bool {
        let reason = self.connection.close_reason();
        matches!(reason, Some(ConnectionError::ApplicationClosed(close)) if close.error_code == VarInt::from_u32(0))
    }

    async fn serve(&self, slot: PreauthSlot) -> Result<bool, PeerError> {
        let greeting = slot.in_time(async {
            let (sender, mut receiver) = self.connection.accept_bi().await?;
            let greeting = self.greeting(&mut receiver).await?;
            Ok::<_, PeerError>((sender, receiver, greeting))
        });
        let Some(greeting) = greeting.await else {
            slot.was_silent(Instant::now());
            return Err(PeerError::Fault("it did not say hello in time"));
        };
        let (control, mut receiver, greeting) = greeting?;
        let client = greeting.hello.client;
        let admitted = tokio::select! {
            admitted = self.admit(&greeting) => admitted?,
            // The device may have reconnected by then.
            ended = self.connection.closed() => return Err(ended.into()),
        };
        if let Err(refusal) = admitted {
            self.tell(FromPeer::Refused { peer: self.id, client, refusal: refusal.clone() })?;
            return Err(self.dismiss(control, refusal, &slot).await);
        }
        self.budget.preauth.remember(self.connection.remote_address().ip());
        let (commands, queue) = mpsc::unbounded_channel();
        let later = commands.downgrade();
        let mut begun = self.begun(&greeting.hello).await;
        let partial = tokio::select! {
            partial = self.partial(&mut begun) => partial,
            ended = self.connection.closed() => return Err(ended.into()),
        };
        if let Some(partial) = partial {
            let _ = commands.send(ToPeer::Message(ToClient::ResumePoint(partial)));
        }
        if let Some(ended) = self.connection.close_reason() {
            return Err(ended.into());
        }
        // Before any message of the driver, which may be a disconnect.
        let key = self.newer_key();
        if let Some(key) = key {
            let _ = commands.send(ToPeer::Message(ToClient::ServerKey { key }));
        }
        self.tell(FromPeer::Connected { peer: self.id, commands })?;
        if let Some(digest) = greeting.base {
            // Its bytes are counted with the hello.
            let message = ToServer::Base { digest };
            self.tell(FromPeer::Message { peer: self.id, message, bytes: 0, place: None })?;
        }
        let place = self.unhandled.clone().acquire_owned().await.expect("the semaphore is never closed");
        let (message, bytes) = (ToServer::Hello(greeting.hello), greeting.bytes);
        self.tell(FromPeer::Message { peer: self.id, message, bytes, place: Some(place) })?;
        // Only now that the driver knows it, so that a revocation in the meantime reaches the driver afterwards.
        let replaced = self.access.admission.enter(client, self.id, later.clone());
        // A key that was made in between is sent here; later ones are announced to all connections.
        if let (Some(key), Some(commands)) =
            (self.newer_key().filter(|newer| key != Some(*newer)), later.upgrade())
        {
            let _ = commands.send(ToPeer::Message(ToClient::ServerKey { key }));
        }
        let inbound = async {
            loop {
                self.control_message(&mut receiver, client).await?;
            }
        };
        let uploads = async {
            loop {
                // None comes before the welcome, which raises the limit of streams.
                let stream = self.connection.accept_uni().await?;
                match self.upload(stream, client, &mut begun).await {
                    // The driver must know the newer connection before this one ends: a round that does not wait for devices
                    // that are away would close without this one.
                    Err(PeerError::ResumedElsewhere) => return Err(self.connection.closed().await.into()),
                    uploaded => uploaded?,
                }
            }
        };
        tokio::pin!(inbound);
        let result = tokio::select! {
            biased;
            result = &mut inbound => return result,
            result = uploads => result,
            result = self.send_queued(queue, control, greeting.partial, slot) => result,
            // A peer that confirms nothing would hold one slot after another for a while.
            Ok(()) = replaced => Err(PeerError::Fault("newer connections of the device have taken its place")),
        };
        // What a device has said before it left counts: of a connection that it has ended all messages are read first, also where the
        // driver has no place for them yet.
        if result.is_err() && self.was_closed_by_peer() { inbound.await } else { result }
    }

    /// Reads the hello and the messages that may precede it.
    async fn greeting(&self, receiver: &mut RecvStream) -> Result<Greeting, PeerError> {
        let (mut message, _, mut bytes) = self.message(receiver, 0).await?;
        let (mut ticket, mut partial, mut base) = (None, None, None);
        loop {
            match message {
                ToServer::Redeem(secret) if ticket.is_none() => ticket = Some(secret),
                ToServer::ResumePoint(part) if partial.is_none() => partial = Some(part),
                ToServer::Base { digest } if base.is_none() => base = Some(digest),
                ToServer::Hello(hello) => return Ok(Greeting { hello, ticket, partial, base, bytes }),
                ToServer::Update(_) | ToServer::UpdateRest { .. } => return Err(PeerError::Payload),
                _ => return Err(PeerError::Fault("it said something else before hello")),
            }
            let more;
            (message, _, more) = self.message(receiver, 0).await?;
            bytes += more;
        }
    }

    /// Asks enrolment whether the peer may take part.
    async fn admit(&self, greeting: &Greeting) -> Result<Result<(), Refusal>, PeerError> {
        let shown = self
            .connection
            .peer_identity()
            .and_then(|shown| shown.downcast::<Vec<CertificateDer<'_>>>().ok());
        let key = shown
            .and_then(|shown| tls::peer_key(shown.first()?).ok())
            .ok_or(PeerError::Fault("it has shown no key"))?;
        let (admission, address) = (self.access.admission.clone(), self.connection.remote_address());
        let (hello, ticket) = (greeting.hello.clone(), greeting.ticket);
        let decided = tokio::task::spawn_blocking(move || {
            admission.admit(key, &hello, ticket, address, SystemTime::now())
        });
        match decided.await.map_err(|_| PeerError::DriverGone)? {
            Ok(()) => Ok(Ok(())),
            Err(Denied::Refused(refusal)) => Ok(Err(refusal)),
            Err(Denied::Trouble(error)) => {
                // The details are for the operator, not for the device.
                self.tell(FromPeer::LookupFailed { error })?;
                Err(PeerError::Fault("the aggregator cannot look the device up; try again"))
            }
            Err(Denied::Later) => {
                Err(PeerError::Fault("the aggregator cannot look the ticket up; try again later"))
            }
        }
    }

    /// The part of the update that the device holds which an earlier connection of it has brought.
    async fn begun(&self, hello: &Hello) -> Resumable<'_> {
        let (client, round) = (hello.client, hello.holds.map(|held| held.round));
        let part = loop {
            // A device that asks how to read its samples says on its next connection what it holds.
            if hello.asks() {
                break None;
            }
            match self.budget.partials.take(client, round) {
                Taken::Nothing => break None,
                Taken::Part(part) => break Some(part),
                Taken::Later(ends) => ends.closed().await,
            }
        };
        Resumable { partials: &self.budget.partials, client, part }
    }

    /// The resume point that the device is sent.
    async fn partial(&self, begun: &mut Resumable<'_>) -> Option<ResumePoint> {
        let part = begun.part.clone()?;
        match self.budget.hashed(move || part.partial()).await {
            Ok(partial) => Some(partial),
            Err(error) => {
                debug!("a partial upload cannot be read again: {error}");
                if let Some(part) = begun.part.take() {
                    partial_upload::remove(&part);
                }
                None
            }
        }
    }

    /// The version of the protocol that the peer speaks.
    pub(super) fn protocol(&self) -> Protocol {
        let agreed = self.handshake.as_ref().and_then(|data| Protocol::named(data.protocol.as_deref()?));
        // A handshake without an agreed version fails before this.
        agreed.unwrap_or(Protocol::V2)
    }

    /// The server's newest key, if the peer has asked for an older one.
    fn newer_key(&self) -> Option<PublicKey> {
        self.access.keys.newer_than(self.handshake.as_ref()?.server_name.as_deref()?)
    }

    /// Tells the peer why it may not take part and closes the connection, within the time that `slot` allows.
    async fn dismiss(&self, mut control: SendStream, refusal: Refusal, slot: &PreauthSlot) -> PeerError {
        let told = ToClient::Refused(refusal).for_peer(self.protocol());
        let frame = told.map(|told| frame::encode(&told, 0)).unwrap_or_default();
        let told = slot.in_time(async {
            control.write_all(&frame).await?;
            let _ = control.finish();
            // `stopped` resolves when the peer has everything, wants no more, or has disconnected.
            let _ = control.stopped().await;
            Ok::<_, WriteError>(())
        });
        // The connection is closed whether the peer has received it or not.
        let _ = told.await;
        self.connection.close(VarInt::from_u32(0), b"refused");
        PeerError::Dismissed
    }

    /// Reads one message of the control stream and hands it to the driver. The peer has proved to be `client`. Its last
    /// message ends the connection.
    async fn control_message(&self, receiver: &mut RecvStream, client: ClientId) -> Result<(), PeerError> {
        // A device also leaves by finishing its stream.
        let (message, _, bytes) = self.message(receiver, 0).await.map_err(|error| match error {
            PeerError::Nothing => PeerError::Left,
            error => error,
        })?;
        match &message {
            ToServer::Update(_) | ToServer::UpdateRest { .. } => return Err(PeerError::Payload),
            // Nothing after this point checks the device's key.
            ToServer::Hello(hello) if hello.client != client => {
                return Err(PeerError::Fault(
                    "it said hello in the name of another device than the one that it has proved to be",
                ));
            }
            _ => {}
        }
        let leaves = message.is_last();
        // Without a place the control stream is not read, and flow control holds the peer back.
        let place = self.unhandled.clone().acquire_owned().await.expect("the semaphore is never closed");
        self.tell(FromPeer::Message { peer: self.id, message, bytes, place: Some(place) })?;
        if leaves { Err(PeerError::Left) } else { Ok(()) }
    }

    pub(super) async fn message(
        &self,
        receiver: &mut RecvStream,
        max_payload: u64,
    ) -> Result<(ToServer, Header, u64), PeerError> {
        let mut header = [0; HEADER_LEN];
        receiver.read_exact(&mut header).await.map_err(|error| match error {
            ReadExactError::FinishedEarly(0) => PeerError::Nothing,
            error => error.into(),
        })?;
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

/// The result of `future`, or `late` if it takes longer than `timeout`.
pub(super) async fn within<T, E: Into<PeerError>>(
    timeout: Duration,
    late: PeerError,
    future: impl Future<Output = Result<T, E>>,
) -> Result<T, PeerError> {
    tokio::time::timeout(timeout, future).await.map_err(|_| late)?.map_err(Into::into)
}
