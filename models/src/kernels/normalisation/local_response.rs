//! Local response normalisation (Krizhevsky et al. 2012, section 3.3).

use std::ops::Range;

use rayon::prelude::*;

use crate::kernels::vectorised::vectorised;

/// Values from which several threads are used: some hundred microseconds of work.
const MIN_PARALLEL_VALUES: usize = 1 << 16;

/// `y = x / d^beta` with `d = k + alpha / size * (sum of x^2 over size channels)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalResponse {
    /// Channels of a neighbourhood: from `size / 2` before to `(size - 1) / 2` after.
    pub(crate) size: usize,
    pub(crate) alpha: f32,
    pub(crate) beta: f32,
    pub(crate) k: f32,
}

/// Normalises each pixel by the squares of its neighbours in other channels.
#[derive(Debug)]
pub(crate) struct LocalResponseNorm {
    channels: usize,
    pixels: usize,
    settings: LocalResponse,
    /// `d` of every value of the last batch.
    divisors: Vec<f32>,
    /// `dy x / d^(beta + 1)` of every value: its term in its neighbours' gradients.
    terms: Vec<f32>,
}

impl LocalResponseNorm {
    pub(crate) fn new(channels: usize, pixels: usize, settings: LocalResponse) -> Self {
        Self { channels, pixels, settings, divisors: Vec::new(), terms: Vec::new() }
    }

    /// Normalises images.
    pub(crate) fn forward(&mut self, x: &[f32], y: &mut [f32]) {
        let Self { channels, pixels, settings, .. } = *self;
        self.divisors.resize(x.len(), 0.0);
        let image = channels * pixels;
        let images = (
            y.par_chunks_exact_mut(image),
            x.par_chunks_exact(image),
            self.divisors.par_chunks_exact_mut(image),
        );
        let images = images.into_par_iter().with_min_len(min_images(x.len()));
        images.for_each(|(y, x, divisors)| {
            vectorised(
                #[inline(always)]
                || settings.normalise(x, y, divisors, pixels),
            );
        });
    }

    /// Propagates the gradient `dy` back, after a forward pass of the same `x`:
    /// `dx = dy / d^beta - 2 alpha beta / size x (sum of dy x / d^(beta + 1) over the values that it normalises)`.
    pub(crate) fn backward(&mut self, x: &[f32], dy: &[f32], dx: &mut [f32]) {
        let Self { channels, pixels, settings, ref divisors, ref mut terms } = *self;
        terms.resize(x.len(), 0.0);
        let image = channels * pixels;
        let images = (
            dx.par_chunks_exact_mut(image),
            x.par_chunks_exact(image),
            dy.par_chunks_exact(image),
            divisors.par_chunks_exact(image),
            terms.par_chunks_exact_mut(image),
        );
        let images = images.into_par_iter().with_min_len(min_images(x.len()));
        images.for_each(|(dx, x, dy, divisors, terms)| {
            vectorised(
                #[inline(always)]
                || settings.back([x, dy, divisors], terms, dx, pixels),
            );
        });
    }
}

/// The least images per task: all of them if there is little to do.
fn min_images(values: usize) -> usize {
    if values < MIN_PARALLEL_VALUES { usize::MAX } else { 1 }
}

impl LocalResponse {
    /// The channels that a channel is normalised by.
    fn neighbours(&self, channel: usize, channels: usize) -> Range<usize> {
        channel.saturating_sub(self.size / 2)..(channel + (self.size - 1) / 2 + 1).min(channels)
    }

    /// The channels that a channel normalises.
    fn dependants(&self, channel: usize, channels: usize) -> Range<usize> {
        channel.saturating_sub((self.size - 1) / 2)..(channel + self.size / 2 + 1).min(channels)
    }

    #[inline(always)]
    fn normalise(&self, x: &[f32], y: &mut [f32], divisors: &mut [f32], pixels: usize) {
        let term = self.alpha / self.size as f32;
        let planes = y.chunks_exact_mut(pixels).zip(divisors.chunks_exact_mut(pixels));
        for (channel, (y, divisors)) in planes.enumerate() {
            divisors.fill(0.0);
            for neighbour in self.neighbours(channel, x.len() / pixels) {
                let x = &x[neighbour * pixels..][..pixels];
                divisors.iter_mut().zip(x).for_each(|(sum, x)| *sum += x * x);
            }
            for sum in &mut *divisors {
                *sum = self.k + term * *sum;
            }
            let x = &x[channel * pixels..][..pixels];
            self.powers(divisors, y);
            y.iter_mut().zip(x).for_each(|(y, x)| *y *= x);
        }
    }

