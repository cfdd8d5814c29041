//! How much each update counts in a round's mean.

use serde::{Deserialize, Serialize};

/// Aggregation weights, one axis of the configuration, independent of the algorithm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Weights {
    /// `n_k / sum_j n_j` over the cohort (FedAvg, McMahan et al. 2017, equation 1).
    #[default]
    Samples,
    /// `1 / m`, every client alike.
    Uniform,
}

impl Weights {
    /// The integer weight of a client with `samples` training samples. Weights stay integers so that
    /// sums of them are exact; the division happens once, when the round closes.
    #[must_use]
    pub fn of(self, samples: u64) -> u64 {
        match self {
            Self::Samples => samples,
            Self::Uniform => 1,
        }
    }
}
