//! Bounds on one device's weight.
//!
//! A device declares how many training samples it has. The number cannot be verified, and weights follow it: unbounded, one
//! device that declares billions of samples replaces the mean with its own update. When a round opens, the declared numbers of
//! all known devices give a *sample cap*: the number of samples that a device counts for at most. Two bounds make it:
//!
//! ```text
//! n_k <= ratio * median(n)           a device that has far more samples than is usual
//! n_k <= share * sum min(n_j, n_k)   a device that has most of all samples
//! ```
//!
//! Both look at all known devices and not at the cohort: in a small cohort an honest device of ordinary size easily has most of
//! the weight, by chance and not for long. Fewer than three devices say nothing about what is usual, and have no cap.
//!
//! One device can move neither the median nor the other devices' sum. Several that lie together share what the ratio leaves them.

use serde::{Deserialize, Serialize};

/// Units of a share: the sums are whole numbers, so that the cap does not depend on rounding.
const UNITS: u128 = 1_000_000;

/// Without this many devices that have samples there is no cap.
const LEAST: usize = 3;

/// The number of samples that a device counts for at most in a round, if any has more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SampleCap(Option<u64>);

impl SampleCap {
    /// All devices count for what they have.
    pub const NONE: Self = Self(None);

    /// What this many samples count for.
    #[must_use]
    pub fn of(self, samples: u64) -> u64 {
        self.0.map_or(samples, |cap| samples.min(cap))
    }

    /// Whether all count for as many as they have.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.is_none()
    }
}

/// What one device may count for at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightBounds {
    /// Times the median of all devices' samples, the upper one of an even number; 0 is no bound.
    pub ratio: u32,
    /// Share of all devices' samples, in `(0, 1]`; 1 is no bound. No share is below that of a device among equals.
    pub share: f64,
}

impl WeightBounds {
    /// Neither bound.
    pub const NONE: Self = Self { ratio: 0, share: 1.0 };

    /// The sample cap of a round, if these are the numbers of all known devices, in any order.
    #[must_use]
    pub fn cap(&self, samples: impl IntoIterator<Item = u64>) -> SampleCap {
        let mut samples: Vec<u64> = samples.into_iter().filter(|&samples| samples > 0).collect();
        samples.sort_unstable();
        let Some(&largest) = samples.last().filter(|_| samples.len() >= LEAST) else {
            return SampleCap::NONE;
        };
        let median = samples[samples.len() / 2];
        let by_ratio = match self.ratio {
            0 => largest,
            ratio => largest.min(median.saturating_mul(u64::from(ratio))),
        };
        let cap = self.cap_by_share(&samples, by_ratio);
        SampleCap((cap < largest).then_some(cap))
    }

    /// The greatest cap, at most `greatest`, with which no device has more than the share.
    fn cap_by_share(&self, samples: &[u64], greatest: u64) -> u64 {
        let share = (self.share * UNITS as f64).round() as u128;
        let share = share.clamp(UNITS.div_ceil(samples.len() as u128), UNITS);
        let fits = |cap: u64| {
            let sum: u128 = samples.iter().map(|&samples| u128::from(samples.min(cap))).sum();
            u128::from(cap) * UNITS <= share * sum
        };
        if fits(greatest) {
            return greatest;
        }
        // The sum grows ever slower with the cap: what fits is all that is not above the greatest that does. The smallest
        // device's number fits, since with it all count alike.
        let (mut fit, mut too_large) = (samples[0].min(greatest), greatest);
        while too_large - fit > 1 {
            let middle = fit + (too_large - fit) / 2;
            *if fits(middle) { &mut fit } else { &mut too_large } = middle;
        }
        fit
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DEFAULT: WeightBounds = WeightBounds { ratio: 100, share: 0.5 };

    #[test]
    fn a_device_that_declares_billions_counts_as_all_others_together() {
        let honest = [300, 310, 290, 305, 295, 300, 300, 280, 320];
        let cap = DEFAULT.cap(honest.into_iter().chain([1 << 32]));
        assert_eq!(cap, SampleCap(Some(honest.iter().sum())));
        // Two of them together have all that the ratio leaves them.
        assert_eq!(DEFAULT.cap(honest.into_iter().chain([1 << 32, 1 << 32])), SampleCap(Some(30_000)));
        assert_eq!(WeightBounds { share: 1.0, ..DEFAULT }.cap([1, 2, 3, 1 << 32]), SampleCap(Some(300)));
        assert_eq!(
            WeightBounds { share: 0.25, ..DEFAULT }.cap([100, 100, 100, 100, 9000]),
            SampleCap(Some(133))
        );
    }

    #[test]
    fn ordinary_devices_and_small_federations_are_left_alone() {
        assert_eq!(DEFAULT.cap([10, 500, 10, 480]), SampleCap::NONE);
        assert_eq!(DEFAULT.cap([1, 1 << 32]), SampleCap::NONE, "two devices say nothing about what is usual");
        assert_eq!(DEFAULT.cap([0, 0, 1, 1 << 32]), SampleCap::NONE, "nor do devices without samples");
        assert_eq!(DEFAULT.cap([]), SampleCap::NONE);
        assert_eq!(WeightBounds::NONE.cap([1, 1, 1, u64::MAX]), SampleCap::NONE);
        // A share below that among equals makes all count alike.
        assert_eq!(WeightBounds { ratio: 0, share: 0.01 }.cap([7, 8, 9]), SampleCap(Some(7)));
        assert_eq!(WeightBounds { ratio: 0, share: 0.01 }.cap([7, 7, 7]), SampleCap::NONE);
    }

    proptest! {
        #[test]
        fn no_device_exceeds_a_bound_and_none_is_cut_deeper_than_that(
            samples in prop::collection::vec(prop_oneof![1..1000_u64, 1..=1_u64 << 32], 3..40),
            ratio in prop_oneof![Just(0), Just(100), 1..1000_u32],
            share in prop_oneof![Just(0.5), Just(1.0), 0.01..1.0_f64],
            seed in any::<u64>(),
        ) {
            let bounds = WeightBounds { ratio, share };
            let SampleCap(cap) = bounds.cap(samples.iter().copied());
            let mut shuffled = samples.clone();
            shared::seed::shuffle(&mut shuffled, &mut shared::seed::Seed::root(seed).rng());
            prop_assert_eq!(bounds.cap(shuffled), SampleCap(cap), "the order does not matter");

            let mut sorted = samples.clone();
            sorted.sort_unstable();
            let median = sorted[sorted.len() / 2];
            let largest = sorted[sorted.len() - 1];
            // As fractions of a million, and never below an equal part.
            let share = share.max(1.0 / samples.len() as f64) + 1e-6;
            let sum = |cap: u64| samples.iter().map(|&samples| samples.min(cap) as f64).sum::<f64>();
            let within = |cap: u64| {
                (ratio == 0 || cap <= median * u64::from(ratio)) && cap as f64 <= share * sum(cap)
            };
            prop_assert!(within(cap.unwrap_or(largest)), "{cap:?}");
            if let Some(cap) = cap {
                prop_assert!(cap >= sorted[0] && cap < largest);
                // A larger one would break a bound, as far as fractions of a million tell.
                let larger = cap + 1;
                let strict = share - 2e-6;
                prop_assert!(
                    ratio != 0 && larger > median * u64::from(ratio) || larger as f64 > strict * sum(larger),
                    "{cap}"
                );
            }
        }
    }
}
