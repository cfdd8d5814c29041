//! Batch normalisation (Ioffe and Szegedy 2015).

use rayon::prelude::*;

use super::plane::{affine_then, combine_through, for_each, gradient_sums_through, moments};
use super::{EPSILON, MOMENTUM, NormGradients};
use crate::kernels::rectifier::Rectifier;

/// Normalises each channel by its mean and variance: those of the batch in training, the running ones in evaluation. Then
/// rectifies, if that is a part of it.
#[derive(Debug)]
pub(crate) struct BatchNorm {
    channels: usize,
    pixels: usize,
    epsilon: f64,
    momentum: f64,
    rectifier: Option<Rectifier>,
    /// Of each channel: mean, and one over the standard deviation.
    statistics: Vec<[f64; 2]>,
    /// Whether these were those of the batch, and depend on its values.
    of_batch: bool,
    /// Of each channel: the sum of the gradient, and that of the gradient times the normalised values.
    sums: Vec<[f64; 2]>,
}

impl BatchNorm {
    pub(crate) fn new(channels: usize, pixels: usize) -> Self {
        Self {
            channels,
            pixels,
            epsilon: EPSILON,
            momentum: MOMENTUM,
            rectifier: None,
            statistics: vec![[0.0; 2]; channels],
            of_batch: true,
            sums: vec![[0.0; 2]; channels],
        }
    }

    /// With another summand of variances, and another weight of a new batch in the running statistics.
    pub(crate) fn with(self, epsilon: f64, momentum: f64) -> Self {
        Self { epsilon, momentum, ..self }
    }

    /// With a rectifier after it.
    pub(crate) fn rectified(self, rectifier: Option<Rectifier>) -> Self {
        Self { rectifier, ..self }
    }

    /// Whether the backward pass needs the output.
    pub(crate) fn reads_output(&self) -> bool {
        self.rectifier.is_some()
    }

    /// Normalises `n` images by their own mean and biased variance, and moves the running mean and variance towards their
    /// mean and unbiased variance.
    ///
    /// # Panics
    /// If there is only one value per channel, which the caller refuses.
    pub(crate) fn train(
        &mut self,
        (weight, bias): (&[f32], &[f32]),
        (running_mean, running_var): (&mut [f32], &mut [f32]),
        x: &[f32],
        y: &mut [f32],
        n: usize,
    ) {
        let Self { epsilon, momentum, .. } = *self;
        let count = n * self.pixels;
        assert!(count > 1, "one value has no variance");
        self.of_batch = true;
        for_each(self.statistics.par_iter_mut(), x.len(), |channel, statistics| {
            *statistics = moments(|| planes(x, channel, self.channels, self.pixels), count as f64);
        });
        let unbiased = count as f64 / (count as f64 - 1.0);
        let buffers = running_mean.iter_mut().zip(running_var);
        for ((running_mean, running_var), [mean, variance]) in buffers.zip(&mut self.statistics) {
            *running_mean = ((1.0 - momentum) * f64::from(*running_mean) + momentum * *mean) as f32;
            *running_var =
                ((1.0 - momentum) * f64::from(*running_var) + momentum * unbiased * *variance) as f32;
            *variance = 1.0 / (*variance + epsilon).sqrt();
        }
        self.normalise((weight, bias), x, y);
    }

    /// Normalises `n` images by the running mean and variance.
    pub(crate) fn evaluate(
        &mut self,
        (weight, bias): (&[f32], &[f32]),
        (running_mean, running_var): (&[f32], &[f32]),
        x: &[f32],
        y: &mut [f32],
    ) {
        let epsilon = self.epsilon;
        self.of_batch = false;
        for ((statistics, &mean), &variance) in self.statistics.iter_mut().zip(running_mean).zip(running_var)
        {
            // A variance that was sent as a difference in 16 bits may be slightly negative by rounding.
            *statistics = [f64::from(mean), 1.0 / (f64::from(variance).max(0.0) + epsilon).sqrt()];
        }
        self.normalise((weight, bias), x, y);
    }

    fn normalise(&self, affine: (&[f32], &[f32]), x: &[f32], y: &mut [f32]) {
        match self.rectifier {
            None => self.normalise_then(affine, x, y, |y| y),
            Some(Rectifier::Relu) => self.normalise_then(affine, x, y, |y| Rectifier::Relu.value(y)),
            Some(Rectifier::Relu6) => self.normalise_then(affine, x, y, |y| Rectifier::Relu6.value(y)),
        }
    }

