//! Layer normalisation (Ba, Kiros and Hinton 2016).

use rayon::prelude::*;

use super::NormGradients;
use super::plane::{for_each, gradient_sums, moments};

/// Rows whose gradients of the parameters are added up in single precision.
const BLOCK: usize = 32;

/// Normalises each row of `features` values by its own mean and variance.
#[derive(Debug)]
pub(crate) struct LayerNorm {
    features: usize,
    epsilon: f64,
    /// Of each row: mean, and one over the standard deviation.
    statistics: Vec<[f64; 2]>,
    /// Of each block of rows: the gradients of scale and offset.
    partial: Vec<f32>,
}

impl LayerNorm {
    pub(crate) fn new(features: usize, epsilon: f64) -> Self {
        Self { features, epsilon, statistics: Vec::new(), partial: Vec::new() }
    }

    /// Normalises all rows.
    pub(crate) fn forward(&mut self, (weight, bias): (&[f32], &[f32]), x: &[f32], y: &mut [f32]) {
        let Self { features, epsilon, .. } = *self;
        assert!(weight.len() == features && bias.len() == features && y.len() == x.len());
        self.statistics.resize(x.len() / features, [0.0; 2]);
        let rows =
            (y.par_chunks_exact_mut(features), x.par_chunks_exact(features), self.statistics.par_iter_mut());
        for_each(rows.into_par_iter(), x.len(), |_, (y, x, statistics)| {
            let [mean, variance] = moments(|| std::iter::once(x), features as f64);
            let inverse = 1.0 / (variance + epsilon).sqrt();
            *statistics = [mean, inverse];
            let normal = Normal::of(mean, inverse);
            for (((y, &x), &weight), &bias) in y.iter_mut().zip(x).zip(weight).zip(bias) {
                *y = normal.at(x) * weight + bias;
            }
        });
    }

    /// Propagates the gradient `dy` back, after a forward pass of the same `x`. With `z` the normalised values of a row, `m` their
    /// number and `g = weight dy`, `dx = (g - sum(g)/m - z sum(g z)/m) / deviation`. `dy` is scratch memory afterwards.
    pub(crate) fn backward(
        &mut self,
        weight: &[f32],
        (x, dy): (&[f32], &mut [f32]),
        mut gradients: NormGradients<'_>,
        dx: Option<&mut [f32]>,
    ) {
        self.parameter_gradients((x, dy), &mut gradients);
        let Some(dx) = dx else { return };
        let Self { features, ref statistics, .. } = *self;
        let rows = (
            dx.par_chunks_exact_mut(features),
            x.par_chunks_exact(features),
            dy.par_chunks_exact_mut(features),
            statistics.par_iter(),
        );
        let count = features as f64;
        for_each(rows.into_par_iter(), x.len(), |_, (dx, x, dy, &[mean, inverse])| {
            dy.iter_mut().zip(weight).for_each(|(dy, weight)| *dy *= weight);
            let [plain, weighted] = gradient_sums(x, dy, mean);
            let slope = (-inverse * inverse * weighted / count) as f32;
            let (offset, scale) = ((-plain / count) as f32, inverse as f32);
            let center = mean as f32;
            for ((dx, &x), &dy) in dx.iter_mut().zip(x).zip(&*dy) {
                *dx = scale * (dy + slope * (x - center) + offset);
            }
        });
    }

    /// Within a block of rows in single precision, over blocks in double precision, in one order.
    fn parameter_gradients(&mut self, (x, dy): (&[f32], &[f32]), gradients: &mut NormGradients<'_>) {
        let Self { features, ref statistics, ref mut partial, .. } = *self;
        let block = BLOCK * features;
        partial.resize(x.len().div_ceil(block.max(1)) * 2 * features, 0.0);
        let blocks = (
            partial.par_chunks_exact_mut(2 * features),
            x.par_chunks(block),
            dy.par_chunks(block),
            statistics.par_chunks(BLOCK),
        );
        for_each(blocks.into_par_iter(), x.len(), |_, (sums, x, dy, statistics)| {
            sums.fill(0.0);
            let (for_weight, for_bias) = sums.split_at_mut(features);
            let rows = x.chunks_exact(features).zip(dy.chunks_exact(features));
            for ((x, dy), &[mean, inverse]) in rows.zip(statistics) {
                let normal = Normal::of(mean, inverse);
                let sums = for_weight.iter_mut().zip(for_bias.iter_mut());
                for (((for_weight, for_bias), &x), &dy) in sums.zip(x).zip(dy) {
                    *for_weight += dy * normal.at(x);
                    *for_bias += dy;
                }
            }
        });
        let total = |first: usize, to: &mut [f32]| {
            for (feature, to) in to.iter_mut().enumerate() {
                let blocks = partial[first + feature..].iter().step_by(2 * features);
                *to = blocks.map(|&sum| f64::from(sum)).sum::<f64>() as f32;
            }
        };
        if partial.is_empty() {
            gradients.weight.fill(0.0);
            gradients.bias.fill(0.0);
        } else {
            total(0, gradients.weight);
            total(features, gradients.bias);
        }
    }
}

