//! Batch normalisation (Ioffe and Szegedy 2015).

use rayon::prelude::*;

use super::plane::{affine_then, combine_through, for_each, gradient_sums_through, moments};
use super::{EPSILON, MOMENTUM, NormGradients};
use crate::kernels::rectifier::Rectifier;

/// Pixels of a plane from which on a channel is finished at once, while it is in the cache, though its planes lie apart.
const MIN_STRIDED_PIXELS: usize = 64;

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
        affine: (&[f32], &[f32]),
        running: (&mut [f32], &mut [f32]),
        x: &[f32],
        y: &mut [f32],
        n: usize,
    ) {
        match self.rectifier {
            None => self.train_then(affine, running, x, y, n, |y| y),
            Some(Rectifier::Relu) => {
                self.train_then(affine, running, x, y, n, |y| Rectifier::Relu.value(y));
            }
            Some(Rectifier::Relu6) => {
                self.train_then(affine, running, x, y, n, |y| Rectifier::Relu6.value(y));
            }
        }
    }

    #[inline(always)]
    fn train_then(
        &mut self,
        affine: (&[f32], &[f32]),
        (running_mean, running_var): (&mut [f32], &mut [f32]),
        x: &[f32],
        y: &mut [f32],
        n: usize,
        then: impl Fn(f32) -> f32 + Sync,
    ) {
        let Self { channels, pixels, epsilon, momentum, .. } = *self;
        let count = n * pixels;
        assert!(count > 1, "one value has no variance");
        self.of_batch = true;
        let unbiased = count as f64 / (count as f64 - 1.0);
        let measure = |channel: usize, statistics: &mut [f64; 2], mean: &mut f32, var: &mut f32| {
            let [found, variance] = moments(|| planes(x, channel, channels, pixels), count as f64);
            *mean = ((1.0 - momentum) * f64::from(*mean) + momentum * found) as f32;
            *var = ((1.0 - momentum) * f64::from(*var) + momentum * unbiased * variance) as f32;
            *statistics = [found, 1.0 / (variance + epsilon).sqrt()];
        };
        let all =
            self.statistics.par_iter_mut().zip(running_mean.par_iter_mut()).zip(running_var.par_iter_mut());
        if pixels < MIN_STRIDED_PIXELS {
            for_each(all, x.len(), |channel, ((statistics, mean), var)| {
                measure(channel, statistics, mean, var);
            });
            return self.normalise_then(affine, x, y, then);
        }
        let (weight, bias) = affine;
        let y = by_channel(y, channels, pixels);
        for_each(all.zip(y), x.len(), |channel, (((statistics, mean), var), y)| {
            measure(channel, statistics, mean, var);
            let [mean, inverse] = *statistics;
            for (y, x) in y.into_iter().zip(planes(x, channel, channels, pixels)) {
                affine_then((x, y), mean, f64::from(weight[channel]) * inverse, bias[channel], &then);
            }
        });
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
        let count = (x.len() / channels) as f64;
        let of = |values, channel| planes(values, channel, channels, pixels);
        let measure = |channel: usize, sums: &mut [f64; 2]| {
            let [mean, inverse] = statistics[channel];
            let triples = of(x, channel).zip(of(dy, channel)).zip(of(y, channel));
            let total = triples.map(|((x, dy), y)| gradient_sums_through((x, dy, y), mean, &through));
            *sums = total.fold([0.0; 2], |[a, b], [plain, weighted]| [a + plain, b + inverse * weighted]);
        };
        let propagate = |channel: usize, sums: [f64; 2], plane: (&[f32], &[f32], &[f32]), dx: &mut [f32]| {
            let [mean, inverse] = statistics[channel];
            let scale = f64::from(weight[channel]) * inverse;
            let factors = if of_batch {
                [scale, -scale * inverse * sums[1] / count, -scale * sums[0] / count]
            } else {
                [scale, 0.0, 0.0]
            };
            combine_through(plane, dx, mean, factors, &through);
        };
        match dx {
            Some(dx) if pixels >= MIN_STRIDED_PIXELS => {
                let dx = by_channel(dx, channels, pixels);
                for_each(sums.par_iter_mut().zip(dx), x.len(), |channel, (sums, dx)| {
                    measure(channel, sums);
                    let triples = of(x, channel).zip(of(dy, channel)).zip(of(y, channel));
                    for (dx, ((x, dy), y)) in dx.into_iter().zip(triples) {
                        propagate(channel, *sums, (x, dy, y), dx);
                    }
                });
            }
            dx => {
                for_each(sums.par_iter_mut(), x.len(), measure);
                if let Some(dx) = dx {
                    let passes = x
                        .par_chunks_exact(image)
                        .zip(y.par_chunks_exact(image))
                        .zip(dy.par_chunks_exact(image));
                    for_each(dx.par_chunks_exact_mut(image).zip(passes), x.len(), |_, (dx, ((x, y), dy))| {
                        let planes =
                            x.chunks_exact(pixels).zip(y.chunks_exact(pixels)).zip(dy.chunks_exact(pixels));
                        for (channel, (((x, y), dy), dx)) in
                            planes.zip(dx.chunks_exact_mut(pixels)).enumerate()
                        {
                            propagate(channel, sums[channel], (x, dy, y), dx);
                        }
                    });
                }
            }
        }
        for ((weight, bias), sums) in gradients.weight.iter_mut().zip(gradients.bias).zip(&self.sums) {
            (*bias, *weight) = (sums[0] as f32, sums[1] as f32);
        }
    }
}

