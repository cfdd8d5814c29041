//! Adaptive clipping: the bound of a round follows from the bound of the round before and the share of updates that were within it.
//!
//! Andrew, Thakkar, McMahan, Ramaswamy: *Differentially Private Learning with Adaptive Clipping*, NeurIPS 2021 (arXiv 1905.03871),
//! algorithm 1, geometric updates:
//!
//! ```text
//! C <- C exp(-eta (b - gamma))
//! ```
//!
//! with the [noised share](super::NoisedShare) b, so that C comes to be the gamma-quantile of the lengths of updates. It is made of
//! what is private already, and gives nothing more away.

use super::{LEAST_CLIP, MOST_CLIP};

/// How the bound on updates follows their lengths.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdaptiveClip {
    /// gamma: the share of updates that are to be within the bound, between 0 and 1.
    pub quantile: f64,
    /// eta: how fast the bound moves.
    pub rate: f64,
    /// `sigma_b`: the deviation of the noise of the number of updates within the bound, from
    /// [`LEAST_COUNT_NOISE`](super::LEAST_COUNT_NOISE) to [`MOST_COUNT_NOISE`](super::MOST_COUNT_NOISE).
    pub noise: f64,
}

impl AdaptiveClip {
    /// m: the most by which one device changes the sum of `b_k - gamma`, the greater one of gamma and 1 - gamma.
    #[must_use]
    pub fn change(&self) -> f64 {
        self.quantile.max(1.0 - self.quantile)
    }

    /// The noise of the number of updates within the bound that leaves the sum at least 87 % of its precision, with this noise of all that
    /// a round gives away: where `sigma_b / m` is twice that, so is the square of the sum's at most 4 / 3 of its own.
    #[must_use]
    pub fn enough_noise(&self, noise: f64) -> f64 {
        2.0 * self.change() * noise
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
    use super::*;
    use crate::aggregation::{Mechanism, NoisedShare};
    use crate::seed::Seed;

    const MEDIAN: AdaptiveClip = AdaptiveClip { quantile: 0.5, rate: 0.2, noise: 50.0 };

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
                let adaptive = AdaptiveClip { quantile, ..MEDIAN };
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
        let lengths = lengths();
        let (mut clip, mut logarithms) = (0.1, Vec::new());
        let mechanism = Mechanism { clip, noise: 1.0, rate: 1.0, devices: 1000, adaptive: Some(MEDIAN) };
        for round in 0..1500 {
            let number = lengths.iter().filter(|length| **length <= clip).count() as u64;
            let share = NoisedShare::default();
            mechanism.put_share(&share, (number, 1000), &Seed::root(4).derive_numbered("round", round));
            clip = MEDIAN.next(clip, share.get().expect("it was put"));
            if round >= 500 {
                logarithms.push((clip / (10.0 * 0.5f64.sqrt())).ln());
            }
        }
        // Of a step of eta (b - gamma), b = C^2 / 100, the logarithm of C stays within eta sigma / sqrt(2 eta) as a rule.
        let mean = logarithms.iter().sum::<f64>() / logarithms.len() as f64;
        let square = logarithms.iter().map(|x| x * x).sum::<f64>() / logarithms.len() as f64;
        let expected = 0.2 * 0.05 / (2.0f64 * 0.2).sqrt();
        assert!(mean.abs() < expected && square.sqrt() < 2.0 * expected, "{mean} {square} {expected}");
        assert!(square.sqrt() > 0.5 * expected, "{square} {expected}");
    }

    #[test]
    fn devices_that_stay_away_slow_the_bound_down_and_do_not_displace_it() {
        let lengths = lengths();
        for quantile in [0.05, 0.25, 0.5, 0.8, 0.95] {
            // Every tenth device comes, of 1,000 that are expected.
            let here: Vec<f64> = lengths.iter().copied().skip(4).step_by(10).collect();
            let adaptive = AdaptiveClip { quantile, rate: 0.5, noise: 0.01 };
            let mechanism =
                Mechanism { clip: 1.0, noise: 0.001, rate: 1.0, devices: 1000, adaptive: Some(adaptive) };
            let mut clip = 1.0;
            for round in 0..3000 {
                let number = here.iter().filter(|length| **length <= clip).count() as u64;
                let share = NoisedShare::default();
                let seed = Seed::root(8).derive_numbered("round", round);
                mechanism.put_share(&share, (number, here.len() as u64), &seed);
                clip = adaptive.next(clip, share.get().expect("it was put"));
            }
            let found = within(&here, clip);
            assert!((found - quantile).abs() < 0.021, "{quantile}: {found} within {clip}");
        }
    }

    #[test]
    fn any_share_gives_a_bound_that_sums_can_be_made_with() {
        let adaptive = AdaptiveClip { rate: 1.0, noise: 1.0, ..MEDIAN };
        for (share, expected) in
            [(1e300, LEAST_CLIP), (-1e300, MOST_CLIP), (3.0, LEAST_CLIP), (-3.0, MOST_CLIP)]
        {
            let mut clip = 1.0;
            for _ in 0..30 {
                clip = adaptive.next(clip, share);
                let mechanism =
                    Mechanism { clip, noise: 1.0, rate: 1.0, devices: 3, adaptive: Some(adaptive) };
                assert!(mechanism.scale(1000.0).resolution().is_normal());
            }
            assert!((clip / expected - 1.0).abs() < 1e-7, "{share}: {clip}");
            assert!((LEAST_CLIP..=MOST_CLIP).contains(&clip), "{clip}");
        }
        assert_eq!(adaptive.next(0.25, 0.5).to_bits(), 0.25f64.to_bits(), "at the quantile it stays");
    }
}
