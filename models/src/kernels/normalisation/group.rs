//! Group normalisation (Wu and He 2018).

use rayon::prelude::*;

use super::plane::{affine_then, combine_through, for_each, gradient_sums_through, moments};
use super::{EPSILON, NormGradients};
use crate::kernels::rectifier::Rectifier;

/// Normalises each group of channels of each image by its own mean and variance. Then rectifies, if that is a part of it.
#[derive(Debug)]
pub(crate) struct GroupNorm {
    channels: usize,
    pixels: usize,
    groups: usize,
    rectifier: Option<Rectifier>,
    /// Of each image and group: mean, and one over the standard deviation.
    statistics: Vec<[f64; 2]>,
    /// Of each image and channel: the sum of the gradient, and that of the gradient times the normalised values.
    sums: Vec<[f64; 2]>,
}

impl GroupNorm {
    /// For `groups` that divide the `channels`.
    pub(crate) fn new(channels: usize, pixels: usize, groups: usize) -> Self {
        Self { channels, pixels, groups, rectifier: None, statistics: Vec::new(), sums: Vec::new() }
    }

    /// With a rectifier after it.
    pub(crate) fn rectified(self, rectifier: Option<Rectifier>) -> Self {
        Self { rectifier, ..self }
    }

    /// Whether the backward pass needs the output.
    pub(crate) fn reads_output(&self) -> bool {
        self.rectifier.is_some()
    }

    /// Normalises `n` images.
    pub(crate) fn forward(&mut self, affine: (&[f32], &[f32]), x: &[f32], y: &mut [f32], n: usize) {
        match self.rectifier {
            None => self.forward_then(affine, x, y, n, |y| y),
            Some(Rectifier::Relu) => self.forward_then(affine, x, y, n, |y| Rectifier::Relu.value(y)),
            Some(Rectifier::Relu6) => self.forward_then(affine, x, y, n, |y| Rectifier::Relu6.value(y)),
        }
    }

    #[inline(always)]
    fn forward_then(
        &mut self,
        (weight, bias): (&[f32], &[f32]),
        x: &[f32],
        y: &mut [f32],
        n: usize,
        then: impl Fn(f32) -> f32 + Sync,
    ) {
        let Self { channels, pixels, groups, .. } = *self;
        let (image, group) = (channels * pixels, channels / groups);
        assert!(x.len() == n * image && y.len() == x.len());
        self.statistics.resize(n * groups, [0.0; 2]);
        let images = (
            y.par_chunks_exact_mut(image),
            x.par_chunks_exact(image),
            self.statistics.par_chunks_exact_mut(groups),
        );
        for_each(images.into_par_iter(), x.len(), |_, (y, x, statistics)| {
            let values = group * pixels;
            for (index, ((y, x), statistics)) in
                y.chunks_exact_mut(values).zip(x.chunks_exact(values)).zip(statistics).enumerate()
            {
                let [mean, variance] = moments(|| x.chunks_exact(pixels), values as f64);
                let inverse = 1.0 / (variance + EPSILON).sqrt();
                *statistics = [mean, inverse];
                let planes = y.chunks_exact_mut(pixels).zip(x.chunks_exact(pixels));
                for (channel, (y, x)) in (index * group..).zip(planes) {
                    affine_then((x, y), mean, f64::from(weight[channel]) * inverse, bias[channel], &then);
                }
            }
        });
    }

