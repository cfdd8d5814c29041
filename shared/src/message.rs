//! The messages, one enum per direction.
//!
//! They are postcard inside [frames](crate::frame). A message marked *with payload* is followed by a
//! [`Record`](crate::record::Record) in the safetensors format, on a stream of its own, so that a large
//! model never delays a heart-beat. postcard is not self-describing: enum variants are numbered by their
//! order here, so new variants go last, and the golden bytes in `tests/golden/` guard the encoding.

pub mod counted_update;
mod metric;
pub mod positional;
mod refusal;
pub mod secure;
mod servers;
mod verdict;

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::differences::Digest;
use crate::eligibility::{Eligibility, Ineligible};
use crate::id::{ClientId, RunId};
use crate::identity::PublicKey;
use crate::spec::SpecText;
pub use crate::task::{Progress, Purpose, TaskKind};
use crate::ticket::TicketSecret;
use positional::PositionalSpec;

pub use counted_update::CountedUpdate;
pub use metric::{Fraction, MAX_METRICS, Metric, Metrics};
pub use refusal::Refusal;
pub use secure::{Rounding, SecureAnswer, SecureStep};
pub use servers::MAX_SERVERS;
pub use verdict::{Discard, Rejection, Verdict};

/// Characters of a reason that a message carries.
const MAX_REASON: usize = 300;

/// What `error` says, cut to a length that any message has room for. Errors quote what a peer sent, a tensor's name of
/// a megabyte for example, and a message that does not fit into a frame cannot be sent.
#[must_use]
pub fn reason(error: &impl fmt::Display) -> String {
    error.to_string().chars().take(MAX_REASON).collect()
}

/// Client to server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToServer {
    /// The first message on every connection, but for a ticket.
    Hello(Hello),
    /// Sign of life, every [`RunSpec::heartbeat`](crate::spec::RunSpec::heartbeat), also while training.
    Heartbeat(Progress),
    /// The trained update of `round`. *With payload.*
    Update(UpdateHeader),
    /// The client could not train in `round`; it stays in the run.
    Failed {
        /// The round it was asked to train in.
        round: u32,
        /// What went wrong, for the operator.
        reason: String,
    },
    /// The client leaves on purpose. Nothing follows.
    Goodbye,
    /// Lets a device in that the server does not know yet: the one message that may come before the hello.
    Redeem(TicketSecret),
    /// A part of a task is here from an earlier connection: its rest is enough. Before the hello, like a ticket.
    ResumePoint(ResumePoint),
    /// The rest of an update whose first bytes the server [has](ToClient::ResumePoint). *With payload.*
    UpdateRest {
        /// As with the first part.
        header: UpdateHeader,
        /// Bytes of the payload that the server has.
        offset: u64,
    },
    /// The client is not in a state to train in `round`, as the [conditions](ToClient::Conditions) ask for, and stays in the run.
    /// It may be asked again.
    Ineligible {
        /// The round it was asked to train in.
        round: u32,
        /// What is in the way.
        reason: Ineligible,
    },
    /// Number of samples that the device skips as unusable, as its user has allowed. After every welcome, also if
    /// there are none: there may have been some before. Which, and why, stays there: names of files are its owner's.
    SkippedSamples {
        /// Training samples. They are not among those of the hello.
        samples: u64,
    },
    /// The device cannot follow the run's specification, or has no memory for it, and leaves. Nothing follows.
    Declined {
        /// What in it the device does not know or have, for the operator.
        reason: String,
    },
    /// Which [client state](crate::client_state) the device keeps of the run. After a welcome that [`ToClient::Counted`] came before,
    /// once. A device that does not know, since an earlier program wrote its state, says nothing.
    ClientState {
        /// The update that it stands after; `None` if there is none.
        after: Option<CountedUpdate>,
    },
    /// The run has its models tested on its devices, and this one has nothing to test them on; it trains all the same. After a
    /// welcome, as soon as the device has looked.
    Untested {
        /// What is missing, for the operator.
        reason: String,
    },
    /// The device has a task and not the [frozen parameters](models::Frozen) that the run's specification names. After a welcome,
    /// once a connection; [`ToClient::Frozen`] is the answer.
    WantsFrozen {
        /// Their digest.
        digest: String,
    },
    /// Answer to [`ToClient::Secure`].
    Secure {
        /// The round.
        round: u32,
        /// The number of the exchange in it.
        attempt: u32,
        /// The answer.
        answer: Box<SecureAnswer>,
    },
    /// The device has the model of this digest: [differences](crate::differences) to it are enough. Before the hello, like a ticket, and
    /// once a [`ToClient::BaseTask`] has arrived.
    Base {
        /// Its digest.
        digest: Digest,
    },
}

