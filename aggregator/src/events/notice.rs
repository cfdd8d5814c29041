//! Notices: what happens in a run, as typed values.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use serde::{Serialize, Serializer};
use shared::id::ClientId;
use shared::identity::PublicKey;
use shared::message::{CountedUpdate, Refusal};

use crate::coordinator::Status;
use crate::names::called;
use crate::round::{Dominance, RoundRecord};

/// How much a notice matters to the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Data for sinks that keep or draw them; there is no sentence for it.
    Data,
    /// Shown and not kept: any peer on the network can cause any number of these.
    Aside,
    /// Shown and kept.
    Remark,
    /// Shown as a warning and kept: the run fails unless the operator acts.
    Alarm,
}

/// Result of a client's work in a round. Reasons are the client's words, or quote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "result", content = "reason", rename_all = "kebab-case")]
pub enum TaskResult<'a> {
    /// Its update is durable and counts.
    Accepted,
    /// Its update failed the checks.
    Rejected(&'a str),
    /// Its update is not needed.
    Discarded(&'a str),
    /// It could not train.
    Failed(&'a str),
    /// It is not in a state to train now.
    NotNow(&'a str),
}

impl TaskResult<'_> {
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

    /// Why; empty if it was accepted.
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

/// Something that happened. Texts from peers are raw here: only [`text`](super::text) makes them fit for a terminal.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Notice<'a> {
    /// What the run waits for has changed, or time has passed.
    #[serde(skip)]
    Status(&'a Status),
    /// The run makes progress: no durable step is in progress, or one has advanced since the last of these.
    Alive,
    /// The server takes connections.
    Listening {
        /// Its address.
        address: SocketAddr,
        /// Its key.
        key: PublicKey,
    },
    /// A round was opened, durably; again when members have joined it.
    Opened {
        /// The round.
        round: u32,
        /// Its members.
        cohort: usize,
    },
    /// A round was closed, durably.
    Round(&'a RoundRecord),
    /// Result of a client's work.
    Result {
        /// The round it was meant for.
        round: u32,
        /// The client.
        client: ClientId,
        /// The result.
        #[serde(flatten)]
        result: TaskResult<'a>,
        /// Whether it is told as a sentence.
        #[serde(skip)]
        shown: bool,
        /// Whether it belongs among the round's results. It does not if its round is not current, or if it is there already.
        #[serde(skip)]
        recorded: bool,
    },
    /// A device said hello.
    Connected {
        /// The client.
        client: ClientId,
        /// Its training samples.
        samples: u64,
        /// Its program and version.
        software: &'a str,
    },
    /// The connection of a client ended.
    Disconnected {
        /// The client.
        client: ClientId,
        /// Why.
        reason: &'a str,
    },
    /// A connected device may not take part any more: the operator has revoked or removed it.
    Revoked {
        /// The client.
        client: ClientId,
    },
    /// The operator has asked for something from another shell.
    Asked {
        /// `pause`, `resume` or `stop`.
        what: &'a str,
    },
    /// Connections ended before any device said hello on them.
    Unidentified {
        /// How many since the last notice of this kind.
        count: u64,
        /// Why the last of them ended.
        reason: &'a str,
    },
    /// The coordinator refused a connected peer.
    Refused {
        /// The client, or the number of its connection if it has not said hello.
        #[serde(serialize_with = "as_text")]
        party: Party,
        /// Why.
        #[serde(serialize_with = "as_text")]
        refusal: &'a Refusal,
    },
    /// A device is not enrolled, or its ticket is no good.
    NotAdmitted {
        /// The client.
        client: ClientId,
        /// Why.
        #[serde(serialize_with = "as_text")]
        refusal: &'a Refusal,
    },
    /// More devices were not admitted than are listed one by one.
    MoreNotAdmitted,
    /// A device cannot be looked up, which is this machine's fault.
    LookupFailed {
        /// What the database says.
        error: &'a str,
    },
    /// All connections are taken.
    Full {
        /// How many there are.
        connections: usize,
    },
    /// A client speaks a version of the protocol that cannot be asked for `[eligibility]`.
    NoEligibility {
        /// The client.
        client: ClientId,
        /// The version.
        protocol: &'a str,
    },
    /// A client cannot take part: it speaks a version of the protocol that cannot say what the run uses.
    Outdated {
        /// The client.
        client: ClientId,
        /// The version.
        protocol: &'a str,
    },
    /// A peer speaks no version of the protocol that this program speaks.
    ForeignProtocol {
        /// Where it is.
        address: IpAddr,
    },
    /// More addresses speak other protocols than are listed one by one.
    MoreForeignProtocols,
    /// A client leaves because it does not know what the run uses.
    Declined {
        /// The client.
        client: ClientId,
        /// What it does not know, in its words.
        reason: &'a str,
    },
    /// A client skips training samples that it cannot use.
    SkippedSamples {
        /// The client.
        client: ClientId,
        /// How many; 0 when it skips none any more.
        samples: u64,
        /// Whether it is told as a sentence.
        #[serde(skip)]
        shown: bool,
    },
    /// A client has nothing to test models on, in a run that has its clients test them.
    Untested {
        /// The client.
        client: ClientId,
        /// What is missing, in its words.
        reason: &'a str,
    },
    /// The client state that a device keeps is not what it must be. Each is the update that it stands after.
    ClientState {
        /// The client.
        client: ClientId,
        /// By what the server knows: its last update that counted.
        server: Option<CountedUpdate>,
        /// By the device's word.
        device: Option<CountedUpdate>,
    },
    /// Repeated or irrelevant messages of clients, of which no notice was made one by one.
    Suppressed {
        /// The round up to whose end they came.
        round: u32,
        /// How many.
        messages: u64,
        /// From how many clients.
        clients: usize,
        /// One of them.
        first: ClientId,
    },
    /// The driver was kept from its work.
    Stalled {
        /// For how long.
        by: Duration,
    },
    /// An update cannot be written to the spool.
    SpoolFailed {
        /// The spool.
        folder: &'a Path,
        /// What the system says.
        #[serde(serialize_with = "as_text")]
        error: &'a std::io::Error,
        /// Bytes that are free, where the system says so.
        free: Option<u64>,
    },
    /// Updates can be written to the spool again.
    SpoolRecovered,
    /// A durable step waits for space on the disk.
    DiskFull {
        /// The file.
        path: &'a Path,
        /// What the system says.
        error: &'a str,
        /// Bytes that are free, where the system says so.
        free: Option<u64>,
    },
    /// Durable steps find space on the disk again.
    DiskRecovered,
    /// The database cannot be written.
    DatabaseFailed {
        /// What it says.
        error: &'a str,
    },
    /// The database can be written again.
    DatabaseRecovered,
    /// Several rounds in a row had too few acceptable updates.
    NoProgress {
        /// How many rounds.
        rounds: u32,
        /// Why updates were not accepted.
        reasons: &'a [String],
        /// Until the next round.
        pause: Duration,
    },
    /// More devices are known than a private run is for.
    Outgrown {
        /// How many are known.
        known: usize,
        /// `privacy.devices`.
        devices: u32,
    },
    /// The global model predicts few classes only.
    Collapsed {
        /// After which round.
        round: u32,
    },
    /// One device has most of the weight, or would have it.
    Dominates {
        /// In which round.
        round: u32,
        /// Which device, and how much.
        #[serde(flatten)]
        dominance: &'a Dominance,
    },
    /// The server's own training diverged.
    Diverged {
        /// In which round.
        round: u32,
    },
}

impl Notice<'_> {
    /// How much it matters to the operator.
    #[must_use]
    pub fn level(&self) -> Level {
        match self {
            Self::Status(_)
            | Self::Alive
            | Self::Opened { .. }
            | Self::Round(_)
            | Self::Result { shown: false, .. }
            | Self::SkippedSamples { shown: false, .. } => Level::Data,
            Self::Unidentified { .. } => Level::Aside,
            Self::SpoolFailed { .. }
            | Self::DiskFull { .. }
            | Self::DiskRecovered
            | Self::DatabaseFailed { .. }
            | Self::DatabaseRecovered
            | Self::NoProgress { .. }
            | Self::Outgrown { .. }
            | Self::Collapsed { .. }
            | Self::Dominates { .. }
            | Self::Diverged { .. } => Level::Alarm,
            _ => Level::Remark,
        }
    }
}

/// A peer as people know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// It has said who it is.
    Client(ClientId),
    /// It has not: the number of its connection.
    Connection(u64),
}

impl Display for Party {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Client(client) => write!(f, "client {}", called(*client)),
            Self::Connection(number) => write!(f, "connection {number}"),
        }
    }
}

fn as_text<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}
