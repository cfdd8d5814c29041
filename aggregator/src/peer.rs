//! The seam of transports: what passes between the driver and the tasks that serve peers.
//!
//! The real transport, a simulation and tests all plug in here.

use std::net::IpAddr;
use std::path::PathBuf;

use bytes::Bytes;
use shared::id::ClientId;
use shared::message::{Refusal, ToClient, ToServer, UpdateHeader};
use shared::protocol::Protocol;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::coordinator::PeerId;
use crate::database::DatabaseError;
use crate::run::{Delivery, Upload};

/// What a peer's task tells the driver.
#[derive(Debug)]
pub enum FromPeer {
    /// A connection was made.
    Connected {
        /// Its number.
        peer: PeerId,
        /// Where commands for it go.
        commands: mpsc::UnboundedSender<ToPeer>,
    },
    /// A message without payload arrived.
    Message {
        /// From whom.
        peer: PeerId,
        /// What.
        message: ToServer,
        /// Bytes that it took on the wire.
        bytes: u64,
        /// Its slot among the peer's messages that wait to be handled, where their number is limited;
        /// free for the next one when this is dropped.
        place: Option<OwnedSemaphorePermit>,
    },
    /// It speaks a version of the protocol that does not know something of the run.
    Outdated {
        /// Which.
        peer: PeerId,
        /// The version.
        protocol: Protocol,
        /// Whether it cannot take part; if it can, it is `[eligibility]` that it cannot be asked for.
        refused: bool,
    },
    /// An update arrived; its payload is unread.
    Uploaded {
        /// From whom.
        peer: PeerId,
        /// What accompanies it.
        header: UpdateHeader,
        /// The whole frame.
        upload: Upload,
        /// Its turn among uploads, where their number is limited; over when this is dropped.
        turn: Option<OwnedSemaphorePermit>,
        /// Bytes that it took on the wire.
        bytes: u64,
    },
    /// An update waits for its turn: the peer is alive although nothing is heard of it.
    Waits {
        /// Who waits.
        peer: PeerId,
    },
    /// An update cannot be written to the spool: this machine is in the way, not the peer. The connection is
    /// closed for it, so that the client offers the update again.
    SpoolFailed {
        /// Whose update.
        peer: PeerId,
        /// Where it was to be written.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// A device may not take part.
    Refused {
        /// Its connection, which closes.
        peer: PeerId,
        /// Its client.
        client: ClientId,
        /// Why.
        refusal: Refusal,
    },
    /// A device cannot be looked up, which is this machine's fault: it is to connect again later.
    LookupFailed {
        /// What the database says.
        error: DatabaseError,
    },
    /// A connected device may not take part any more: it is told, and disconnected.
    CutOff {
        /// Who.
        client: ClientId,
    },
    /// A device may not take part any more. It need be neither connected nor known.
    Revoked {
        /// Who.
        client: ClientId,
    },
    /// Another server of the run has left, and with it the connections of its devices: they come again.
    ServerLeft,
    /// A connection was refused because all places are taken. Sent once.
    Full {
        /// How many there are.
        places: usize,
    },
    /// A handshake found no version of the protocol that both sides speak.
    ForeignProtocol {
        /// Where the peer is.
        address: IpAddr,
    },
    /// The operator asks for something from another shell.
    Asked(Request),
    /// The connection has ended.
    Disconnected {
        /// Which.
        peer: PeerId,
        /// Why, for the operator.
        reason: String,
        /// Whether it ended in good order: the peer has received everything up to [`ToPeer::Disconnect`], or has hung up itself.
        /// A peer that lost its network or died does neither.
        parted: bool,
    },
}

/// What the driver tells a peer's task.
#[derive(Clone, Debug)]
pub enum ToPeer {
    /// Send a message without payload.
    Message(ToClient),
    /// Send the task of a round.
    Task(Delivery),
    /// Send the frozen parameters of this digest: their encoding.
    Frozen(String, Bytes),
    /// Deliver what was sent, then close the connection.
    Disconnect,
}

/// What the operator may ask of a server from another shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Open no new round; devices stay connected.
    Pause,
    /// Open rounds again.
    Resume,
    /// Stop; the run can be continued.
    Stop,
}

impl Request {
    /// Its name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Stop => "stop",
        }
    }
}
