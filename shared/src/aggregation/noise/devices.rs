//! Noise that devices add to their own updates before they hide them, so that the server, too, sees a private sum alone.
//!
//! Agarwal, Kairouz, Liu: *The Skellam Mechanism for Differentially Private Federated Learning*, NeurIPS 2021 (arXiv 2110.04995).
//!
//! ```text
//! every device k:   x_k = D_k min(1, C / ||D_k||), rounded to whole multiples of a unit u
//!                   x_k + P - P',   P and P' Poisson of the rate r in every value,   r >= (z S)^2 / (2 n),   S = C / u + sqrt(d) / 2
//! server:           D = u (sum of these) / N
//! ```
//!
//! The difference of two Poisson numbers is a Skellam number of the variance 2 r, and a sum of n of them is one of the variance 2 r n:
//! if the updates of at least n devices are in the sum, which secure aggregation sees to, its noise has at least the deviation z S. With
//! more devices there is more noise than that.

use models::params::IntegerFormat;
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::poisson::{MAX_RATE, Poisson};
use super::{LEAST_CLIP, LEAST_NOISE, MOST_CLIP, MOST_NOISE, seed, sensitivity};
use crate::aggregation::exact_sum::CHUNK;
use crate::aggregation::{Clip, Scale, Template};
use crate::secret::Secret;

/// What every device adds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceNoise {
    /// C: the greatest length of an update.
    pub clip: f64,
    /// z: the deviation of the noise of a sum, as a multiple of what one device changes.
    pub noise: f64,
    /// n: the updates that together have this noise.
    pub devices: u32,
    /// N: the number of devices for which the sum is divided, however many are in it.
    pub over: u32,
    /// d: the values of an update.
    pub values: u64,
}

/// C / u where nothing else bounds it: updates have this length at least, in units, and of many values a greater one, so that what rounding
/// adds to S is below one in a hundred.
const LEAST_UNITS: f64 = 4096.0;
const UNITS_FOR_ROUNDING: f64 = 64.0;

/// Deviations beyond which no noise is believed: a probability below `2^-1000` for each value.
const FURTHEST: f64 = 40.0;

impl DeviceNoise {
    /// Whether a device may go by it, with updates of this template. What a server sends may be anything.
    #[must_use]
    pub fn is_sound(&self, template: &Template) -> bool {
        let noise = (LEAST_NOISE..=MOST_NOISE).contains(&self.noise);
        let clip = (LEAST_CLIP..=MOST_CLIP).contains(&self.clip);
        let asked = noise && clip && self.devices > 0 && self.values == template.parameters() as u64;
        asked && self.is_drawn()
    }

