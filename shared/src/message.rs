//! The messages, one enum per direction.
//!
//! They are postcard inside [frames](crate::frame). A message marked *with payload* is followed by a
//! [`Parcel`](crate::parcel::Parcel) in the safetensors format, on a stream of its own, so that a large
//! model never delays a heart-beat. postcard is not self-describing: enum variants are numbered by their
//! order here, so new variants go last, and the golden bytes in `tests/golden/` guard the encoding.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::eligibility::{Eligibility, Unready};
use crate::id::{ClientId, RunId};
use crate::identity::PublicKey;
use crate::personalisation::Method;
use crate::spec::RunSpec;
use crate::ticket::TicketSecret;

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
    /// Sign of life, every [`RunSpec::heartbeat`], also while training.
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
    Partial(Partial),
    /// The rest of an update whose first bytes the server [has](ToClient::Partial). *With payload.*
    UpdateRest {
        /// As with the first part.
        header: UpdateHeader,
        /// Bytes of the payload that the server has.
        offset: u64,
    },
    /// The client is not in a state to train in `round`, as the [conditions](ToClient::Conditions) ask for, and stays in the run.
    /// It may be asked again.
    NotNow {
        /// The round it was asked to train in.
        round: u32,
        /// What is in the way.
        reason: Unready,
    },
}

/// Server to client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToClient {
    /// Answer to [`ToServer::Hello`]: the client takes part.
    Welcome {
        /// The run.
        spec: Box<RunSpec>,
        /// The open round that still wants this client's update. A client that holds the update or the task
        /// of any other round may forget it; one that holds nothing is sent the task.
        wants: Option<u32>,
    },
    /// Answer to [`ToServer::Hello`]: it does not. Nothing follows.
    Refused(Refusal),
    /// Work on what is broadcast in `round`, and answer with an update. *With payload.*
    Task {
        /// The round.
        round: u32,
        /// What is to be done.
        work: Work,
    },
    /// What became of the update of `round`; the client may forget it.
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
    Partial(Partial),
    /// The rest of a task whose first bytes the client [has](ToServer::Partial). *With payload.*
    TaskRest {
        /// The round.
        round: u32,
        /// What is to be done.
        work: Work,
        /// Bytes of the payload that the client has.
        offset: u64,
    },
    /// What the run asks of the device whenever it is to train. Before the welcome, if there is anything. A device of an older version
    /// is not told, and trains whenever it is asked.
    Conditions(Eligibility),
}

/// The beginning of a payload that a connection did not bring to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partial {
    /// The round that it belongs to.
    pub round: u32,
    /// How much of it is there.
    pub bytes: u64,
    /// SHA-256 of that much.
    pub digest: [u8; 32],
}

impl Partial {
    /// Fewer bytes are not worth a word.
    pub const WORTH: usize = 256 << 10;

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

/// What a client is asked to do with the model that it is sent; any of these together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Train it and send what was learned. Without this the update is an empty payload, and its report is what counts.
    pub train: bool,
    /// Test it, as it was sent, on the device's own test samples.
    pub evaluate: bool,
    /// Make personal models from it, as it was sent, and test them: as [`RunSpec::personalisation`] says.
    pub personalise: bool,
}

impl Work {
    /// Training alone.
    pub const TRAIN: Self = Self { train: true, evaluate: false, personalise: false };

    /// Whether anything is measured of the model that clients are sent.
    #[must_use]
    pub fn tests(self) -> bool {
        self.evaluate || self.personalise
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
    pub holds: Option<Held>,
}

/// A task in a client's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The run it belongs to.
    pub run: RunId,
    /// The round it belongs to.
    pub round: u32,
}

/// How far local training is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The round in training, if any.
    pub round: Option<u32>,
    /// Optimiser steps done.
    pub done: u64,
    /// Optimiser steps to do.
    pub total: u64,
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

/// What a report has room for.
pub type Metrics = [Option<Metric>; MAX_METRICS];

/// Two of training, two of a test, and of personalisation the tests of the global model and of five others, and two gates.
pub const MAX_METRICS: usize = 12;

