//! What passes between the driver, the peers' tasks, and whoever watches.

use std::net::IpAddr;
use std::path::PathBuf;

use shared::id::ClientId;
use shared::message::{Refusal, ToClient, ToServer, UpdateHeader};
use shared::protocol::Protocol;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::coordinator::{PeerId, Status};
use crate::database::DatabaseError;
use crate::report::RoundRecord;
use crate::run::{Broadcast, Upload};

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
        /// Its place among the messages of this peer that wait to be heard, where there are only so many;
        /// free for the next one when this is dropped.
        place: Option<OwnedSemaphorePermit>,
    },
    /// It speaks a version that has no word for what the run asks of a device before it trains, and so was not asked.
    Unconditional {
        /// Which.
        peer: PeerId,
        /// The version.
        protocol: Protocol,
    },
    /// An update arrived; its payload is unread.
    Uploaded {
        /// From whom.
        peer: PeerId,
        /// What accompanies it.
        header: UpdateHeader,
        /// The whole frame.
        upload: Upload,
        /// Its turn among uploads, where there are only so many at a time; over when this is dropped.
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
    /// Somebody may not take part.
    Refused {
        /// Its connection, which closes.
        peer: PeerId,
        /// Who it says it is.
        client: ClientId,
        /// Why, as it was told.
        refusal: Refusal,
    },
    /// Whether a device may take part cannot be seen, which is this machine's fault: it is to come again.
    Unknowable {
        /// What the database says.
        error: DatabaseError,
    },
    /// A device may not take part any more, connected or not. It may be one that nobody knows here.
    Revoked {
        /// Who.
        client: ClientId,
    },
    /// Somebody was sent away because all places are taken; said once.
    TurnedAway {
        /// How many there are.
        places: usize,
    },
    /// A handshake found no version of the protocol that both sides speak.
    Foreign {
        /// Where whoever speaks another one is.
        address: IpAddr,
    },
    /// The connection is gone.
    Disconnected {
        /// Which.
        peer: PeerId,
        /// Why, for the operator.
        reason: String,
        /// Whether they parted in good order: the peer has received all that it was told up to [`ToPeer::Disconnect`], or has
        /// hung up by itself. One whose network or process is gone does neither.
        parted: bool,
    },
}

/// What the driver tells a peer's task.
#[derive(Clone, Debug)]
pub enum ToPeer {
    /// Send a message without payload.
    Message(ToClient),
    /// Send the task of a round.
    Task(Broadcast),
    /// Deliver what was sent, then close the connection.
    Disconnect,
}

/// What came of a client's work. Reasons are what clients said, or quote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived<'a> {
    /// Its update is durable and counts.
    Accepted,
    /// Its update is not believed: why.
    Rejected(&'a str),
    /// Its update is of no use: why.
    Discarded(&'a str),
    /// It could not train: why.
    Failed(&'a str),
    /// It is not in a state to train: why.
    NotNow(&'a str),
}

impl Arrived<'_> {
    /// Its name in the database.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected(_) => "rejected",
            Self::Discarded(_) => "discarded",
            Self::Failed(_) => "failed",
            Self::NotNow(_) => "not-now",
        }
    }

    /// Why, where there is a reason.
    #[must_use]
    pub fn reason(&self) -> &str {
        match self {
            Self::Accepted => "",
            Self::Rejected(reason)
            | Self::Discarded(reason)
            | Self::Failed(reason)
            | Self::NotNow(reason) => reason,
        }
    }
}

/// What the driver tells whoever watches.
#[derive(Debug)]
pub enum Notice<'a> {
    /// What the run waits for has changed, or time has passed.
    Status(&'a Status),
    /// A round was opened, durably; again when members have joined it.
    Opened {
        /// The round.
        round: u32,
        /// Members.
        cohort: usize,
    },
    /// Something came of a member's work in a round, or of what somebody else sent.
    Arrival {
        /// The round that it was meant for.
        round: u32,
        /// Whose it is.
        client: ClientId,
        /// What came of it.
        what: Arrived<'a>,
    },
    /// A device leaves samples out that it cannot use.
    LeftOut {
        /// Which.
        client: ClientId,
        /// How many training samples.
        samples: u64,
    },
    /// The run gets on: no durable step is in hand, or one has come further since this was told last.
    Alive,
    /// A round was closed.
    Round(&'a RoundRecord),
    /// Something that an operator may want to see, and that any number of strangers can bring about: it is shown, and not
    /// written down.
    Aside(String),
    /// Something an operator should know.
    Remark(String),
    /// Something an operator must know: the run comes to nothing unless somebody does something.
    Alarm(String),
}