impl ToServer {
    /// Whether it is the last message of a device on its connection: nothing follows.
    #[must_use]
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Goodbye | Self::Declined { .. })
    }
}

/// Server to client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToClient {
    /// [`ToClient::Welcome`] to a device of a version before 6.
    PositionalWelcome {
        /// The run.
        spec: Box<PositionalSpec>,
        /// As in the welcome.
        wants: Option<u32>,
    },
    /// Answer to [`ToServer::Hello`]: it does not. Nothing follows.
    Refused(Refusal),
    /// Work on what is broadcast in `round`, and answer with an update. *With payload.*
    Task {
        /// The round.
        round: u32,
        /// What is to be done.
        work: TaskKind,
    },
    /// The verdict on the update of `round`; the client may forget it. Before the welcome, if it has counted already and the client
    /// comes with it.
    Receipt {
        /// The round that the update was for.
        round: u32,
        /// Accepted, rejected or discarded.
        verdict: Verdict,
    },
    /// The run is over, or the server goes away for good. Nothing follows.
    Finished {
        /// Rounds that the run has completed.
        rounds: u32,
    },
    /// The server has another key from now on: the device is to believe that one, and this one no longer. It is believed since
    /// it comes from the server that was believed so far.
    ServerKey {
        /// The new key.
        key: PublicKey,
    },
    /// A part of the client's update is here from an earlier connection: its rest is enough. Before the welcome.
    ResumePoint(ResumePoint),
    /// The rest of a task whose first bytes the client [has](ToServer::ResumePoint). *With payload.*
    TaskRest {
        /// The round.
        round: u32,
        /// What is to be done.
        work: TaskKind,
        /// Bytes of the payload that the client has.
        offset: u64,
    },
    /// What the run asks of the device whenever it is to train. Before the welcome, if there is anything. A device of an older version
    /// is not told, and trains whenever it is asked.
    Conditions(Eligibility),
    /// Answer to [`ToServer::Hello`]: the client takes part.
    Welcome {
        /// The run.
        spec: SpecText,
        /// The round whose update is still wanted of this client, or kept until it is known whether it counts. A client that holds the
        /// update or the task of any other round may forget it; one that holds nothing is sent the task of the open round.
        wants: Option<u32>,
    },
    /// Which [client state](crate::client_state) the device must have, by what the server knows. Before the welcome, in runs whose
    /// clients keep any.
    Counted {
        /// The client's last update of training that counted; `None` if none has.
        update: Option<CountedUpdate>,
    },
    /// Answer to a hello that [asks](Hello::asks): how the run's samples are to be read. Nothing follows; the device comes again
    /// once it has read them.
    Samples {
        /// A [`Reading`](crate::spec::Reading) as text, which can grow.
        reading: String,
    },
    /// A task, or the rest of one, of a run in which rounds of training have failed: those do not move the schedule of the learning
    /// rate on. *With payload.* A device of an older version is sent the others, and takes its rate from the round's number.
    TaskAfterFailures {
        /// The round.
        round: u32,
        /// What is to be done.
        work: TaskKind,
        /// Rounds of training before it that have failed.
        failed: u32,
        /// Bytes of the payload that the client has.
        offset: u64,
    },
    /// The frozen parameters that the device [wants](ToServer::WantsFrozen). *With payload*: their encoding, whose SHA-256 is the
    /// digest.
    Frozen {
        /// Their digest.
        digest: String,
    },
    /// A step of the exchange that hides the updates of `round`.
    Secure {
        /// The round.
        round: u32,
        /// The number of the exchange in it, from 0: it begins again where too few devices stay.
        attempt: u32,
        /// The step.
        step: Box<SecureStep>,
    },
    /// A task, or the rest of one, of a run whose models travel as [differences](crate::differences). The device has the model from then
    /// on, and [says so](ToServer::Base). *With payload.*
    BaseTask {
        /// The round.
        round: u32,
        /// What is to be done.
        work: TaskKind,
        /// Rounds of training before it that have failed.
        failed: u32,
        /// Bytes of the payload that the client has.
        offset: u64,
        /// The digest of the model.
        digest: Digest,
        /// The lengths of the differences that the payload consists of, the oldest first; none if it is the model itself.
        differences: Vec<u64>,
    },
    /// Where the server is reached, with the same key everywhere: the device keeps the newest list, and tries these addresses beside
    /// those that its owner gave it. After the welcome, once a connection, if there are any. An empty list removes the former one.
    Servers {
        /// `HOST:PORT` or `IP:PORT`, at most [`MAX_SERVERS`].
        #[serde(deserialize_with = "servers::bounded")]
        addresses: Vec<String>,
    },
}