/// What a client measures of its local training if the run asks for it. New ones go last.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Metric {
    /// Mean cosine of the representations by the trained and by the global model, on data of the device.
    Alignment(f64),
    /// Euclidean length of what was learned, `||w_k - w_t||`.
    Drift(f64),
    /// Share of the device's own test samples that the model it was sent classifies correctly.
    OwnAccuracy(f64),
    /// Mean cross-entropy of that model on them, in nats.
    OwnLoss(f64),
    /// Share of the samples whose pseudo-label was sure enough to be learned.
    Coverage(f64),
    /// Share of the classes that were predicted for any sample.
    ClassCoverage(f64),
    /// Mean entropy of the predictions, as a share of the greatest possible.
    Entropy(f64),
    /// The tests of personalisation: of the model that it was sent, or of the one that it has made of it by this method. On the
    /// device's test samples, once with classes as frequent as among its training samples (local test), and once as they are
    /// (global test).
    Tests(Option<Method>, Option<Fraction>, Option<Fraction>),
    /// Mean weight of the global expert in the mixture of this method.
    Gate(Method, f64),
}

/// A number from 0 to 1 in 32 bits, so that both tests of a model take no more room than any other metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fraction(NonZeroU32);

impl Fraction {
    /// The closest to a number.
    #[must_use]
    pub fn of(value: f64) -> Self {
        Self(NonZeroU32::MIN.saturating_add((value.clamp(0.0, 1.0) * Self::PARTS).round() as u32))
    }

    /// The number, from 0 to 1.
    #[must_use]
    pub fn value(self) -> f64 {
        f64::from(self.0.get() - 1) / Self::PARTS
    }

    const PARTS: f64 = (u32::MAX - 1) as f64;
}

impl Metric {
    /// Its numbers with their names in `rounds.jsonl`. A peer may have sent any.
    pub fn values(self) -> impl Iterator<Item = (&'static str, f64)> {
        let one = |name, value| [Some((name, value)), None];
        let values = match self {
            Self::Alignment(value) => one("alignment", value),
            Self::Drift(value) => one("drift", value),
            Self::OwnAccuracy(value) => one("own-accuracy", value),
            Self::OwnLoss(value) => one("own-loss", value),
            Self::Coverage(value) => one("coverage", value),
            Self::ClassCoverage(value) => one("class-coverage", value),
            Self::Entropy(value) => one("entropy", value),
            Self::Tests(of, local, global) => {
                let [of_local, of_global] = test_names(of);
                let named = |name, test: Option<Fraction>| Some((name, test?.value()));
                [named(of_local, local), named(of_global, global)]
            }
            Self::Gate(of, value) => one(gate_name(of), value),
        };
        values.into_iter().flatten()
    }

    /// Whether it is of the model that the client was sent, or of what it has made of that: of the round before, and not of the
    /// training.
    #[must_use]
    pub fn is_of_model(self) -> bool {
        match self {
            Self::Alignment(_)
            | Self::Drift(_)
            | Self::Coverage(_)
            | Self::ClassCoverage(_)
            | Self::Entropy(_) => false,
            Self::OwnAccuracy(_) | Self::OwnLoss(_) | Self::Tests(..) | Self::Gate(..) => true,
        }
    }

    /// Whether a metric of this name is a share, in `[0, 1]`, of samples that were classified correctly.
    #[must_use]
    pub fn is_share(name: &str) -> bool {
        name.ends_with("accuracy") || name.ends_with("-test")
    }
}

fn test_names(of: Option<Method>) -> [&'static str; 2] {
    match of {
        None => ["local-test", "global-test"],
        Some(Method::Ft) => ["ft-local-test", "ft-global-test"],
        Some(Method::Fb) => ["fb-local-test", "fb-global-test"],
        Some(Method::Mf) => ["mf-local-test", "mf-global-test"],
        Some(Method::Mfe) => ["mfe-local-test", "mfe-global-test"],
        Some(Method::Fixed) => ["fixed-local-test", "fixed-global-test"],
    }
}

fn gate_name(of: Method) -> &'static str {
    match of {
        Method::Ft => "ft-gate",
        Method::Fb => "fb-gate",
        Method::Mf => "mf-gate",
        Method::Mfe => "mfe-gate",
        Method::Fixed => "fixed-gate",
    }
}

