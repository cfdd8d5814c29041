//! What a leaf and the root tell each other.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use shared::differences::Digest;
use shared::id::{ClientId, RunId};
use shared::message::{Rejection, ToClient, ToServer, UpdateHeader};

use crate::coordinator::Agreement;
use crate::run::HeldUpdate;

/// A message with the bulk data that accompanies it.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame<M> {
    /// What is said.
    pub message: M,
    /// What comes with it; empty where nothing does.
    pub payload: Bytes,
}

impl<M> From<M> for Frame<M> {
    fn from(message: M) -> Self {
        Self { message, payload: Bytes::new() }
    }
}

/// A part of a run's clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Which, from 1.
    pub number: u16,
    /// Of how many.
    pub of: u16,
}

/// What the root tells a leaf.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToLeaf {
    /// The first message: it is a leaf of this run.
    Welcome {
        /// The run's identity.
        run: RunId,
    },
    /// A round is open, or has changed. Its broadcast comes with it: the model, and behind it the differences that lead there.
    Open {
        /// Its number.
        round: u32,
        /// How it opened, as JSON. All links share it: there are tens of bytes for each device.
        opening: Arc<str>,
        /// Rounds of training before it without a result.
        failed: u32,
        /// The length to which updates are clipped, if that adapts.
        clip: Option<f64>,
        /// Who takes part, in outline, where updates are hidden and that is decided.
        agreement: Option<Box<Agreement>>,
        /// The digest of the model, where it may travel as differences.
        digest: Option<Digest>,
        /// The lengths of the differences, in bytes.
        differences: Vec<u64>,
    },
    /// It is decided who takes part in the open round, whose updates are hidden.
    Agreed {
        /// Its number.
        round: u32,
        /// Who.
        agreement: Box<Agreement>,
    },
    /// It is to accept these updates, by whose they are and its own numbers.
    Accept {
        /// Into which round.
        round: u32,
        /// Which.
        uploads: Vec<(ClientId, u64)>,
    },
    /// It is to sum up the updates of these clients.
    Sum {
        /// Of which round.
        round: u32,
        /// Whose.
        clients: Vec<ClientId>,
    },
    /// It is to send the update of this client, as it came.
    Fetch {
        /// Of which round.
        round: u32,
        /// Whose.
        client: ClientId,
    },
    /// Rounds up to this one are over for good.
    Closed {
        /// The last of them.
        round: u32,
    },
    /// An update of the spool is not needed.
    Discard {
        /// Its number.
        number: u64,
    },
    /// For a device.
    Message {
        /// The device's connection.
        peer: u64,
        /// What it is told.
        message: ToClient,
    },
    /// A device is to be sent the task of the open round.
    Task {
        /// The device's connection.
        peer: u64,
        /// The round.
        round: u32,
        /// How many of the newest differences it is sent in place of the model.
        differences: u32,
    },
    /// A device is to be sent the frozen parameters. They come with it the first time.
    Frozen {
        /// The device's connection.
        peer: u64,
        /// Their digest.
        digest: String,
    },
    /// A device's connection is to be closed once everything has arrived.
    Disconnect {
        /// The device's connection.
        peer: u64,
    },
    /// It is not let in, and ends.
    Refused {
        /// Why, and what to do, for its operator.
        why: String,
    },
    /// What every server shows of the run.
    Shown {
        /// A [`Shown`](super::shown::Shown), as JSON.
        text: String,
    },
}

/// What a leaf tells the root.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToRoot {
    /// The first message.
    Hello {
        /// The leaf's name.
        leaf: String,
        /// The epoch under which it takes the other side for the root.
        epoch: i64,
        /// The version of the leaf's program.
        version: String,
        /// The part of the run's clients that it simulates.
        part: Option<Part>,
    },
    /// The round is open here.
    Opened {
        /// Its number.
        round: u32,
        /// The updates that were accepted in it before.
        held: Vec<HeldUpdate>,
    },
    /// The outcomes of the updates that it was to accept, in their order. `None` of one that it does not have.
    Accepted {
        /// Into which round.
        round: u32,
        /// What.
        outcomes: Vec<Option<Result<HeldUpdate, Rejection>>>,
    },
    /// The sum that it was asked for comes with it.
    Summed {
        /// Of which round.
        round: u32,
    },
    /// It does not have all updates that it was to sum up.
    Lacks {
        /// Of which round.
        round: u32,
    },
    /// The update that it was asked for comes with it. Nothing comes where it does not have it.
    Fetched {
        /// Of which round.
        round: u32,
        /// Whose.
        client: ClientId,
    },
    /// A device is here.
    Connected {
        /// Its connection, in the leaf's numbers.
        peer: u64,
    },
    /// A device has said something.
    Message {
        /// Its connection.
        peer: u64,
        /// What.
        message: ToServer,
        /// Bytes that it took on the wire.
        bytes: u64,
    },
    /// A device's update is in the spool.
    Uploaded {
        /// Its connection.
        peer: u64,
        /// What accompanies it.
        header: UpdateHeader,
        /// The leaf's number for it.
        number: u64,
        /// Bytes that it took on the wire.
        bytes: u64,
    },
    /// A device waits for its turn to send an update.
    Waits {
        /// Its connection.
        peer: u64,
    },
    /// A device was revoked while it was connected.
    CutOff {
        /// Which.
        client: ClientId,
    },
    /// A device was revoked.
    Revoked {
        /// Which.
        client: ClientId,
    },
    /// A device's connection has ended.
    Disconnected {
        /// Which.
        peer: u64,
        /// Why, for people.
        reason: String,
        /// Whether it ended in good order.
        parted: bool,
    },
}

#[cfg(test)]
mod tests;
