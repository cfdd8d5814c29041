//! The interface between the driver and a transport.
//!
//! A transport sends [`Outgoing`] messages to the server and receives [`Incoming`] ones from it. The driver knows nothing else
//! of it.

use std::borrow::Cow;
use std::future::Future;

use bytes::Bytes;
use shared::identity::PublicKey;
use shared::message::{TaskKind, ToClient, ToServer, UpdateHeader};
use shared::payload::Payload;
use shared::protocol::Protocol;
use tokio::sync::mpsc;

use crate::address_book::Pass;

/// A message from client to server. Boxed, because a channel allocates room for dozens at once and most clients are idle.
#[derive(Clone, Debug)]
pub enum Outgoing {
    /// A message without payload.
    Message(Box<ToServer>),
    /// An update with its payload.
    Update(Box<UpdateHeader>, Payload),
}

/// A message from server to client, or an event of the connection.
#[derive(Clone, Debug)]
pub enum Incoming {
    /// A message without payload.
    Message(ToClient),
    /// Progress in receiving a task. Optional for transports.
    Arriving {
        /// The round.
        round: u32,
        /// Received bytes of its payload.
        received: u64,
        /// All bytes of its payload.
        total: u64,
    },
    /// The task of a round with its payload.
    Task {
        /// The round.
        round: u32,
        /// What the client has to do.
        work: TaskKind,
        /// Rounds of training before it that have failed.
        failed: u32,
        /// The broadcast, as an encoded record.
        payload: Bytes,
    },
    /// The frozen parameters that the client has asked for.
    Frozen {
        /// Their digest, as the server says.
        digest: String,
        /// Their encoding.
        payload: Bytes,
    },
    /// The connection is closed. The last event.
    Closed {
        /// The reason, for people.
        reason: String,
    },
}

/// A connection. Dropping `outgoing` closes it once everything sent has been delivered; dropping or closing `incoming` closes
/// it at once.
#[derive(Debug)]
pub struct Channel {
    /// The server's address, for people.
    pub server: String,
    /// Whether the server has addresses that this attempt, and those before it in the same pass, have not tried.
    pub elsewhere: bool,
    /// Messages to the server.
    pub outgoing: mpsc::UnboundedSender<Outgoing>,
    /// Messages from the server.
    pub incoming: mpsc::UnboundedReceiver<Incoming>,
}

/// A failed attempt to connect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// There is no answer. A retry may succeed.
    #[error("cannot reach {server}: {reason}")]
    Unreachable {
        /// The server's address.
        server: String,
        /// The transport's error.
        reason: String,
    },
    /// The server that answers is not the one that this client trusts.
    #[error(
        "{server} shows the key {found}, this client trusts {trusted}: either another server answers there, or the server \
         was given a new identity; in the second case ask its operator for a new ticket"
    )]
    Untrusted {
        /// The server's address.
        server: String,
        /// The server's key.
        found: PublicKey,
        /// The key that this client trusts.
        trusted: PublicKey,
    },
    /// Client and server have no version of the protocol in common. A retry may succeed after an update of the server. The answer
    /// is not authenticated.
    #[error(
        "{server} speaks no version of the protocol that this program speaks ({} to {}): update the older side",
        version(Protocol::SPOKEN.last()), version(Protocol::SPOKEN.first())
    )]
    NoCommonProtocol {
        /// The server's address.
        server: String,
    },
    /// The local network cannot be used at all.
    #[error("cannot use the network: {0}")]
    Local(String),
}

impl ConnectError {
    /// The address of the attempt; `None` if there was none.
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

/// Connects to one server. Each attempt runs in a task of its own on a clone.
pub trait Connector: Clone + Send + 'static {
    /// Makes one attempt, at these of the server's addresses.
    fn connect(&mut self, pass: Pass) -> impl Future<Output = Result<Channel, ConnectError>> + Send;

    /// Receives no longer task than this on the connections that follow. By default the transport has no such limit.
    fn limit_tasks(&mut self, bytes: u64) {
        let _ = bytes;
    }
}