    #[inline(always)]
    fn normalise_then(
        &self,
        (weight, bias): (&[f32], &[f32]),
        x: &[f32],
        y: &mut [f32],
        then: impl Fn(f32) -> f32 + Sync,
    ) {
        let image = self.channels * self.pixels;
        assert_eq!(x.len(), y.len());
        let images = y.par_chunks_exact_mut(image).zip(x.par_chunks_exact(image));
        for_each(images, x.len(), |_, (y, x)| {
            let planes = y.chunks_exact_mut(self.pixels).zip(x.chunks_exact(self.pixels));
            for (((y, x), [mean, inverse]), (weight, bias)) in
                planes.zip(&self.statistics).zip(weight.iter().zip(bias))
            {
                affine_then((x, y), *mean, f64::from(*weight) * inverse, *bias, &then);
            }
        });
    }

    /// Propagates the gradient `dy` back, after a pass of `x` to `y`, which is only read if there is a rectifier: then `dy` below
    /// is what passes it. With `z` the normalised values and `m` their number per
    /// channel, `dx = weight / deviation (dy - sum(dy)/m - z sum(dy z)/m)` after [`BatchNorm::train`], and
    /// `dx = weight / deviation dy` after [`BatchNorm::evaluate`].
    pub(crate) fn backward(
        &mut self,
        weight: &[f32],
        (x, y, dy): (&[f32], &[f32], &[f32]),
        gradients: NormGradients<'_>,
        dx: Option<&mut [f32]>,
    ) {
        match self.rectifier {
            None => self.backward_through(weight, (x, dy, dy), gradients, dx, |dy, _| dy),
            Some(Rectifier::Relu) => {
                self.backward_through(weight, (x, y, dy), gradients, dx, |dy, y| {
                    Rectifier::Relu.slope(dy, y)
                });
            }
            Some(Rectifier::Relu6) => {
                self.backward_through(weight, (x, y, dy), gradients, dx, |dy, y| {
                    Rectifier::Relu6.slope(dy, y)
                });
            }
        }
    }

    #[inline(always)]
    fn backward_through(
        &mut self,
        weight: &[f32],
        (x, y, dy): (&[f32], &[f32], &[f32]),
        gradients: NormGradients<'_>,
        dx: Option<&mut [f32]>,
        through: impl Fn(f32, f32) -> f32 + Sync,
    ) {
        let Self { channels, pixels, of_batch, ref statistics, ref mut sums, .. } = *self;
        let image = channels * pixels;
        for_each(sums.par_iter_mut(), x.len(), |channel, sums| {
            let [mean, inverse] = statistics[channel];
            let of = |values| planes(values, channel, channels, pixels);
            let triples = of(x).zip(of(dy)).zip(of(y));
            let total = triples.map(|((x, dy), y)| gradient_sums_through((x, dy, y), mean, &through));
            *sums = total.fold([0.0; 2], |[a, b], [plain, weighted]| [a + plain, b + inverse * weighted]);
        });
        for ((weight, bias), sums) in gradients.weight.iter_mut().zip(gradients.bias).zip(&*sums) {
            (*bias, *weight) = (sums[0] as f32, sums[1] as f32);
        }
        let Some(dx) = dx else { return };
        let count = (x.len() / channels) as f64;
        let passes = x.par_chunks_exact(image).zip(y.par_chunks_exact(image)).zip(dy.par_chunks_exact(image));
        for_each(dx.par_chunks_exact_mut(image).zip(passes), x.len(), |_, (dx, ((x, y), dy))| {
            let planes = x.chunks_exact(pixels).zip(y.chunks_exact(pixels)).zip(dy.chunks_exact(pixels));
            for (channel, (((x, y), dy), dx)) in planes.zip(dx.chunks_exact_mut(pixels)).enumerate() {
                let ([mean, inverse], sums) = (statistics[channel], sums[channel]);
                let scale = f64::from(weight[channel]) * inverse;
                let factors = if of_batch {
                    [scale, -scale * inverse * sums[1] / count, -scale * sums[0] / count]
                } else {
                    [scale, 0.0, 0.0]
                };
                combine_through((x, dy, y), dx, mean, factors, &through);
            }
        });
    }
}