/// `(x - mean) inverse`, with the mean rounded to single precision first and its rounding error corrected.
#[derive(Clone, Copy)]
struct Normal {
    center: f32,
    scale: f32,
    offset: f32,
}

impl Normal {
    #[inline(always)]
    fn of(mean: f64, inverse: f64) -> Self {
        let center = mean as f32;
        Self { center, scale: inverse as f32, offset: (inverse * (f64::from(center) - mean)) as f32 }
    }

    #[inline(always)]
    fn at(self, x: f32) -> f32 {
        (x - self.center) * self.scale + self.offset
    }
}

#[cfg(test)]
#[allow(clippy::needless_range_loop)] // Formulas by index.
mod tests {
    use super::*;
    use crate::kernels::noise;

    /// Output and gradients by weight, bias and x.
    fn run(rows: usize, features: usize) -> [Vec<f32>; 4] {
        let x: Vec<f32> = noise(rows * features, 1).iter().map(|x| x - 4.0).collect();
        let (mut dy, weight, bias) = (noise(x.len(), 2), noise(features, 3), noise(features, 4));
        let (mut y, mut dx) = (vec![f32::NAN; x.len()], vec![f32::NAN; x.len()]);
        let (mut for_weight, mut for_bias) = (vec![f32::NAN; features], vec![f32::NAN; features]);
        let mut norm = LayerNorm::new(features, 1e-6);
        norm.forward((&weight, &bias), &x, &mut y);
        let gradients = NormGradients { weight: &mut for_weight, bias: &mut for_bias };
        norm.backward(&weight, (&x, &mut dy), gradients, Some(&mut dx));
        [y, for_weight, for_bias, dx]
    }

    #[test]
    fn values_and_gradients_are_those_of_double_precision() {
        for (rows, features) in [(1, 2), (3, 17), (70, 16), (5, 33), (2, 192)] {
            let [y, for_weight, for_bias, dx] = run(rows, features);
            let wide = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<f64>>();
            let x: Vec<f64> = wide(noise(rows * features, 1)).iter().map(|x| x - 4.0).collect();
            let (dy, weight, bias) =
                (wide(noise(x.len(), 2)), wide(noise(features, 3)), wide(noise(features, 4)));
            let (mut by_weight, mut by_bias) = (vec![0.0; features], vec![0.0; features]);
            let close = |found: f32, expected: f64| {
                assert!(
                    (f64::from(found) - expected).abs() < 3e-5 * (1.0 + expected.abs()),
                    "{found} {expected}"
                );
            };
            for row in 0..rows {
                let at = |feature: usize| row * features + feature;
                let m = features as f64;
                let mean = (0..features).map(|f| x[at(f)]).sum::<f64>() / m;
                let variance = (0..features).map(|f| (x[at(f)] - mean).powi(2)).sum::<f64>() / m;
                let deviation = (variance + 1e-6).sqrt();
                let z: Vec<f64> = (0..features).map(|f| (x[at(f)] - mean) / deviation).collect();
                let g: Vec<f64> = (0..features).map(|f| dy[at(f)] * weight[f]).collect();
                let (plain, along) =
                    (g.iter().sum::<f64>() / m, g.iter().zip(&z).map(|(g, z)| g * z).sum::<f64>() / m);
                for f in 0..features {
                    close(y[at(f)], z[f] * weight[f] + bias[f]);
                    close(dx[at(f)], (g[f] - plain - z[f] * along) / deviation);
                    by_weight[f] += dy[at(f)] * z[f];
                    by_bias[f] += dy[at(f)];
                }
            }
            for_weight.iter().zip(by_weight).for_each(|(found, expected)| close(*found, expected));
            for_bias.iter().zip(by_bias).for_each(|(found, expected)| close(*found, expected));
        }
    }

    #[test]
    fn threads_do_not_show() {
        let bits = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let lists = pool.install(|| run(3000, 100));
            lists.map(|list| list.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
        };
        let one = bits(1);
        assert!([2, 3].into_iter().all(|threads| bits(threads) == one));
    }
}
