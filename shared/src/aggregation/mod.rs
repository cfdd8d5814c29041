//! Aggregation: how the updates of a round become one step of the global model.
//!
//! Four axes of the configuration, each independent of the others and of the algorithm:
//!
//! | axis | key | what it settles |
//! |---|---|---|
//! | [`Weights`] | `aggregation.weights` | how much each update counts |
//! | [`Rule`] | `aggregation.rule` | how many updates become one: their mean, or something more robust |
//! | [`ServerOptimizer`] | `aggregation.server` | how the server steps along the outcome, the pseudo-gradient |
//! | [`Buffers`] | `update.buffers` | whether statistics of normalisation layers are averaged or stay on the device |
//!
//! What comes of them may be mixed with a model that the server has trained itself, and with the one that the round began
//! with ([`Mixture`]).
//!
//! Sums are exact ([`ExactSum`]): the outcome is bitwise the same for any order of arrival.

mod assignment;
mod buffers;
mod bulyan;
mod chain;
mod clipping;
mod columns;
mod distances;
mod exact_sum;
mod krum;
mod matching;
mod median;
mod mixture;
mod optimizer;
mod rule;
mod stored;
mod template;
mod trimmed_mean;
mod weighted_sum;
mod weights;

use serde::{Deserialize, Serialize};

pub use buffers::Buffers;
pub use chain::{Chain, NotAChain};
pub use clipping::Clip;
pub use exact_sum::{EmptySum, ExactSum, MergeError, Scale};
pub(crate) use matching::Matching;
pub use mixture::{Mixture, NotAMixture};
pub use optimizer::{Adagrad, Adam, ServerOptimizer, ServerSgd, Yogi};
pub use rule::Rule;
pub use stored::{Chunk, Contributor, StoredError, StoredUpdates};
pub use template::Template;
pub use weighted_sum::WeightedSum;
pub use weights::Weights;

/// What a run's aggregation does, with a value for each axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Aggregation {
    /// How much each update counts.
    pub weights: Weights,
    /// How updates become one.
    pub rule: Rule,
    /// How the server steps along it.
    pub server: ServerOptimizer,
    /// The aggregation of the statistics of normalisation layers.
    pub buffers: Buffers,
}