    /// Propagates the gradient `dy` back, after a forward pass of `x` to `y`, which is only read if there is a rectifier: then `dy`
    /// below is what passes it. With `z` the normalised values of a group, `m` their number and `g = weight dy`,
    /// `dx = (g - sum(g)/m - z sum(g z)/m) / deviation`.
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
        let Self { channels, pixels, groups, ref statistics, ref mut sums, .. } = *self;
        let NormGradients { weight: for_weight, bias: for_bias } = gradients;
        let (image, group) = (channels * pixels, channels / groups);
        sums.resize(x.len() / pixels, [0.0; 2]);
        let images = (
            sums.par_chunks_exact_mut(channels),
            x.par_chunks_exact(image),
            y.par_chunks_exact(image),
            dy.par_chunks_exact(image),
            statistics.par_chunks_exact(groups),
        );
        for_each(images.into_par_iter(), x.len(), |_, (sums, x, y, dy, statistics)| {
            let planes = x.chunks_exact(pixels).zip(y.chunks_exact(pixels)).zip(dy.chunks_exact(pixels));
            for (channel, (sums, ((x, y), dy))) in sums.iter_mut().zip(planes).enumerate() {
                let [mean, inverse] = statistics[channel / group];
                let [plain, weighted] = gradient_sums_through((x, dy, y), mean, &through);
                *sums = [plain, inverse * weighted];
            }
        });
        for channel in 0..channels {
            let images = sums.iter().skip(channel).step_by(channels);
            let total = images.fold([0.0; 2], |[a, b], [plain, weighted]| [a + plain, b + weighted]);
            for_bias[channel] = total[0] as f32;
            for_weight[channel] = total[1] as f32;
        }
        let Some(dx) = dx else { return };
        let images = (
            dx.par_chunks_exact_mut(image),
            x.par_chunks_exact(image),
            y.par_chunks_exact(image),
            dy.par_chunks_exact(image),
            sums.par_chunks_exact(channels),
            statistics.par_chunks_exact(groups),
        );
        let count = (group * pixels) as f64;
        for_each(images.into_par_iter(), x.len(), |_, (dx, x, y, dy, sums, statistics)| {
            for (index, &[mean, inverse]) in statistics.iter().enumerate() {
                let channels = index * group..(index + 1) * group;
                let weighted =
                    channels.clone().map(|channel| sums[channel].map(|s| s * f64::from(weight[channel])));
                let total = weighted.fold([0.0; 2], |[a, b], [plain, weighted]| [a + plain, b + weighted]);
                for channel in channels {
                    let here = channel * pixels..(channel + 1) * pixels;
                    let scale = f64::from(weight[channel]) * inverse;
                    let factors = [scale, -inverse * inverse * total[1] / count, -inverse * total[0] / count];
                    let planes = (&x[here.clone()], &dy[here.clone()], &y[here.clone()]);
                    combine_through(planes, &mut dx[here], mean, factors, &through);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::noise;

    /// The normalisation of one image in f64.
    fn naive(x: &[f64], groups: usize, weight: &[f64], bias: &[f64]) -> Vec<f64> {
        let pixels = x.len() / weight.len();
        let normal = x.chunks(x.len() / groups).flat_map(|x| {
            let count = x.len() as f64;
            let mean = x.iter().sum::<f64>() / count;
            let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
            x.iter().map(move |x| (x - mean) / (variance + EPSILON).sqrt())
        });
        normal.enumerate().map(|(index, z)| weight[index / pixels] * z + bias[index / pixels]).collect()
    }

    fn wide(values: &[f32]) -> Vec<f64> {
        values.iter().map(|&x| f64::from(x)).collect()
    }

    fn assert_close(found: &[f32], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(expected) {
            assert!(
                (f64::from(*found) - expected).abs() < 5e-5 * (1.0 + expected.abs()),
                "{found} {expected}"
            );
        }
    }

    type Inputs = [Vec<f32>; 4];

    fn inputs(n: usize, channels: usize, pixels: usize) -> Inputs {
        let count = n * channels * pixels;
        let x = noise(count, 1).iter().map(|x| x - 4.0).collect();
        [x, noise(count, 2), noise(channels, 3), noise(channels, 4)]
    }

    /// Output and gradients by weight, bias and x.
    fn run([x, dy, weight, bias]: &Inputs, n: usize, pixels: usize, groups: usize) -> [Vec<f32>; 4] {
        let channels = weight.len();
        let mut norm = GroupNorm::new(channels, pixels, groups);
        let (mut y, mut dx) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
        let (mut for_weight, mut for_bias) = (vec![f32::NAN; channels], vec![f32::NAN; channels]);
        norm.forward((weight, bias), x, &mut y, n);
        let gradients = NormGradients { weight: &mut for_weight, bias: &mut for_bias };
        norm.backward(weight, (x, &y, dy), gradients, Some(&mut dx));
        [y, for_weight, for_bias, dx]
    }

    #[test]
    fn values_and_gradients_are_those_of_double_precision() {
        for (n, channels, pixels, groups) in
            [(1, 4, 1, 2), (3, 4, 5, 2), (2, 6, 16, 3), (2, 3, 18, 3), (2, 3, 7, 1)]
        {
            let inputs = inputs(n, channels, pixels);
            let [y, for_weight, for_bias, dx] = run(&inputs, n, pixels, groups);
            let [x, dy, weight, bias] = inputs.map(|list| wide(&list));
            let all = |x: &[f64], weight: &[f64], bias: &[f64]| -> Vec<f64> {
                x.chunks(channels * pixels).flat_map(|image| naive(image, groups, weight, bias)).collect()
            };
            assert_close(&y, &all(&x, &weight, &bias));
            // The gradients of sum(dy y), by central differences.
            let loss = |x: &[f64], weight: &[f64], bias: &[f64]| {
                all(x, weight, bias).iter().zip(&dy).map(|(y, dy)| y * dy).sum::<f64>()
            };
            let slopes = |values: &[f64], loss: &dyn Fn(&[f64]) -> f64| -> Vec<f64> {
                let h = 1e-5;
                let slope = |index: usize| {
                    let at = |offset| {
                        let mut moved = values.to_vec();
                        moved[index] += offset;
                        loss(&moved)
                    };
                    (at(h) - at(-h)) / (2.0 * h)
                };
                (0..values.len()).map(slope).collect()
            };
            assert_close(&for_weight, &slopes(&weight, &|weight| loss(&x, weight, &bias)));
            assert_close(&for_bias, &slopes(&bias, &|bias| loss(&x, &weight, bias)));
            assert_close(&dx, &slopes(&x, &|x| loss(x, &weight, &bias)));
        }
    }

    /// The bits of a normalisation and a rectifier behind it.
    #[test]
    fn a_rectifier_is_a_part_of_it() {
        let (n, channels, pixels, groups) = (3, 6, 21, 2);
        let [x, dy, weight, bias] = inputs(n, channels, pixels);
        let weight: Vec<f32> = weight.iter().map(|weight| 9.0 * weight).collect();
        for rectifier in [Rectifier::Relu, Rectifier::Relu6] {
            let both = |of: Option<Rectifier>| {
                let mut norm = GroupNorm::new(channels, pixels, groups).rectified(of);
                let (mut y, mut dx) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
                let (mut for_weight, mut for_bias) = (vec![f32::NAN; channels], vec![f32::NAN; channels]);
                norm.forward((&weight, &bias), &x, &mut y, n);
                let mut dy = dy.clone();
                if of.is_none() {
                    for y in &mut y {
                        *y = rectifier.value(*y);
                    }
                    rectifier.backward(&mut dy, &y);
                }
                let gradients = NormGradients { weight: &mut for_weight, bias: &mut for_bias };
                norm.backward(&weight, (&x, &y, &dy), gradients, Some(&mut dx));
                [y, for_weight, for_bias, dx].map(|list| list.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
            };
            let merged = both(Some(rectifier));
            assert!(merged == both(None), "{rectifier:?}");
            let zeros = merged[0].iter().filter(|&&bits| bits == 0).count();
            assert!(zeros > 0 && zeros < x.len(), "{zeros}");
            let ends = merged[0].contains(&6.0_f32.to_bits());
            assert_eq!(ends, rectifier == Rectifier::Relu6, "the ceiling is reached");
        }
    }

    #[test]
    fn threads_do_not_show() {
        let inputs = inputs(9, 32, 1000);
        let bits = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let lists = pool.install(|| run(&inputs, 9, 1000, 8));
            lists.map(|list| list.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
        };
        let one = bits(1);
        assert!([2, 3].into_iter().all(|threads| bits(threads) == one));
    }
}