    #[inline(always)]
    fn back(&self, [x, dy, divisors]: [&[f32]; 3], terms: &mut [f32], dx: &mut [f32], pixels: usize) {
        self.powers(divisors, terms);
        // The direct part of the gradient needs the powers, which the terms for the neighbours then overwrite.
        for (((dx, term), dy), (x, divisor)) in
            dx.iter_mut().zip(&mut *terms).zip(dy).zip(x.iter().zip(divisors))
        {
            *dx = dy * *term;
            *term = *dx * x / divisor;
        }
        let factor = -2.0 * self.alpha * self.beta / self.size as f32;
        for (channel, (dx, x)) in dx.chunks_exact_mut(pixels).zip(x.chunks_exact(pixels)).enumerate() {
            for dependant in self.dependants(channel, terms.len() / pixels) {
                let terms = &terms[dependant * pixels..][..pixels];
                for ((dx, x), term) in dx.iter_mut().zip(x).zip(terms) {
                    *dx += factor * x * term;
                }
            }
        }
    }

    /// `d^-beta`. The exponents of the literature are computed by roots, which are exact to the last bit on every processor and
    /// vectorised.
    #[inline(always)]
    #[expect(clippy::float_cmp, reason = "these exponents are meant exactly")]
    fn powers(&self, divisors: &[f32], powers: &mut [f32]) {
        let all = powers.iter_mut().zip(divisors);
        if self.beta == 0.75 {
            all.for_each(|(power, d)| *power = 1.0 / (d.sqrt() * d.sqrt().sqrt()));
        } else if self.beta == 0.5 {
            all.for_each(|(power, d)| *power = 1.0 / d.sqrt());
        } else if self.beta == 1.0 {
            all.for_each(|(power, d)| *power = 1.0 / d);
        } else {
            all.for_each(|(power, d)| *power = d.powf(-self.beta));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::noise;

    /// `y` of one image in f64.
    fn naive(x: &[f64], channels: usize, settings: LocalResponse) -> Vec<f64> {
        let pixels = x.len() / channels;
        let LocalResponse { size, alpha, beta, k } = settings;
        (0..x.len())
            .map(|at| {
                let (channel, pixel) = (at / pixels, at % pixels);
                let near = |other: &usize| other + size / 2 >= channel && *other <= channel + (size - 1) / 2;
                let sum: f64 =
                    (0..channels).filter(near).map(|other| x[other * pixels + pixel].powi(2)).sum();
                x[at] / (f64::from(k) + f64::from(alpha) / size as f64 * sum).powf(f64::from(beta))
            })
            .collect()
    }

    #[test]
    fn values_and_gradients_are_those_of_the_definition() {
        for (channels, pixels, size, beta) in
            [(1, 1, 1, 0.75), (7, 5, 5, 0.75), (6, 4, 4, 0.5), (3, 2, 9, 1.0), (5, 3, 2, 0.3)]
        {
            let settings = LocalResponse { size, alpha: 1.5, beta, k: 0.7 };
            let (n, image) = (2, channels * pixels);
            let (x, dy) = (noise(n * image, 1), noise(n * image, 2));
            let mut norm = LocalResponseNorm::new(channels, pixels, settings);
            let (mut y, mut dx) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
            // Twice, so that what remains of the first time would show.
            norm.forward(&dy, &mut y);
            norm.backward(&dy, &x, &mut dx);
            norm.forward(&x, &mut y);
            norm.backward(&x, &dy, &mut dx);
            for (number, x) in x.chunks(image).enumerate() {
                let here = number * image..(number + 1) * image;
                let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
                for (found, expected) in y[here.clone()].iter().zip(naive(&x, channels, settings)) {
                    assert!(
                        (f64::from(*found) - expected).abs() < 1e-5,
                        "{channels} {size}: {found} {expected}"
                    );
                }
                for at in 0..image {
                    let moved = |step: f64| {
                        let mut x = x.clone();
                        x[at] += step;
                        let y = naive(&x, channels, settings);
                        y.iter().zip(&dy[here.clone()]).map(|(y, dy)| y * f64::from(*dy)).sum::<f64>()
                    };
                    let expected = (moved(1e-6) - moved(-1e-6)) / 2e-6;
                    let found = f64::from(dx[here.start + at]);
                    assert!((found - expected).abs() < 1e-4, "{channels} {size} {at}: {found} {expected}");
                }
            }
        }
    }

    #[test]
    fn the_same_bits_for_any_number_of_threads() {
        let settings = LocalResponse { size: 5, alpha: 1e-2, beta: 0.75, k: 2.0 };
        let (n, channels, pixels) = (40, 32, 49);
        let (x, dy) = (noise(n * channels * pixels, 1), noise(n * channels * pixels, 2));
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| {
                let mut norm = LocalResponseNorm::new(channels, pixels, settings);
                let (mut y, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
                norm.forward(&x, &mut y);
                norm.backward(&x, &dy, &mut dx);
                [y, dx]
            })
        };
        let one = with(1);
        assert_eq!(with(2), one);
        assert_eq!(with(3), one);
    }
}