/// Why a client may not take part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// Its samples have another shape than the model's input.
    #[error(
        "this run's model takes samples of shape {expected:?}, the device's data has {found:?}: use other data or another model"
    )]
    Shape {
        /// What the model takes.
        expected: Vec<u32>,
        /// What the device has.
        found: Vec<u32>,
    },
    /// Its labels are drawn from another number of classes.
    #[error(
        "this run's model tells {expected} classes apart, the device's labels have {found}: use other data or another model"
    )]
    Classes {
        /// What the model tells apart.
        expected: u32,
        /// What the device has.
        found: u32,
    },
    /// It has no training samples.
    #[error("the device has no training samples: check its data directory")]
    NoSamples,
    /// Another connection of the same client took over.
    #[error(
        "another connection with this identity took over: is the client running twice on one state directory?"
    )]
    Replaced,
    /// A second hello came, or an update without a payload.
    #[error("the client broke the protocol: {0}")]
    Protocol(String),
    /// Its samples have no labels, and are to be learned from with labels.
    #[error(
        "this run learns from labels on the devices, and the device's samples are unlabelled: leave --unlabelled out, or \
         join a run whose labels are at the server"
    )]
    Unlabelled,
    /// It says that it is another device than the one whose key it has.
    #[error(
        "the device has another key than the one that its id belongs to: the server knows it as {known}; remove the file          `identity` in its state directory to take part as a new device"
    )]
    Identity {
        /// The id of the key that it has proved.
        known: ClientId,
    },
    /// The server does not know the device, which has no ticket.
    #[error(
        "the server does not know this device: ask its operator for a ticket (`aggregator ticket`) and join with that"
    )]
    Unknown,
    /// The device waits for the operator's approval. It may come again.
    #[error(
        "the operator has to approve this device first: `aggregator devices approve {client}` on the server's machine"
    )]
    Pending {
        /// The device.
        client: ClientId,
    },
    /// The operator has thrown the device out.
    #[error("the operator has revoked this device: ask for a new ticket if that was a mistake")]
    Revoked,
    /// There is no such ticket at this server.
    #[error(
        "the server knows no such ticket: it was withdrawn, or is of another server; ask its operator for a new one"
    )]
    TicketUnknown,
    /// The ticket has expired.
    #[error("the ticket has expired: ask the server's operator for a new one")]
    TicketExpired,
    /// As many devices as it was made for have used the ticket.
    #[error(
        "the ticket was used by as many devices as it was made for: ask the server's operator for a new one"
    )]
    TicketUsedUp,
}

impl Refusal {
    /// May the reason pass by itself, so that the device had better come again?
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Pending { .. })
    }
}

/// What became of an update. Each arrival is exactly one of the three.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Verdict {
    /// It is durable at the server and part of the round.
    Accepted,
    /// It is not believed: the peer's fault.
    Rejected(Rejection),
    /// It is fine but of no use: nobody's fault.
    Discarded(Discard),
}

/// Why an update is not believed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
pub enum Rejection {
    /// The client was not asked in this round.
    #[error("this client is not in the cohort of round {round}")]
    NotInCohort {
        /// The round.
        round: u32,
    },
    /// The round lies in the future.
    #[error("the update is for round {round}, but round {current} is the newest that was ever opened")]
    UnknownRound {
        /// The round it claims.
        round: u32,
        /// The round that is open.
        current: u32,
    },
    /// The payload is not a parcel.
    #[error("the payload does not decode: {reason}")]
    Malformed {
        /// What the decoder says.
        reason: String,
    },
    /// A tensor is missing, extra or of another shape.
    #[error("the update does not fit the model: {reason}")]
    Layout {
        /// Which tensor, and how.
        reason: String,
    },
    /// A value is NaN or infinite.
    #[error("tensor `{tensor}` holds a value that is not finite: training diverged on the device")]
    NotFinite {
        /// The tensor.
        tensor: String,
    },
    /// A value is larger than any honest update's.
    #[error(
        "tensor `{tensor}` holds a value of magnitude {found}, more than the {limit} that this round takes: training diverged on the device"
    )]
    TooLarge {
        /// The tensor.
        tensor: String,
        /// The largest magnitude.
        found: f32,
        /// The round's bound.
        limit: f32,
    },
    /// The sample count differs from what the client declared at joining.
    #[error("the client declared {declared} samples when the round opened and reports {reported} now")]
    Samples {
        /// When the round opened.
        declared: u64,
        /// In the update.
        reported: u64,
    },
    /// The training loss is not a number.
    #[error("the reported training loss {loss} is not a finite number")]
    Loss {
        /// As reported.
        loss: f64,
    },
}

/// Why a fine update is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Discard {
    /// The round had closed.
    #[error("it came after the round had closed")]
    Late,
    /// The client's update for this round has had its verdict.
    #[error("an update of this client for this round was dealt with before")]
    Duplicate,
}
