//! The channels between the driver and a transport.
//!
//! A transport is anything that turns [`Outgoing`] into frames for the server and the server's frames into
//! [`Incoming`]. The driver knows nothing else of it.

use std::borrow::Cow;
use std::future::Future;

use bytes::Bytes;
use shared::identity::PublicKey;
use shared::message::{TaskKind, ToClient, ToServer, UpdateHeader};
use shared::payload::Payload;
use shared::protocol::Protocol;
use tokio::sync::mpsc;

/// Client to server. Small, since a channel has room for dozens from the start and most clients wait most of the time.
#[derive(Clone, Debug)]
pub enum Outgoing {
    /// A message without payload.
    Message(Box<ToServer>),
    /// An update with its payload.
    Update(Box<UpdateHeader>, Payload),
}

/// Server to client.
#[derive(Clone, Debug)]
pub enum Incoming {
    /// A message without payload.
    Message(ToClient),
    /// A part of a task is here. A transport may leave this out.
    Arriving {
        /// The round.
        round: u32,
        /// Bytes of its payload that are here.
        received: u64,
        /// Bytes that it has.
        total: u64,
    },
    /// The task of a round with its payload.
    Task {
        /// The round.
        round: u32,
        /// What is to be done.
        work: TaskKind,
        /// The broadcast, as an encoded record.
        payload: Bytes,
    },
    /// The connection is gone. Nothing follows.
    Closed {
        /// Why, for people.
        reason: String,
    },
}

/// A connection. Dropping `outgoing` closes it once everything sent has been delivered; dropping or closing `incoming` closes
/// it at once.
#[derive(Debug)]
pub struct Channel {
    /// Where to, for people.
    pub server: String,
    /// To the server.
    pub outgoing: mpsc::UnboundedSender<Outgoing>,
    /// From the server.
    pub incoming: mpsc::UnboundedReceiver<Incoming>,
}

/// Why there is no connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Nobody answers; it is worth trying again.
    #[error("cannot reach {server}: {reason}")]
    Unreachable {
        /// Where.
        server: String,
        /// What the transport says.
        reason: String,
    },
    /// Somebody answers who is not the server that this client trusts.
    #[error(
        "{server} shows the key {found}, this client trusts {trusted}: either another server answers there, or the server \
         was given a new identity; in the second case ask its operator for a new ticket"
    )]
    Untrusted {
        /// Where.
        server: String,
        /// The key that it has.
        found: PublicKey,
        /// The key that this client trusts.
        trusted: PublicKey,
    },
    /// The server speaks no version of the protocol that this program speaks: one of the two was updated long before the other.
    /// It is worth trying again, since that may be the server. Anybody can answer so, since nothing is proved before.
    #[error(
        "{server} speaks no version of the protocol that this program speaks ({} to {}): update the older side",
        version(Protocol::SPOKEN.last()), version(Protocol::SPOKEN.first())
    )]
    NoCommonProtocol {
        /// Where.
        server: String,
    },
    /// The local side cannot even try.
    #[error("cannot use the network: {0}")]
    Local(String),
}

impl ConnectError {
    /// Where it was tried, if it could be tried at all.
    #[must_use]
    pub fn server(&self) -> Option<&str> {
        match self {
            Self::Unreachable { server, .. }
            | Self::Untrusted { server, .. }
            | Self::NoCommonProtocol { server } => Some(server),
            Self::Local(_) => None,
        }
    }
}

/// The name of a version, for people.
fn version(version: Option<&Protocol>) -> Cow<'static, str> {
    version.map_or(Cow::Borrowed("none"), |version| String::from_utf8_lossy(version.name()))
}

/// Makes connections to one server. A clone makes one attempt, on a task of its own.
pub trait Connector: Clone + Send + 'static {
    /// Tries once.
    fn connect(&mut self) -> impl Future<Output = Result<Channel, ConnectError>> + Send;
}
