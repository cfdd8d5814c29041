//! Local response normalisation (Krizhevsky et al. 2012, section 3.3).

use std::ops::Range;

use rayon::prelude::*;

use crate::kernels::vectorised::vectorised;

/// Values worth threads: some hundred microseconds.
const WORTH_THREADS: usize = 1 << 16;

/// `y = x / d^beta` with `d = k + alpha / size * (sum of x^2 over size channels)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response {
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
    response: Response,
    /// `d` of every value of the last batch.
    divisors: Vec<f32>,
    /// For every value, what its neighbours' gradients have of it.
    shares: Vec<f32>,
}

impl LocalResponseNorm {
    pub(crate) fn new(channels: usize, pixels: usize, response: Response) -> Self {
        Self { channels, pixels, response, divisors: Vec::new(), shares: Vec::new() }
    }

    /// Normalises images.
    pub(crate) fn forward(&mut self, x: &[f32], y: &mut [f32]) {
        let Self { channels, pixels, response, .. } = *self;
        self.divisors.resize(x.len(), 0.0);
        let image = channels * pixels;
        let images = (
            y.par_chunks_exact_mut(image),
            x.par_chunks_exact(image),
            self.divisors.par_chunks_exact_mut(image),
        );
        let images = images.into_par_iter().with_min_len(least(x.len()));
        images.for_each(|(y, x, divisors)| {
            vectorised(
                #[inline(always)]
                || response.normalise(x, y, divisors, pixels),
            );
        });
    }

    /// Propagates the gradient `dy` back, after a forward pass of the same `x`:
    /// `dx = dy / d^beta - 2 alpha beta / size x (sum of dy x / d^(beta + 1) over those whose neighbour it is)`.
    pub(crate) fn backward(&mut self, x: &[f32], dy: &[f32], dx: &mut [f32]) {
        let Self { channels, pixels, response, ref divisors, ref mut shares } = *self;
        shares.resize(x.len(), 0.0);
        let image = channels * pixels;
        let images = (
            dx.par_chunks_exact_mut(image),
            x.par_chunks_exact(image),
            dy.par_chunks_exact(image),
            divisors.par_chunks_exact(image),
            shares.par_chunks_exact_mut(image),
        );
        let images = images.into_par_iter().with_min_len(least(x.len()));
        images.for_each(|(dx, x, dy, divisors, shares)| {
            vectorised(
                #[inline(always)]
                || response.back([x, dy, divisors], shares, dx, pixels),
            );
        });
    }
}

/// The fewest images of a task: all, where there is little to do.
fn least(values: usize) -> usize {
    if values < WORTH_THREADS { usize::MAX } else { 1 }
}

impl Response {
    /// The channels that this one is normalised by, of so many.
    fn neighbours(&self, channel: usize, channels: usize) -> Range<usize> {
        channel.saturating_sub(self.size / 2)..(channel + (self.size - 1) / 2 + 1).min(channels)
    }

    /// The channels that are normalised by this one.
    fn dependants(&self, channel: usize, channels: usize) -> Range<usize> {
        channel.saturating_sub((self.size - 1) / 2)..(channel + self.size / 2 + 1).min(channels)
    }

    #[inline(always)]
    fn normalise(&self, x: &[f32], y: &mut [f32], divisors: &mut [f32], pixels: usize) {
        let share = self.alpha / self.size as f32;
        let planes = y.chunks_exact_mut(pixels).zip(divisors.chunks_exact_mut(pixels));
        for (channel, (y, divisors)) in planes.enumerate() {
            divisors.fill(0.0);
            for neighbour in self.neighbours(channel, x.len() / pixels) {
                let x = &x[neighbour * pixels..][..pixels];
                divisors.iter_mut().zip(x).for_each(|(sum, x)| *sum += x * x);
            }
            for sum in &mut *divisors {
                *sum = self.k + share * *sum;
            }
            let x = &x[channel * pixels..][..pixels];
            self.powers(divisors, y);
            y.iter_mut().zip(x).for_each(|(y, x)| *y *= x);
        }
    }

    #[inline(always)]
    fn back(&self, [x, dy, divisors]: [&[f32]; 3], shares: &mut [f32], dx: &mut [f32], pixels: usize) {
        self.powers(divisors, shares);
        // First the plain part, while the powers are there; then they become what the neighbours get.
        for (((dx, share), dy), (x, divisor)) in
            dx.iter_mut().zip(&mut *shares).zip(dy).zip(x.iter().zip(divisors))
        {
            *dx = dy * *share;
            *share = *dx * x / divisor;
        }
        let factor = -2.0 * self.alpha * self.beta / self.size as f32;
        for (channel, (dx, x)) in dx.chunks_exact_mut(pixels).zip(x.chunks_exact(pixels)).enumerate() {
            for dependant in self.dependants(channel, shares.len() / pixels) {
                let shares = &shares[dependant * pixels..][..pixels];
                for ((dx, x), share) in dx.iter_mut().zip(x).zip(shares) {
                    *dx += factor * x * share;
                }
            }
        }
    }

    /// `d^-beta`. The exponents of the literature are roots, which every processor takes to the last bit and many at a time.
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
    fn naive(x: &[f64], channels: usize, response: Response) -> Vec<f64> {
        let pixels = x.len() / channels;
        let Response { size, alpha, beta, k } = response;
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
            let response = Response { size, alpha: 1.5, beta, k: 0.7 };
            let (n, image) = (2, channels * pixels);
            let (x, dy) = (noise(n * image, 1), noise(n * image, 2));
            let mut norm = LocalResponseNorm::new(channels, pixels, response);
            let (mut y, mut dx) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
            // Twice, so that what remains of the first time would show.
            norm.forward(&dy, &mut y);
            norm.backward(&dy, &x, &mut dx);
            norm.forward(&x, &mut y);
            norm.backward(&x, &dy, &mut dx);
            for (number, x) in x.chunks(image).enumerate() {
                let here = number * image..(number + 1) * image;
                let x: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
                for (found, expected) in y[here.clone()].iter().zip(naive(&x, channels, response)) {
                    assert!(
                        (f64::from(*found) - expected).abs() < 1e-5,
                        "{channels} {size}: {found} {expected}"
                    );
                }
                for at in 0..image {
                    let moved = |step: f64| {
                        let mut x = x.clone();
                        x[at] += step;
                        let y = naive(&x, channels, response);
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
        let response = Response { size: 5, alpha: 1e-2, beta: 0.75, k: 2.0 };
        let (n, channels, pixels) = (40, 32, 49);
        let (x, dy) = (noise(n * channels * pixels, 1), noise(n * channels * pixels, 2));
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
            pool.install(|| {
                let mut norm = LocalResponseNorm::new(channels, pixels, response);
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