/// All planes of each channel.
fn by_channel(values: &mut [f32], channels: usize, pixels: usize) -> Vec<Vec<&mut [f32]>> {
    let mut all: Vec<Vec<&mut [f32]>> = (0..channels).map(|_| Vec::new()).collect();
    for (at, plane) in values.chunks_exact_mut(pixels).enumerate() {
        all[at % channels].push(plane);
    }
    all
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

    const SHAPES: [(usize, usize, usize); 7] =
        [(4, 3, 1), (2, 5, 1), (1, 2, 6), (3, 4, 15), (2, 3, 16), (5, 2, 49), (3, 4, 70)];

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

    /// With a rectifier within: what one behind it makes of the output, and in front of the backward pass of the gradient.
    #[test]
    fn a_rectifier_within_is_one_behind() {
        for (n, channels, pixels) in [(3, 4, 15), (3, 4, 70)] {
            let case = Case::new(n, channels, pixels);
            let (weight, bias) = (vec![3.0; channels], vec![1.0; channels]);
            for rectifier in [Rectifier::Relu, Rectifier::Relu6] {
                let run = |rectifier: Option<Rectifier>, dy: &[f32]| {
                    let mut norm = BatchNorm::new(channels, pixels).rectified(rectifier);
                    let (mut y, mut dx) = (vec![f32::NAN; case.x.len()], vec![f32::NAN; case.x.len()]);
                    let (mut mean, mut var) = (vec![0.0; channels], vec![1.0; channels]);
                    norm.train((&weight, &bias), (&mut mean, &mut var), &case.x, &mut y, n);
                    let mut gradients = (vec![f32::NAN; channels], vec![f32::NAN; channels]);
                    let into = NormGradients { weight: &mut gradients.0, bias: &mut gradients.1 };
                    norm.backward(&weight, (&case.x, &y, dy), into, Some(&mut dx));
                    (y, dx, gradients, mean)
                };
                let within = run(Some(rectifier), &case.dy);
                let behind: Vec<f32> =
                    run(None, &case.dy).0.into_iter().map(|y| rectifier.value(y)).collect();
                assert!(behind.contains(&0.0) && within.0 == behind, "{rectifier:?}");
                let mut dy = case.dy.clone();
                rectifier.backward(&mut dy, &behind);
                let (_, dx, gradients, mean) = run(None, &dy);
                assert_eq!((within.1, within.2, within.3), (dx, gradients, mean), "{rectifier:?}");
            }
        }
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
