//! Adaptive clipping: the bound of a round follows from the bound of the round before and the share of updates that were within it.
//!
//! Andrew, Thakkar, McMahan, Ramaswamy: *Differentially Private Learning with Adaptive Clipping*, NeurIPS 2021 (arXiv 1905.03871),
//! algorithm 1, geometric updates:
//!
//! ```text
//! C <- C exp(-eta (b - gamma))
//! ```
//!
//! with the noised share b ([`NoisedShare`](shared::aggregation::NoisedShare)), so that C comes to be the gamma-quantile of the lengths of
//! updates. It is made of what is private already, and gives nothing more away.

use std::ops::Bound::{Excluded, Included};

use shared::aggregation::{LEAST_CLIP, LEAST_COUNT_NOISE, MOST_CLIP, MOST_COUNT_NOISE};
use shared::section;
use shared::settings::Kind;

/// What the deviation of the noise is by default, as a share of the devices that a round asks (section 3 of the paper).
const USUAL_NOISE: f64 = 0.05;

/// The quantile where nothing is said: with one half, devices that stay away do not move it.
const USUAL_QUANTILE: f64 = 0.5;

/// The least quantile. Each device that stays away counts as half within the bound: with fewer than half of those that are expected, a
/// quantile further from one half is never met, and the bound would move for ever.
const LEAST_QUANTILE: f64 = 0.25;

/// The greatest one.
const MOST_QUANTILE: f64 = 0.75;

/// The rate where nothing is said, which is the paper's.
const USUAL_RATE: f64 = 0.2;

section! {
    /// `privacy.adaptive-clip`: with any of its keys, or none, the bound adapts.
    #[derive(Copy)]
    pub struct AdaptiveClipTable {
        /// gamma: the share of updates that the bound comes to leave as they are
        pub quantile: Option<f64> = None, in Kind::Number(Included(LEAST_QUANTILE), Included(MOST_QUANTILE)), unset "with {} 0.5";
        /// eta: how fast the bound moves, in powers of e for a round
        pub rate: Option<f64> = None, in Kind::Number(Excluded(0.0), Included(1.0)), unset "with {} 0.2";
        /// sigma: deviation of the noise on their number
        pub noise: Option<f64> = None, in Kind::Number(Included(LEAST_COUNT_NOISE), Included(MOST_COUNT_NOISE)), unset "with {} cohort / 20, at least noise";
    }
}

/// How the bound moves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveClip {
    /// gamma.
    pub quantile: f64,
    /// eta.
    pub rate: f64,
}

impl Default for AdaptiveClip {
    fn default() -> Self {
        Self { quantile: USUAL_QUANTILE, rate: USUAL_RATE }
    }
}

impl AdaptiveClipTable {
    /// How the bound moves, and the deviation of the noise of the number of updates within it, with this noise of all that a round gives
    /// away and this number of devices in a round. Notes the defaults.
    pub fn complete(&mut self, noise: f64, expected: f64) -> (AdaptiveClip, f64) {
        let AdaptiveClip { quantile, rate } = AdaptiveClip::default();
        let [quantile, rate] = [(&mut self.quantile, quantile), (&mut self.rate, rate)]
            .map(|(value, usual)| *value.get_or_insert(usual));
        let deviation = *self.noise.get_or_insert(AdaptiveClip::usual_noise(noise, expected));
        (AdaptiveClip { quantile, rate }, deviation)
    }
}

impl AdaptiveClip {
    /// The noise of the number of updates within the bound where nothing is said, with this noise of all that a round gives away and
    /// this number of devices in a round: what leaves the sum at least 87 % of its precision, in any cohort.
    #[must_use]
    pub fn usual_noise(noise: f64, expected: f64) -> f64 {
        (USUAL_NOISE * expected).max(noise).clamp(LEAST_COUNT_NOISE, MOST_COUNT_NOISE)
    }

    /// The bound of the round after one with this bound and this noised share of updates within it: from 1e-9 to 1e9, as a bound that
    /// does not adapt is.
    ///
    /// It is rounded to 24 bits, so that the last bits of a system's exponential function do not matter as a rule.
    #[must_use]
    pub fn next(&self, clip: f64, share: f64) -> f64 {
        let next = clip * (-self.rate * (share - self.quantile)).exp();
        f64::from(next.clamp(LEAST_CLIP, MOST_CLIP) as f32).clamp(LEAST_CLIP, MOST_CLIP)
    }
}

