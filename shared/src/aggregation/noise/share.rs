//! The noised share of updates within the bound, from which the bound of the next round follows.
//!
//! Andrew, Thakkar, McMahan, Ramaswamy: *Differentially Private Learning with Adaptive Clipping*, NeurIPS 2021 (arXiv 1905.03871),
//! algorithm 1 and theorem 1, for any quantile gamma. With the bit `b_k`, whether `||D_k|| <= C`, and noise of deviation `sigma_b`:
//!
//! ```text
//! b = (sum over the devices k that delivered of (b_k - gamma) + noise) / (q N) + gamma
//! ```
//!
//! A device that did not deliver adds 0, as one that does not exist: it draws b to gamma, where the bound stays as it is.
//!
//! # What it gives away
//!
//! A device adds `D_k min(1, C / ||D_k||)` to the sum, of the length C at most, and 1 - gamma or -gamma to the count, of the size
//! `m = max(gamma, 1 - gamma)` at most. In units of their noise, of the deviations `z_sum C` and `sigma_b`, that is a vector of the
//! length
//!
//! ```text
//! sqrt((||D_k|| / (z_sum C))^2 + ((b_k - gamma) / sigma_b)^2) <= sqrt(z_sum^-2 + (sigma_b / m)^-2) = 1 / z
//! z_sum = (z^-2 - (sigma_b / m)^-2)^(-1/2)
//! ```
//!
//! with normal noise of the deviation 1 in every direction: one Gaussian mechanism of the multiplier z, whichever way the vector points.
//! That is so for a device more or less in any round by itself, and for what a device changes in K rounds together. The theorem is
//! the case of gamma = 1/2, where m is 1/2. The paper shifts bits by one half for every quantile, which takes the least noise; but then
//! devices that stay away draw b to one half.
//!
//! Noise and count are whole numbers, as those of the sum are: `(b_k - gamma) / m` is 1 or -1 for the bit that counts more, and is counted in
//! a power of two of fine units, of which the other bit's are rounded. So no device adds more than those of 1, and the quantile that
//! the bound comes to is gamma within half a unit: less than 1 / 64, with noise of usual size for the cohort 1e-6.

use std::sync::OnceLock;

use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;

use super::{AdaptiveClip, DiscreteGaussian, MAX_SIGMA, Mechanism};
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
        let Some(adaptive) = self.adaptive else { return Some(self.noise) };
        let share = self.noise / (adaptive.noise / adaptive.change());
        // (1 - x)(1 + x), since 1 - x^2 loses digits where they count.
        let more = ((1.0 - share) * (1.0 + share)).sqrt().recip();
        (share < 1.0 && more <= MOST_MORE).then_some(self.noise * more)
    }

    /// Puts the share of the `terms` updates that are within the bound into its place. Its noise follows from the seed of the sum's, by a
    /// label that no tensor has, and from the number that it hides.
    pub(super) fn put_share(&self, share: &NoisedShare, (within, terms): (u64, u64), seed: &Seed) {
        let Some(adaptive) = self.adaptive else { return };
        let seed = seed.derive_numbered("within", within).derive_numbered("of", terms);
        let noised =
            adaptive.change() * Count::of(&adaptive).noised(within, terms.saturating_sub(within), &seed);
        // A round is closed once, and a place is for one round.
        share.0.get_or_init(|| noised / self.expected() + adaptive.quantile);
    }
}

/// The sum of `(b_k - gamma) / m` in whole units, with its noise.
struct Count {
    gaussian: DiscreteGaussian,
    /// Units of one, a power of two.
    units: i64,
    /// What an update within the bound adds.
    within: i64,
    /// What one beyond it adds.
    beyond: i64,
}

impl Count {
    /// That with noise of the deviation `sigma_b / m`, rounded up.
    fn of(adaptive: &AdaptiveClip) -> Self {
        let (quantile, change) = (adaptive.quantile, adaptive.change());
        let deviation = adaptive.noise / change;
        let target = (MAX_SIGMA as f64).log2() - 1.0;
        let units = (target - deviation.log2()).floor().exp2();
        let sigma = (deviation * units).ceil();
        assert!(sigma >= 1.0 && sigma <= MAX_SIGMA as f64, "units are chosen for the noise");
        // Neither is more than the units of one: the greater of the two is m / m.
        let [within, beyond] = [1.0 - quantile, quantile].map(|size| (size / change * units).round() as i64);
        Self { gaussian: DiscreteGaussian::new(sigma as u64), units: units as i64, within, beyond: -beyond }
    }

