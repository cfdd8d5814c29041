//! The noised share of updates within the bound, from which the bound of the next round follows.
//!
//! Andrew, Thakkar, McMahan, Ramaswamy: *Differentially Private Learning with Adaptive Clipping*, NeurIPS 2021 (arXiv 1905.03871),
//! algorithm 1 and theorem 1. With the bit `b_k`, whether `||D_k|| <= C`, and noise of deviation `sigma_b`:
//!
//! ```text
//! b = (sum of (b_k - 1/2) + noise) / (q N) + 1/2
//! z = (z_sum^-2 + (2 sigma_b)^-2)^(-1/2)
//! ```
//!
//! A device changes the sum of shifted bits by 1/2, so that sum and bits together are one Gaussian mechanism of the multiplier z: in
//! units of its noise a device changes the former by `1 / z_sum` at most and the latter by `1 / (2 sigma_b)`, and both together by
//! the root of the sum of squares. That is so for any round by itself, and for what a device changes in K rounds together.
//!
//! Twice the shifted bits are 1 and -1, whole numbers. They are counted in fine units and get discrete Gaussian noise, as the sum does.

use std::sync::OnceLock;

use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;

use super::{DiscreteGaussian, MAX_SIGMA, Mechanism};
use crate::seed::Seed;

/// The least deviation of the noise of the number of updates within the bound.
pub const LEAST_COUNT_NOISE: f64 = 0.01;
/// The greatest one.
pub const MOST_COUNT_NOISE: f64 = 1e6;

/// How much more noise the sum may need, as a multiple of what it had alone: beyond it the bits have taken nearly everything.
const MOST_MORE: f64 = 10.0;

/// A place for the noised share of a round's updates within the bound: it is put there when the mean is taken.
#[derive(Debug, Default)]
pub struct NoisedShare(OnceLock<f64>);

impl NoisedShare {
    /// What was put there; with the noise it may be below 0 and above 1.
    #[must_use]
    pub fn get(&self) -> Option<f64> {
        self.0.get().copied()
    }
}

impl Mechanism {
    /// `z_sum`: the deviation of the noise of the sum, as a multiple of what one device changes. It is z unless updates within the bound are
    /// counted as well. `None` if z leaves the sum hardly anything: the noise of that number is too small.
    #[must_use]
    pub fn noise_of_sum(&self) -> Option<f64> {
        let Some(deviation) = self.count_noise else { return Some(self.noise) };
        let share = self.noise / (2.0 * deviation);
        // (1 - x)(1 + x), since 1 - x^2 loses digits where they count.
        let more = ((1.0 - share) * (1.0 + share)).sqrt().recip();
        (share < 1.0 && more <= MOST_MORE).then_some(self.noise * more)
    }

    /// Puts the share of the `terms` updates that are within the bound into its place. Its noise follows from the seed of the sum's, by a
    /// label that no tensor has, and from the number that it hides.
    pub(super) fn put_share(&self, share: &NoisedShare, (within, terms): (u64, u64), seed: &Seed) {
        let Some(deviation) = self.count_noise else { return };
        let drawn =
            Noise::of(deviation).draw(&seed.derive_numbered("within", within).derive_numbered("of", terms));
        let shifted = within as f64 - terms as f64 / 2.0 + drawn / 2.0;
        // A round is closed once, and a place is for one round.
        share.0.get_or_init(|| shifted / self.expected() + 0.5);
    }
}

/// Noise of a number to which every update adds 1 or -1.
struct Noise {
    gaussian: DiscreteGaussian,
    /// Units of one.
    units: f64,
}

impl Noise {
    /// That of the deviation `2 sigma_b`, rounded up.
    fn of(deviation: f64) -> Self {
        let target = (MAX_SIGMA as f64).log2() - 1.0;
        let units = (target - (2.0 * deviation).log2()).floor().exp2();
        let sigma = (2.0 * deviation * units).ceil();
        assert!(sigma >= 1.0 && sigma <= MAX_SIGMA as f64, "units are chosen for the noise");
        Self { gaussian: DiscreteGaussian::new(sigma as u64), units }
    }

