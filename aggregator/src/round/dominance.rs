//! Dominance: one device has most of a round's weight, or would have had it.

use std::fmt;

use serde::{Deserialize, Serialize};
use shared::id::ClientId;

use crate::names::called;

use super::SampleCap;

/// More than this share of the weight of three or more updates dominates a round.
const MOST: f64 = 0.9;

/// Of fewer updates one always has much of the weight.
const LEAST: usize = 3;

/// The update with the most samples of a round, if it has more than nine tenths of the weight of three or more, or if its weight
/// was bounded. Where updates are weighed by samples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dominance {
    /// The device; of several alike, the one with the smallest id.
    pub client: ClientId,
    /// The samples that it says it has trained on.
    pub samples: u64,
    /// Their share of all samples of the round's updates, in `(0, 1]`.
    pub share_of_samples: f64,
    /// The share of the weight that it had, in `(0, 1]`.
    pub share_of_weight: f64,
    /// Number of updates whose weight was bounded.
    pub bounded: usize,
}

/// `client 3fa9c1d2 has 97.31 % of the weight (12000 samples)`
impl fmt::Display for Dominance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { client, samples, share_of_samples, share_of_weight, bounded } = self;
        // Cut and not rounded: what others have left is something.
        let percent = |share: &f64| (share * 1e4).floor() / 1e2;
        let (client, weight) = (called(*client), percent(share_of_weight));
        if *bounded == 0 {
            return write!(f, "client {client} has {weight:.2} % of the weight ({samples} samples)");
        }
        let declared = percent(share_of_samples);
        write!(
            f,
            "client {client} declares {declared:.2} % of the samples ({samples}), and its weight was bounded to {weight:.2} %"
        )?;
        match bounded - 1 {
            0 => Ok(()),
            others => write!(f, ", as that of {others} others was"),
        }
    }
}

impl Dominance {
    /// Of a round with updates of these numbers of samples, and this cap.
    #[must_use]
    pub fn among(updates: impl Iterator<Item = (ClientId, u64)>, cap: SampleCap) -> Option<Self> {
        let updates: Vec<_> = updates.collect();
        let sum = |of: &dyn Fn(u64) -> u64| -> u128 {
            updates.iter().map(|&(_, samples)| u128::from(of(samples))).sum()
        };
        let share = |of: &dyn Fn(u64) -> u64, samples| of(samples) as f64 / sum(of).max(1) as f64;
        let (all, capped) = (|samples| samples, |samples| cap.of(samples));
        let &(client, samples) =
            updates.iter().min_by_key(|(client, samples)| (std::cmp::Reverse(*samples), *client))?;
        let found = Self {
            client,
            samples,
            share_of_samples: share(&all, samples),
            share_of_weight: share(&capped, samples),
            bounded: updates.iter().filter(|(_, samples)| cap.of(*samples) < *samples).count(),
        };
        let most = updates.len() >= LEAST && found.share_of_weight > MOST;
        (most || found.bounded > 0).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round::WeightBounds;

    fn among(samples: &[u64], bounds: WeightBounds) -> Option<Dominance> {
        let updates = (1..).map(|n| ClientId::from_bytes([n; 16])).zip(samples.iter().copied());
        Dominance::among(updates, bounds.cap(samples.iter().copied()))
    }

    #[test]
    fn a_bounded_device_is_named_with_both_shares() {
        let bounds = WeightBounds { ratio: 100, share: 0.5 };
        let found = among(&[300, 1 << 32, 300, 300], bounds).expect("its weight was bounded");
        assert_eq!((found.client, found.samples, found.bounded), (ClientId::from_bytes([2; 16]), 1 << 32, 1));
        assert!(found.share_of_samples > 0.999_999, "{found:?}");
        assert!((found.share_of_weight - 0.5).abs() < 1e-12, "{found:?}");
        let said = "client 02020202 declares 99.99 % of the samples (4294967296), and its weight was bounded to 50.00 %";
        assert_eq!(found.to_string(), said);
        assert_eq!(Dominance { bounded: 3, ..found }.to_string(), format!("{said}, as that of 2 others was"));
        assert_eq!(among(&[300, 500, 300, 300], bounds), None);
    }

    #[test]
    fn without_a_bound_nine_tenths_of_three_updates_are_told() {
        let found = among(&[100, 9000, 100], WeightBounds::NONE).expect("97.8 %");
        assert_eq!(found.bounded, 0);
        assert!((found.share_of_weight - 9000.0 / 9200.0).abs() < 1e-12, "{found:?}");
        assert_eq!(found.to_string(), "client 02020202 has 97.82 % of the weight (9000 samples)");
        assert_eq!(among(&[100, 1800, 100], WeightBounds::NONE), None, "nine tenths and no more");
        assert_eq!(among(&[1, 9000], WeightBounds::NONE), None, "of two one always has much");
        assert_eq!(among(&[9000], WeightBounds::NONE), None);
        assert_eq!(among(&[], WeightBounds::NONE), None);
    }
}
