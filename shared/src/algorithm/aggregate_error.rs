//! Failures of aggregation at the server.

use models::params::Mismatch;

use crate::aggregation::{EmptySum, MergeError, NotAChain, StoredError};

/// How the end of a round went: the server's state is the next one, or is not to be used.
pub type Closed = Result<(), AggregateError>;

/// Why a round could not be closed. Updates were checked, so a mismatch here is our bug.
#[derive(Debug, thiserror::Error)]
pub enum AggregateError {
    /// Nothing was folded.
    #[error(transparent)]
    Empty(#[from] EmptySum),
    /// The folded result does not fit the server's state.
    #[error("internal error: the folded update does not fit the server's state: {0}")]
    Mismatch(#[from] Mismatch),
    /// Partial results of the round do not belong together.
    #[error("internal error: {0}; please report this")]
    Merge(#[from] MergeError),
    /// The rule makes nothing of an update before all are there: it has no partial results that could be merged.
    #[error("the rule {rule} needs every update at once and has no partial results")]
    NeedsEveryUpdate {
        /// The rule's name.
        rule: &'static str,
    },
    /// Stored updates were given to an algorithm that folds them: our bug.
    #[error("internal error: this algorithm folds updates and was given stored ones; please report this")]
    Folded,
    /// Fewer updates than the rule needs. A configuration is refused under which a round may close with so few, so this
    /// is our bug.
    #[error(
        "internal error: {found} updates were accepted, and the rule {rule} needs at least {least}: this configuration \
         should have been refused; raise round.min-updates"
    )]
    TooFew {
        /// The rule's name.
        rule: &'static str,
        /// How many it needs.
        least: usize,
        /// How many there are.
        found: usize,
    },
    /// What clients have learned is to be mixed, and this algorithm has no model to mix. A configuration that asks for it is
    /// refused, so this is our bug.
    #[error("internal error: this algorithm has no model to mix: the configuration should have been refused")]
    NoMixture,
    /// The units of this network cannot be matched. A configuration with it is refused, so this is our bug.
    #[error("internal error: {0}: this configuration should have been refused; use another aggregation.rule")]
    NotAChain(#[from] NotAChain),
    /// An update that was stored cannot be read again.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// The new state holds a value that is not finite.
    #[error("tensor `{tensor}` of the new global model is not finite: lower the learning rate")]
    NotFinite {
        /// The tensor.
        tensor: String,
    },
}