/// The planes of one channel, image by image.
#[inline(always)]
fn planes(x: &[f32], channel: usize, channels: usize, pixels: usize) -> impl Iterator<Item = &[f32]> {
    x.chunks_exact(channels * pixels).map(move |image| &image[channel * pixels..(channel + 1) * pixels])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::noise;

    /// The normalisation of one channel's values in f64.
    fn naive(x: &[f64], weight: f64, bias: f64) -> (Vec<f64>, f64, f64) {
        let count = x.len() as f64;
        let mean = x.iter().sum::<f64>() / count;
        let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        let y = x.iter().map(|x| weight * (x - mean) / (variance + EPSILON).sqrt() + bias).collect();
        (y, mean, variance)
    }

    struct Case {
        n: usize,
        channels: usize,
        pixels: usize,
        x: Vec<f32>,
        dy: Vec<f32>,
        weight: Vec<f32>,
        bias: Vec<f32>,
    }

    impl Case {
        fn new(n: usize, channels: usize, pixels: usize) -> Self {
            let count = n * channels * pixels;
            // Far from zero, so that a variance from the mean of squares would show.
            let x = noise(count, 1).iter().map(|x| x + 5.0).collect();
            let (dy, weight, bias) = (noise(count, 2), noise(channels, 3), noise(channels, 4));
            Self { n, channels, pixels, x, dy, weight, bias }
        }

        /// The values of one channel.
        fn channel(&self, values: &[f32], channel: usize) -> Vec<f64> {
            planes(values, channel, self.channels, self.pixels).flatten().map(|&x| f64::from(x)).collect()
        }

        /// Output, running statistics, gradients by weight, bias and x.
        fn run(&self) -> [Vec<f32>; 6] {
            let mut norm = BatchNorm::new(self.channels, self.pixels);
            let (mut y, mut dx) = (vec![f32::NAN; self.x.len()], vec![f32::NAN; self.x.len()]);
            let (mut mean, mut var) = (vec![0.5; self.channels], vec![2.0; self.channels]);
            norm.train((&self.weight, &self.bias), (&mut mean, &mut var), &self.x, &mut y, self.n);
            let (mut weight, mut bias) = (vec![f32::NAN; self.channels], vec![f32::NAN; self.channels]);
            let gradients = NormGradients { weight: &mut weight, bias: &mut bias };
            norm.backward(&self.weight, (&self.x, &y, &self.dy), gradients, Some(&mut dx));
            [y, mean, var, weight, bias, dx]
        }
    }

    fn assert_close(found: impl IntoIterator<Item = f64>, expected: impl IntoIterator<Item = f64>) {
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() < 2e-5 * (1.0 + expected.abs()), "{found} {expected}");
        }
    }

    const SHAPES: [(usize, usize, usize); 6] =
        [(4, 3, 1), (2, 5, 1), (1, 2, 6), (3, 4, 15), (2, 3, 16), (5, 2, 49)];

    #[test]
    fn values_statistics_and_gradients_are_those_of_double_precision() {
        for (n, channels, pixels) in SHAPES {
            let case = Case::new(n, channels, pixels);
            let [y, mean, var, weight, bias, dx] = case.run();
            for channel in 0..channels {
                let (x, dy) = (case.channel(&case.x, channel), case.channel(&case.dy, channel));
                let (w, b) = (f64::from(case.weight[channel]), f64::from(case.bias[channel]));
                let (expected, m, v) = naive(&x, w, b);
                let count = x.len() as f64;
                assert_close(case.channel(&y, channel), expected);
                assert_close([f64::from(mean[channel])], [0.45 + 0.1 * m]);
                assert_close([f64::from(var[channel])], [1.8 + 0.1 * v * count / (count - 1.0)]);
                // The gradients of sum(dy y), by central differences.
                let loss =
                    |x: &[f64], w, b| naive(x, w, b).0.iter().zip(&dy).map(|(y, dy)| y * dy).sum::<f64>();
                let h = 1e-5;
                assert_close(
                    [weight[channel].into()],
                    [(loss(&x, w + h, b) - loss(&x, w - h, b)) / (2.0 * h)],
                );
                assert_close([bias[channel].into()], [(loss(&x, w, b + h) - loss(&x, w, b - h)) / (2.0 * h)]);
                let slopes = (0..x.len()).map(|index| {
                    let at = |offset| {
                        let mut moved = x.clone();
                        moved[index] += offset;
                        loss(&moved, w, b)
                    };
                    (at(h) - at(-h)) / (2.0 * h)
                });
                assert_close(case.channel(&dx, channel), slopes);
            }
        }
    }

    #[test]
    fn evaluation_uses_what_is_running() {
        let mut norm = BatchNorm::new(2, 2);
        let mut y = [0.0; 4];
        norm.evaluate(
            (&[2.0, 1.0], &[0.5, 0.0]),
            (&[1.0, -1.0], &[4.0, 1.0]),
            &[1.0, 3.0, -1.0, 1.0],
            &mut y,
        );
        assert_close(y.map(f64::from), [0.5, 2.5, 0.0, 2.0]);
        // Less than nothing, by the rounding of what was sent, is nothing.
        let mut evaluated = |variance| {
            norm.evaluate((&[2.0, 1.0], &[0.5, 0.0]), (&[1.0, 1.0], &[variance, 1.0]), &[1.0; 4], &mut y);
            y
        };
        assert_eq!(evaluated(-2e-4), evaluated(0.0));
    }

    #[test]
    fn threads_do_not_show() {
        let case = Case::new(9, 31, 1000);
        let bits = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| case.run()).map(|list| list.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
        };
        let one = bits(1);
        assert!([2, 3].into_iter().all(|threads| bits(threads) == one));
    }
}
