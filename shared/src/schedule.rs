//! How the learning rate falls over a run.

use std::f64::consts::PI;
use std::ops::Bound::{Excluded, Included};

use crate::settings::Kind;

crate::choice! {
    /// The learning rate of round t = 1, ..., T as a share of the configured one. Within a round it does not change, unless
    /// `training.schedule-by-step` says so: then t is a fraction.
    pub enum Schedule {
        /// The learning rate is the same in all rounds
        Constant {}
        /// `gamma^(t - 1)`, as McMahan et al. (2017) use it for CIFAR-10 with 0.99
        Exponential {
            /// What is left of the learning rate after each round
            gamma: f64 = 0.99, in Kind::Number(Excluded(0.0), Included(1.0)), was "factor";
        }
        /// `min-factor + (1 - min-factor) (1 + cos(pi (t - 1) / T)) / 2`, half a cosine
        ///
        /// Loshchilov and Hutter 2017, arXiv 1608.03983.
        Cosine {
            /// Share of the learning rate that a cosine over all rounds ends near
            min_factor: f64 = 0.0, in Kind::PROBABILITY, was "last";
        }
    }
}

impl Schedule {
    /// Whether the rate of a round depends on how many rounds there are in all.
    #[must_use]
    pub fn depends_on_length(&self) -> bool {
        match self {
            Self::Constant {} | Self::Exponential { .. } => false,
            Self::Cosine { .. } => true,
        }
    }

    /// The share of the rate when `passed` of `rounds` rounds have passed.
    #[must_use]
    pub fn share(&self, passed: f64, rounds: u32) -> f64 {
        match *self {
            Self::Constant {} => 1.0,
            Self::Exponential { gamma } => gamma.powf(passed),
            Self::Cosine { min_factor } => {
                min_factor + (1.0 - min_factor) * 0.5 * (1.0 + (PI * passed / f64::from(rounds.max(1))).cos())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "powers of two are exact")]
    fn shares_are_those_of_the_formulas() {
        let shares = |schedule: Schedule| [0.0, 1.0, 2.0, 3.0].map(|passed| schedule.share(passed, 4));
        assert_eq!(shares(Schedule::default()), [1.0; 4]);
        assert_eq!(shares(Schedule::Exponential { gamma: 0.5 }), [1.0, 0.5, 0.25, 0.125]);
        let root = std::f64::consts::FRAC_1_SQRT_2;
        let expected = [1.0, 0.5 + 0.5 * root, 0.5, 0.5 - 0.5 * root];
        for last in [0.0, 0.2] {
            for (found, cosine) in shares(Schedule::Cosine { min_factor: last }).iter().zip(expected) {
                assert!((found - (last + (1.0 - last) * cosine)).abs() < 1e-15, "{found} {cosine}");
            }
        }
    }
}