/// A task or the rest of one, whichever message it came with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskHeader {
    /// The round.
    pub round: u32,
    /// What is to be done.
    pub work: TaskKind,
    /// Rounds of training before it that have failed.
    pub failed: u32,
    /// Bytes of the payload that the client has.
    pub offset: u64,
}

impl ToClient {
    /// The task that this message is about, if it is about one.
    #[must_use]
    pub fn task(&self) -> Option<TaskHeader> {
        match *self {
            Self::Task { round, work } => Some(TaskHeader { round, work, failed: 0, offset: 0 }),
            Self::TaskRest { round, work, offset } => Some(TaskHeader { round, work, failed: 0, offset }),
            Self::TaskAfterFailures { round, work, failed, offset }
            | Self::BaseTask { round, work, failed, offset, .. } => {
                Some(TaskHeader { round, work, failed, offset })
            }
            _ => None,
        }
    }
}

/// The beginning of a payload that a connection did not bring to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResumePoint {
    /// The round that it belongs to.
    pub round: u32,
    /// How much of it is there.
    pub bytes: u64,
    /// SHA-256 of that much.
    pub digest: [u8; 32],
}

impl ResumePoint {
    /// Fewer bytes are not worth a word.
    pub const MIN_BYTES: usize = 256 << 10;

    /// The beginning of a payload of `round`.
    #[must_use]
    pub fn of(round: u32, beginning: &[u8]) -> Self {
        Self { round, bytes: beginning.len() as u64, digest: Sha256::digest(beginning).into() }
    }

    /// Is it the beginning of `payload`, and not all of it? Then the rest begins here.
    #[must_use]
    pub fn offset_in(&self, round: u32, payload: &[u8]) -> Option<usize> {
        let offset = usize::try_from(self.bytes).ok()?;
        let beginning = payload.get(..offset).filter(|beginning| beginning.len() < payload.len())?;
        (*self == Self::of(round, beginning)).then_some(offset)
    }
}

/// Who is there, and what it still holds from before the connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The device's identity: the [fingerprint](crate::identity::PublicKey::client) of the key that it has proved.
    pub client: ClientId,
    /// Name and version of the client program, for the operator.
    pub software: String,
    /// Training samples on the device.
    pub samples: u64,
    /// Shape of one sample.
    pub shape: Vec<u32>,
    /// Number of classes its labels are drawn from.
    pub classes: u32,
    /// The task that the device is still working on or has finished, so that it is not given again.
    pub holds: Option<TaskId>,
}

impl Hello {
    /// The hello of a device that has not read its samples, and asks how: it has none, of no shape and no class. An older server
    /// refuses it for the shape.
    #[must_use]
    pub fn asking(client: ClientId, software: String) -> Self {
        Self { client, software, samples: 0, shape: Vec::new(), classes: 0, holds: None }
    }

    /// Whether it asks how samples are read.
    #[must_use]
    pub fn asks(&self) -> bool {
        self.samples == 0 && self.shape.is_empty() && self.classes == 0
    }
}

/// A task in a client's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskId {
    /// The run it belongs to.
    pub run: RunId,
    /// The round it belongs to.
    pub round: u32,
}

/// What accompanies an update.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpdateHeader {
    /// The round it was trained in.
    pub round: u32,
    /// How the training went.
    pub report: TrainReport,
}

/// How a round of local training went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainReport {
    /// Training samples used, `n_k`.
    pub samples: u64,
    /// Optimiser steps taken, `tau_k`.
    pub steps: u64,
    /// Mean training loss over the steps, `l_k`.
    pub loss: f64,
    /// Wall time of the training on the device.
    pub duration: Duration,
    /// What was measured beside that, each at most once.
    pub metrics: Metrics,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_says_nothing_after_its_goodbye_or_after_it_has_declined() {
        assert!(ToServer::Goodbye.is_last());
        assert!(ToServer::Declined { reason: "privacy.clip".to_owned() }.is_last());
        assert!(!ToServer::Heartbeat(Progress::default()).is_last());
        assert!(!ToServer::Failed { round: 1, reason: "full".to_owned() }.is_last());
    }
}
