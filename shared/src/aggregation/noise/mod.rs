//! Differential privacy of the sum of a round: clipped updates, discrete Gaussian noise, a denominator that no device changes.
//!
//! McMahan, Ramage, Talwar, Zhang: *Learning Differentially Private Recurrent Language Models*, ICLR 2018 (arXiv 1710.06963), the
//! estimator with a fixed denominator; Kairouz, Liu, Steinke: *The Distributed Discrete Gaussian Mechanism for Federated Learning with
//! Secure Aggregation*, ICML 2021 (arXiv 2102.06387), for noise on whole-numbered sums.
//!
//! ```text
//! every device k, with probability q:   D_k min(1, C / ||D_k||), rounded to whole multiples of a unit u
//! server:                               D = u (sum of these + noise of deviation z S) / (q N),   S = C / u + sqrt(d) / 2
//! ```
//!
//! S is the most by which one device changes the sum of d rounded values, so that z alone decides how much the sum gives away.
//!
//! The noise of a round is a function of the run's secret, of the round and of the sum that it hides: a round that is closed again
//! after a crash gives the same bytes, and the same round closed with other updates, in a copy of the run for example, has other
//! noise, which does not cancel when the two are subtracted.

mod adaptive;
mod bernoulli;
mod devices;
mod gaussian;
mod poisson;
mod share;

use models::params::IntegerSet;
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use super::exact_sum::CHUNK;
use super::{Clip, Scale, Template};
use crate::secret::Secret;
use crate::seed::Seed;
pub use adaptive::AdaptiveClip;
pub use devices::DeviceNoise;
use gaussian::{DiscreteGaussian, MAX_SIGMA};
pub use share::{LEAST_COUNT_NOISE, MOST_COUNT_NOISE, NoisedShare};

/// How a round's sum is made private.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mechanism {
    /// C: the greatest length of an update.
    pub clip: f64,
    /// z: the deviation of the noise, as a multiple of what one device changes; from [`LEAST_NOISE`] to [`MOST_NOISE`]. It is that of all
    /// that a round gives away.
    pub noise: f64,
    /// q: the probability with which a round asks a device; 1 for all in every round.
    pub rate: f64,
    /// N: the number of devices for which the sum is divided. No device changes it.
    pub devices: u32,
    /// How the bound of the next round follows from the number of updates within this one, which is noised as well; `None` if it
    /// stays, and they are not counted.
    pub adaptive: Option<AdaptiveClip>,
}

/// The least noise that there is: with less an account says nothing.
pub const LEAST_NOISE: f64 = 0.01;
/// The most noise that there is.
pub const MOST_NOISE: f64 = 1000.0;
/// The least length that updates are clipped to.
pub const LEAST_CLIP: f64 = 1e-9;
/// The greatest one.
pub const MOST_CLIP: f64 = 1e9;

/// How the sum of one round is made private.
#[derive(Clone, Copy, Debug)]
pub struct Private<'a> {
    /// The mechanism.
    pub mechanism: Mechanism,
    /// The run's secret, from which the noise comes.
    pub secret: &'a Secret,
    /// Where the noised share of updates within the bound is put, for a caller that goes on with it.
    pub share: Option<&'a NoisedShare>,
}

/// What roundings of floating-point numbers may add to a clipped update, relative to it: that of its length by less than `2^-53` for
/// each value, and everything else.
const ROUNDINGS: f64 = 1e-9;

impl Mechanism {
    /// `q N`, by which the sum is divided.
    #[must_use]
    pub fn expected(&self) -> f64 {
        self.rate * f64::from(self.devices)
    }

    /// The bound on the updates of this template.
    #[must_use]
    pub fn clip<'a>(&self, template: &'a Template) -> Clip<'a> {
        Clip { bound: self.clip, template }
    }

    /// The format of the sums: noise of about `2^26` units, which is drawn exactly, and room for it beside any number of updates. A
    /// value may be as large as `max_abs` before it is clipped.
    #[must_use]
    pub fn scale(&self, max_abs: f32) -> Scale {
        // Half of the greatest sigma, so that there is room for what rounding adds.
        let target = (MAX_SIGMA as f64).log2() - 1.0;
        Scale::with_exponent(max_abs, (target - (self.drawn_noise() * self.clip).log2()).floor() as i32)
    }

    /// The noise that is drawn for the sum.
    fn drawn_noise(&self) -> f64 {
        self.noise_of_sum().expect("a configuration that leaves none is refused")
    }

    /// z S: the deviation of the noise of sums of this number of values, in units of their scale, rounded up.
    ///
    /// # Panics
    /// If the scale is not [the mechanism's](Self::scale).
    fn sigma(&self, scale: Scale, values: usize) -> u64 {
        let sigma = (self.drawn_noise() * sensitivity(self.clip, scale, values as u64)).ceil();
        assert!(sigma >= 1.0 && sigma <= MAX_SIGMA as f64, "the scale is chosen for the noise");
        sigma as u64
    }
}

/// S: the greatest length of a clipped and rounded update of this number of values, in units of the scale.
fn sensitivity(clip: f64, scale: Scale, values: u64) -> f64 {
    let values = values as f64;
    clip / scale.resolution() * (1.0 + ROUNDINGS + values * f64::EPSILON) + values.sqrt() / 2.0
}

/// The seed of the noise of a round that hides these numbers.
fn seed<'a>(secret: &Secret, round: u32, numbers: impl Iterator<Item = (&'a str, &'a [i64])>) -> Seed {
    let mut hash = Sha256::new();
    let mut bytes = Vec::with_capacity(CHUNK * 8);
    for (name, values) in numbers {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
        hash.update((values.len() as u64).to_le_bytes());
        for chunk in values.chunks(CHUNK) {
            bytes.clear();
            bytes.extend(chunk.iter().flat_map(|value| value.to_le_bytes()));
            hash.update(&bytes);
        }
    }
    let noise = secret.seed("noise").derive_numbered("round", u64::from(round));
    noise.derive_bytes("sum", &hash.finalize())
}

impl Private<'_> {
    /// Adds the noise of this round to a sum, on all threads and to the same bytes on any number of them, and that of the `count`, how many
    /// of its terms are within the bound and how many it has.
    pub(super) fn add_noise(&self, sums: &mut IntegerSet, scale: Scale, round: u32, count: (u64, u64)) {
        let values = sums.values().map(|sum| sum.values().len()).sum();
        let gaussian = DiscreteGaussian::new(self.mechanism.sigma(scale, values));
        let seed = seed(self.secret, round, sums.iter().map(|(name, sum)| (name.as_str(), sum.values())));
        if let Some(share) = self.share {
            self.mechanism.put_share(share, count, &seed);
        }
        for (name, sum) in sums {
            let seed = seed.derive_bytes("tensor", name.as_bytes());
            sum.values_mut().par_chunks_mut(CHUNK).enumerate().for_each(|(index, sum)| {
                let seed = seed.derive_numbered("values", index as u64);
                let mut rng = ChaCha20Rng::from_seed(*seed.as_bytes());
                // What a sum cannot hold is cut off: that is done to the noisy sum and gives nothing away.
                for sum in sum {
                    *sum = sum.saturating_add(gaussian.draw(&mut rng));
                }
            });
        }
    }
}

#[cfg(test)]
mod tests;
