//! Aggregation: how the updates of a round become one step of the global model.
//!
//! Four axes of the configuration, each independent of the others and of the algorithm:
//!
//! | axis | key | what it settles |
//! |---|---|---|
//! | [`Weights`] | `aggregation.weights` | how much each update counts |
//! | [`Rule`] | `aggregation.rule` | how many updates become one: their mean, or something more robust |
//! | [`ServerOptimizer`] | `aggregation.server-optimizer` | how the server steps along the outcome, the pseudo-gradient |
//! | [`Buffers`] | `aggregation.buffers` | whether statistics of normalisation layers are averaged or stay on the device |
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
mod noise;
mod optimizer;
mod rule;
mod scale;
mod stored;
mod template;
mod trimmed_mean;
mod weighted_sum;
mod weights;

pub use buffers::Buffers;
pub use chain::{Chain, NotAChain};
pub use clipping::Clip;
pub use exact_sum::{EmptySum, ExactSum, MergeError};
pub(crate) use matching::Matching;
pub use mixture::{Mixture, NotAMixture};
pub use noise::{
    AdaptiveClip, DeviceNoise, LEAST_CLIP, LEAST_COUNT_NOISE, LEAST_NOISE, MOST_CLIP, MOST_COUNT_NOISE,
    MOST_NOISE, Mechanism, NoisedShare, Private,
};
pub use optimizer::ServerOptimizer;
pub use rule::Rule;
pub use scale::Scale;
pub use stored::{Chunk, Contributor, StoredError, StoredUpdates};
pub use template::Template;
pub use weighted_sum::WeightedSum;
pub use weights::Weights;
pub(crate) use weights::{loss_of, whole_loss};

crate::named!(Weights, Buffers);

crate::section! {
    /// What happens to the updates, with a value for each axis.
    #[derive(Copy)]
    pub struct Aggregation {
        /// An update counts by its samples, uniform: like all others, or by its loss (FedLoss)
        pub weights: Weights = Weights::default();
        /// How updates become one
        pub rule: Rule = Rule::default();
        /// How the server steps along it
        pub server_optimizer: ServerOptimizer = ServerOptimizer::default(), was "server";
        /// Statistics of normalisation layers: average, or local (each client keeps its own)
        pub buffers: Buffers = Buffers::default(), was "update.buffers";
    }
}
