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
    /// `(1 - l_k / sum_j l_j) / (m - 1)` with the mean local training losses `l_k` (`FedLoss`, Wang et al. 2022): who has
    /// learned worst counts least. A single client counts 1; if all losses are 0, all count alike.
    Loss,
}

/// What one unit of a whole-numbered loss is worth: losses count in units of `2^-24` nats.
const LOSS_UNIT: f64 = 1.0 / 16_777_216.0;

/// The greatest whole-numbered loss, 256 nats. A larger loss counts as this one: it says that a model is useless, and
/// the resolution of the sums is shared out by the largest weight.
pub(super) const MAX_LOSS: u64 = 1 << 32;

/// The greatest whole-numbered loss that counts as a small one, `2^-8` nats.
pub(super) const SMALL_LOSS: u64 = 1 << 16;

impl Weights {
    /// The integer weight of a client with `samples` training samples. Weights stay integers so that
    /// sums of them are exact; the division happens once, when the round closes. Those by loss depend on the whole
    /// cohort's and are made then: until then every update counts 1.
    #[must_use]
    pub fn of(self, samples: u64) -> u64 {
        match self {
            Self::Samples => samples,
            Self::Uniform | Self::Loss => 1,
        }
    }
}

/// A loss as a whole number; `None` for one that is none: negative, infinite or NaN.
pub(crate) fn whole_loss(loss: f64) -> Option<u64> {
    if !loss.is_finite() || loss < 0.0 {
        return None;
    }
    // Saturates, and `MAX_LOSS` is far below what saturates.
    Some(((loss / LOSS_UNIT).round() as u64).min(MAX_LOSS))
}

/// The loss that a whole number stands for.
pub(crate) fn loss_of(whole: u64) -> f64 {
    whole as f64 * LOSS_UNIT
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_become_whole_numbers() {
        assert_eq!(whole_loss(0.0), Some(0));
        assert_eq!(whole_loss(2.5), Some(5 << 23));
        assert_eq!(whole_loss(256.0), Some(MAX_LOSS));
        assert_eq!(whole_loss(1e300), Some(MAX_LOSS));
        for no_loss in [f64::NAN, f64::INFINITY, -1e-3] {
            assert_eq!(whole_loss(no_loss), None, "{no_loss}");
        }
    }
}