    /// The bound on the updates of this template.
    #[must_use]
    pub fn clip<'a>(&self, template: &'a Template) -> Clip<'a> {
        Clip { bound: self.clip, template }
    }

    /// The format of the sums of updates whose values may be as large as `max_abs` before they are clipped.
    ///
    /// # Panics
    /// If the noise is not [sound](Self::is_sound).
    #[must_use]
    pub fn scale(&self, max_abs: f32) -> Scale {
        let units = LEAST_UNITS.max(UNITS_FOR_ROUNDING * (self.values as f64).sqrt());
        // By doubling, which is exact on every machine.
        let reaches = |exponent: i32| self.clip * f64::from(exponent).exp2() >= units;
        let mut finest = 0;
        while !reaches(finest) {
            finest += 1;
        }
        while reaches(finest - 1) {
            finest -= 1;
        }
        let scales = (finest - 64..=finest).rev().map(|exponent| Scale::with_exponent(max_abs, exponent));
        // With coarser units there is less to draw, down to what rounding alone asks for.
        let mut drawn = scales.filter(|scale| self.least_rate(*scale) <= MAX_RATE as f64);
        drawn.next().unwrap_or(Scale::with_exponent(max_abs, finest - 64))
    }

    /// Whether a device may round to this scale.
    #[must_use]
    pub fn is_scale(&self, scale: Scale) -> bool {
        let bounded = scale.max_abs() > 0.0 && scale.max_abs().is_finite();
        bounded && scale == self.scale(scale.max_abs())
    }

    /// Whether the noise can be drawn: that of very many values and a large multiple cannot.
    #[must_use]
    pub fn is_drawn(&self) -> bool {
        self.rate(self.scale(1.0)) <= MAX_RATE
    }

    /// Whether the sum of this number of updates fits into this format.
    #[must_use]
    pub fn fits(&self, format: IntegerFormat, updates: usize) -> bool {
        let greatest = f64::from(format.bits() - 1).exp2();
        self.greatest(self.scale(1.0), updates as u64) < greatest
    }

    /// Beyond this no value of a sum of this number of honest updates is.
    #[must_use]
    pub fn greatest(&self, scale: Scale, updates: u64) -> f64 {
        let updates = updates as f64;
        let one = self.clip / scale.resolution() + 1.0;
        updates * one + FURTHEST * (2.0 * self.rate(scale) as f64 * updates).sqrt()
    }

    /// The greatest change of a sum by one device, in units: its length, and the sum of the magnitudes of its values.
    #[must_use]
    pub fn sensitivities(&self) -> [f64; 2] {
        let length = sensitivity(self.clip, self.scale(1.0), self.values);
        [length, length * (self.values as f64).sqrt()]
    }

    /// The least variance of the noise of a sum that is learned, in units.
    #[must_use]
    pub fn variance(&self) -> f64 {
        2.0 * self.rate(self.scale(1.0)) as f64 * f64::from(self.devices)
    }

    /// r, as it follows from the deviation of the sum.
    fn least_rate(&self, scale: Scale) -> f64 {
        let deviation = self.noise * sensitivity(self.clip, scale, self.values);
        deviation * deviation / (2.0 * f64::from(self.devices))
    }

    /// r: a whole number that is not less.
    fn rate(&self, scale: Scale) -> u64 {
        (self.least_rate(scale) * (1.0 + 1e-9)).ceil() as u64
    }

    /// Adds a device's noise of this round to its rounded update, on all threads and to the same bytes on any number of them. It follows
    /// from the device's secret in the run and from the update: the same one has the same noise again, and another one has other noise.
    ///
    /// # Panics
    /// If the scale is not [its own](Self::is_scale), or the noise is not [drawn](Self::is_drawn).
    pub fn add<'a>(
        &self,
        scale: Scale,
        secret: &Secret,
        round: u32,
        numbers: impl IntoIterator<Item = (&'a str, &'a mut [i64])>,
    ) {
        let numbers: Vec<_> = numbers.into_iter().collect();
        assert!(self.is_scale(scale) && self.is_drawn(), "the scale is chosen for the noise");
        let poisson = Poisson::shared(self.rate(scale));
        let seed = seed(secret, round, numbers.iter().map(|(name, values)| (*name, &**values)));
        for (name, values) in numbers {
            let seed = seed.derive_bytes("tensor", name.as_bytes());
            values.par_chunks_mut(CHUNK).enumerate().for_each(|(index, values)| {
                let mut rng =
                    ChaCha20Rng::from_seed(*seed.derive_numbered("values", index as u64).as_bytes());
                for value in values {
                    let [more, less] = [(); 2].map(|()| poisson.draw(&mut rng).cast_signed());
                    *value += more - less;
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const NOISE: DeviceNoise =
        DeviceNoise { clip: 1.0, noise: 1.0, devices: 100, over: 100, values: 1_663_370 };

    #[test]
    fn a_scale_is_as_fine_as_rounding_needs_and_the_noise_lets_it() {
        for noise in
            [NOISE, DeviceNoise { values: 10, ..NOISE }, DeviceNoise { clip: 3e-7, devices: 20, ..NOISE }]
        {
            let scale = noise.scale(1000.0);
            let units = noise.clip / scale.resolution();
            let wanted = LEAST_UNITS.max(UNITS_FOR_ROUNDING * (noise.values as f64).sqrt());
            assert!((wanted..2.0 * wanted).contains(&units), "{noise:?}: {units}");
            assert!(noise.is_scale(scale) && noise.is_drawn() && noise.fits(IntegerFormat::I32, 100));
            let [length, magnitudes] = noise.sensitivities();
            assert!(length > units && length < 1.02 * units && magnitudes > length);
            let variance = noise.variance() / (noise.noise * length).powi(2);
            assert!((1.0..1.01).contains(&variance), "{noise:?}: {variance}");
        }
        // Much noise of few devices has coarser units, and too much is not drawn.
        let coarse = DeviceNoise { noise: 30.0, devices: 2, ..NOISE };
        assert!(coarse.is_drawn() && coarse.scale(1.0).resolution() > NOISE.scale(1.0).resolution());
        assert!(!DeviceNoise { noise: 1000.0, devices: 1, ..NOISE }.is_drawn());
    }

    #[test]
    #[ignore = "a measurement"]
    fn the_noise_of_a_large_update() {
        let mut values = vec![0; NOISE.values as usize];
        for turn in ["with its table", "again"] {
            let begun = Instant::now();
            NOISE.add(NOISE.scale(1.0), &Secret::new(&[1; 32]), 1, [("w", &mut values[..])]);
            println!("{} values, {turn}: {:.2} s", values.len(), begun.elapsed().as_secs_f64());
        }
    }
}