    fn noised(&self, within: u64, beyond: u64, seed: &Seed) -> f64 {
        let drawn = self.gaussian.draw(&mut ChaCha20Rng::from_seed(*seed.as_bytes()));
        let of = |number: u64, each: i64| i128::from(number) * i128::from(each);
        let noised = of(within, self.within) + of(beyond, self.beyond) + i128::from(drawn);
        noised as f64 / self.units as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MECHANISM: Mechanism =
        Mechanism { clip: 1.0, noise: 1.0, rate: 0.5, devices: 80, adaptive: Some(counted(0.5, 2.0)) };

    /// With this quantile and this noise on the number of updates within the bound.
    const fn counted(quantile: f64, noise: f64) -> AdaptiveClip {
        AdaptiveClip { quantile, rate: 0.2, noise }
    }

    #[test]
    fn sum_and_bits_together_are_the_mechanism_of_the_account() {
        for (noise, quantile, most, deviation) in [
            (1.0, 0.5, 0.5, 2.0),
            (0.01, 0.5, 0.5, 0.01),
            (3.55, 0.25, 0.75, 50.0),
            (1.0, 0.5, 0.5, 0.51),
            (1.0, 0.9, 0.9, 0.91),
            (1.0, 0.1, 0.9, 0.91),
            (1000.0, 0.05, 0.95, 1e6),
        ] {
            let mechanism = Mechanism { noise, adaptive: Some(counted(quantile, deviation)), ..MECHANISM };
            let of_sum = mechanism.noise_of_sum().expect("the bits leave enough");
            // Of an update of the length of the bound, whose bit is the one that counts more.
            let both = (of_sum.powi(-2) + (most / deviation).powi(2)).powf(-0.5);
            assert!((both / noise - 1.0).abs() < 1e-12, "{noise} {deviation}: {both}");
            assert!(of_sum >= noise, "{of_sum}");
        }
        for (quantile, deviation) in [(0.5, 0.5), (0.5, 0.1), (0.5, 0.502), (0.1, 0.9), (0.95, 0.95)] {
            let mechanism = Mechanism { adaptive: Some(counted(quantile, deviation)), ..MECHANISM };
            assert_eq!(mechanism.noise_of_sum(), None, "{deviation}");
        }
        assert_eq!(Mechanism { adaptive: None, ..MECHANISM }.noise_of_sum(), Some(1.0));
    }

    /// The share of this number of updates of `terms`.
    fn share(mechanism: &Mechanism, count: (u64, u64), seed: &Seed) -> f64 {
        let share = NoisedShare::default();
        mechanism.put_share(&share, count, seed);
        share.get().expect("it was put")
    }

    #[test]
    fn no_update_adds_more_than_the_noise_is_for() {
        for quantile in [1e-6, 0.05, 0.25, 0.3, 0.5, 0.7, 0.8, 0.95, 0.999] {
            for deviation in [LEAST_COUNT_NOISE, 0.3, 1.0, 50.0, MOST_COUNT_NOISE] {
                let adaptive = counted(quantile, deviation);
                let Count { gaussian, units, within, beyond } = Count::of(&adaptive);
                assert_eq!(within.max(-beyond), units, "{quantile} {deviation}");
                assert!(beyond <= 0 && 0 <= within, "{quantile} {deviation}: {within} {beyond}");
                // What the bit that counts more adds, as a part of the noise, and what the account has for it.
                let part = units as f64 / gaussian.sigma() as f64;
                assert!(part <= quantile.max(1.0 - quantile) / deviation * (1.0 + 1e-15), "{part}");
                // An update beyond the bound draws it up by gamma, one within it down by the rest.
                let [found, expected] = [within as f64 / units as f64, (1.0 - quantile) / adaptive.change()];
                assert!((found - expected).abs() <= 0.5 / units as f64, "{found}, not {expected}");
            }
        }
    }

    #[test]
    fn the_median_is_that_of_the_theorem_to_the_bit() {
        for (deviation, within, terms) in [(2.0, 3_u64, 9_u64), (0.01, 0, 40), (50.0, 517, 1000), (3.3, 0, 0)]
        {
            let mechanism = Mechanism { noise: 0.01, adaptive: Some(counted(0.5, deviation)), ..MECHANISM };
            let seed = Seed::root(3);
            let units = ((MAX_SIGMA as f64).log2() - 1.0 - (2.0 * deviation).log2()).floor().exp2();
            let gaussian = DiscreteGaussian::new((2.0 * deviation * units).ceil() as u64);
            let drawn = seed.derive_numbered("within", within).derive_numbered("of", terms);
            let drawn = gaussian.draw(&mut ChaCha20Rng::from_seed(*drawn.as_bytes())) as f64 / units;
            let shifted = within as f64 - terms as f64 / 2.0 + drawn / 2.0;
            let expected = shifted / 40.0 + 0.5;
            assert_eq!(share(&mechanism, (within, terms), &seed).to_bits(), expected.to_bits());
            let of_sum =
                0.01 * ((1.0 - 0.01 / (2.0 * deviation)) * (1.0 + 0.01 / (2.0 * deviation))).sqrt().recip();
            assert_eq!(mechanism.noise_of_sum().map(f64::to_bits), Some(of_sum.to_bits()));
        }
    }

    #[test]
    fn the_share_has_noise_of_its_deviation_around_the_exact_one() {
        let draws = 20_000;
        for (deviation, quantile, count) in [
            (2.0, 0.5, (30, 40)),
            (0.02, 0.9, (0, 40)),
            (1e6, 0.5, (7, 7)),
            (0.7, 0.25, (0, 0)),
            (0.7, 0.05, (1, 12)),
        ] {
            let mechanism =
                Mechanism { noise: 0.01, adaptive: Some(counted(quantile, deviation)), ..MECHANISM };
            let exact = (count.0 as f64 - count.1 as f64 * quantile) / 40.0 + quantile;
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
        Mechanism { adaptive: None, ..MECHANISM }.put_share(&place, (3, 9), &Seed::root(3));
        assert_eq!(place.get(), None);
    }
}