    fn draw(&self, seed: &Seed) -> f64 {
        self.gaussian.draw(&mut ChaCha20Rng::from_seed(*seed.as_bytes())) as f64 / self.units
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MECHANISM: Mechanism =
        Mechanism { clip: 1.0, noise: 1.0, rate: 0.5, devices: 80, count_noise: Some(2.0) };

    #[test]
    fn sum_and_bits_together_are_the_mechanism_of_the_account() {
        for (noise, deviation) in [(1.0, 2.0), (0.01, 0.01), (3.55, 50.0), (1.0, 0.51), (1000.0, 1e6)] {
            let mechanism = Mechanism { noise, count_noise: Some(deviation), ..MECHANISM };
            let of_sum = mechanism.noise_of_sum().expect("the bits leave enough");
            let both = (of_sum.powi(-2) + (2.0 * deviation).powi(-2)).powf(-0.5);
            assert!((both / noise - 1.0).abs() < 1e-12, "{noise} {deviation}: {both}");
            assert!(of_sum >= noise, "{of_sum}");
        }
        for deviation in [0.5, 0.1, 0.502] {
            let mechanism = Mechanism { count_noise: Some(deviation), ..MECHANISM };
            assert_eq!(mechanism.noise_of_sum(), None, "{deviation}");
        }
        assert_eq!(Mechanism { count_noise: None, ..MECHANISM }.noise_of_sum(), Some(1.0));
    }

    /// The share of this number of updates of `terms`.
    fn share(mechanism: &Mechanism, count: (u64, u64), seed: &Seed) -> f64 {
        let share = NoisedShare::default();
        mechanism.put_share(&share, count, seed);
        share.get().expect("it was put")
    }

    #[test]
    fn the_share_has_noise_of_its_deviation_around_the_exact_one() {
        let draws = 20_000;
        for (deviation, count) in [(2.0, (30, 40)), (0.01, (0, 40)), (1e6, (7, 7)), (0.7, (0, 0))] {
            let mechanism = Mechanism { noise: 0.01, count_noise: Some(deviation), ..MECHANISM };
            let exact = (count.0 as f64 - count.1 as f64 / 2.0) / 40.0 + 0.5;
            let unit = deviation / 40.0;
            let found: Vec<f64> = (0..draws)
                .map(|draw| {
                    let seed = Seed::root(5).derive_numbered("draw", draw);
                    (share(&mechanism, count, &seed) - exact) / unit
                })
                .collect();
            let moment = |power| found.iter().map(|x| x.powi(power)).sum::<f64>() / draws as f64;
            let error = 4.5 / (draws as f64).sqrt();
            assert!(moment(1).abs() < error, "{deviation}: mean {}", moment(1));
            assert!((moment(2) - 1.0).abs() < 1.5 * error, "{deviation}: variance {}", moment(2));
            assert!(moment(3).abs() < 4.0 * error, "{deviation}: {}", moment(3));
            assert!((moment(4) - 3.0).abs() < 10.0 * error, "{deviation}: {}", moment(4));
            // Pearson's test over 20 groups that are equally probable under normal noise.
            let mut groups = [0.0; 20];
            for x in &found {
                groups[((normal(*x) * 20.0) as usize).min(19)] += 1.0;
            }
            let expected = draws as f64 / 20.0;
            let statistic: f64 = groups.iter().map(|found| (found - expected).powi(2) / expected).sum();
            assert!((statistic - 19.0).abs() < 5.0 * 38f64.sqrt(), "{deviation}: {statistic}");
        }
    }

    /// The probability of less than x under normal noise, by a series (Abramowitz, Stegun, 26.2.11).
    fn normal(x: f64) -> f64 {
        let mut term = x;
        let mut sum = x;
        for odd in (3..200).step_by(2) {
            term *= x * x / f64::from(odd);
            sum += term;
        }
        0.5 + sum * (-x * x / 2.0).exp() / std::f64::consts::TAU.sqrt()
    }

    #[test]
    fn another_number_or_seed_has_other_noise_and_the_same_has_the_same() {
        let seed = Seed::root(3);
        let of = |count, seed: &Seed| share(&MECHANISM, count, seed);
        assert_eq!(of((3, 9), &seed).to_bits(), of((3, 9), &seed).to_bits());
        assert_ne!(of((3, 9), &seed).to_bits(), of((3, 9), &Seed::root(4)).to_bits());
        let apart = of((4, 9), &seed) - of((3, 9), &seed);
        assert!((apart - 1.0 / 40.0).abs() > 1e-6, "the difference would be in the open: {apart}");
    }

    #[test]
    fn nothing_is_put_where_nothing_is_counted() {
        let place = NoisedShare::default();
        Mechanism { count_noise: None, ..MECHANISM }.put_share(&place, (3, 9), &Seed::root(3));
        assert_eq!(place.get(), None);
    }
}
