//! Verdicts on updates.

use serde::{Deserialize, Serialize};

/// The verdict on an update. Each arrival is exactly one of the three.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Verdict {
    /// It is durable at the server and part of the round.
    Accepted,
    /// It is not believed: the peer's fault.
    Rejected(Rejection),
    /// It is correct but not needed: no party's fault.
    Discarded(Discard),
}

impl Verdict {
    /// Whether the server has learned from the update, so that what its client keeps beside it is true as well: a control
    /// variate belongs to its device only once it is part of the server's, too. A duplicate's first copy was accepted: of one
    /// that was rejected the client hears that first.
    #[must_use]
    pub fn counts(&self) -> bool {
        matches!(self, Self::Accepted | Self::Discarded(Discard::Duplicate))
    }
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
    /// The payload is not a record.
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
        "tensor `{tensor}` holds a value of magnitude {found:.3e}, more than the {limit} that this round takes: training diverged on the device"
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
    /// The training loss is none.
    #[error("the reported training loss {loss} is not a finite number of at least 0")]
    Loss {
        /// As reported.
        loss: f64,
    },
    /// The model that it makes cannot be part of an ensemble. From version 6 on.
    #[error(
        "its model computes features that are not finite, or too large to be fused: training diverged on the device"
    )]
    Diverged,
    /// Something was sent in a round without training. From version 6 on.
    #[error("nothing was to be learned in this round, and something was sent")]
    NothingToLearn,
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
    /// The round has no result: too few devices stayed to take the masks of its sum away. From version 6 on.
    #[error("the round has no result: too few devices stayed until the end")]
    Void,
}