#[cfg(test)]
mod tests {
    use shared::aggregation::Mechanism;
    use shared::seed::{Seed, standard_normal};

    use super::*;

    /// Lengths from 0 to 10 with the distribution `(x / 10)^2`, of which the gamma-quantile is `10 sqrt(gamma)`.
    fn lengths() -> Vec<f64> {
        (0..1000).map(|device| 10.0 * ((f64::from(device) + 0.5) / 1000.0).sqrt()).collect()
    }

    fn within(lengths: &[f64], clip: f64) -> f64 {
        lengths.iter().filter(|length| **length <= clip).count() as f64 / lengths.len() as f64
    }

    #[test]
    fn the_bound_comes_to_be_the_quantile_from_far_below_and_far_above() {
        let lengths = lengths();
        for quantile in [0.1, 0.5, 0.9] {
            for first in [1e-3, 1.0, 1e3] {
                let adaptive = AdaptiveClip { quantile, ..AdaptiveClip::default() };
                let last = (0..500).fold(first, |clip, _| adaptive.next(clip, within(&lengths, clip)));
                let expected = 10.0 * f64::sqrt(quantile);
                assert!(
                    (last / expected - 1.0).abs() < 0.01,
                    "{quantile} from {first}: {last}, not {expected}"
                );
            }
        }
    }

    #[test]
    fn noise_of_the_usual_deviation_moves_it_little() {
        let (lengths, adaptive) = (lengths(), AdaptiveClip::default());
        let mut rng = Seed::root(4).rng();
        let (mut clip, mut logarithms) = (0.1, Vec::new());
        for round in 0..1500 {
            clip = adaptive.next(clip, within(&lengths, clip) + USUAL_NOISE * standard_normal(&mut rng));
            if round >= 500 {
                logarithms.push((clip / (10.0 * 0.5f64.sqrt())).ln());
            }
        }
        // Of a step of eta (b - gamma), b = C^2 / 100, the logarithm of C stays within eta sigma / sqrt(2 eta) as a rule.
        let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
        let square = logarithms.iter().map(|x| x * x).sum::<f64>() / logarithms.len() as f64;
        let expected = 0.2 * USUAL_NOISE / (2.0f64 * 0.2).sqrt();
        assert!(mean.abs() < expected && square.sqrt() < 2.0 * expected, "{mean} {square} {expected}");
        assert!(square.sqrt() > 0.5 * expected, "{square} {expected}");
    }

    #[test]
    fn any_share_gives_a_bound_that_sums_can_be_made_with() {
        let adaptive = AdaptiveClip { rate: 1.0, ..AdaptiveClip::default() };
        for (share, expected) in
            [(1e300, LEAST_CLIP), (-1e300, MOST_CLIP), (3.0, LEAST_CLIP), (-3.0, MOST_CLIP)]
        {
            let mut clip = 1.0;
            for _ in 0..30 {
                clip = adaptive.next(clip, share);
                let mechanism = Mechanism { clip, noise: 1.0, rate: 1.0, devices: 3, count_noise: Some(1.0) };
                assert!(mechanism.scale(1000.0).resolution().is_normal());
            }
            assert!((clip / expected - 1.0).abs() < 1e-7, "{share}: {clip}");
            assert!((LEAST_CLIP..=MOST_CLIP).contains(&clip), "{clip}");
        }
        assert_eq!(adaptive.next(0.25, 0.5).to_bits(), 0.25f64.to_bits(), "at the quantile it stays");
    }

    #[test]
    fn the_usual_noise_leaves_the_sum_most_of_its_precision() {
        for (noise, expected) in [(0.01, 1.0), (3.0, 4.0), (1.1, 100.0), (11.28, 500.0), (1000.0, 1.0)] {
            let count_noise = Some(AdaptiveClip::usual_noise(noise, expected));
            let mechanism = Mechanism { clip: 1.0, noise, rate: 1.0, devices: 1, count_noise };
            let more = mechanism.noise_of_sum().expect("it leaves enough") / noise;
            assert!(more <= 1.1548, "{noise} {expected}: {more}");
        }
        assert_eq!(AdaptiveClip::usual_noise(1.0, 1000.0).to_bits(), 50f64.to_bits(), "the paper's");
    }
}
