//! Scaled dot-product attention (Vaswani et al. 2017, section 3.2) of several heads.
//!
//! Weights are computed one head of one sample at a time, and again in the backward pass instead of being stored: a matrix of
//! positions by positions for each would be the largest part of a network's memory. Samples are shared out among threads in groups
//! that depend on shapes alone.

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::activation::exp;
use super::batch_groups::{for_groups, groups};
use super::gemm::{Matrix, gemm};
use super::lanes::{self, LANES};
use super::softmax::greatest;
use crate::kernels::arch;

/// Attention of `heads`, each with an equal part of `features`, over `positions`.
#[derive(Debug)]
pub(crate) struct Attention {
    positions: usize,
    features: usize,
    heads: usize,
    /// Whether a position sees no later one.
    causal: bool,
    scratch: Vec<Scratch>,
}

/// The scratch memory of one group: the weights of a head, and their gradients.
#[derive(Debug, Default)]
struct Scratch {
    weights: Vec<f32>,
    gradients: Vec<f32>,
}

impl Attention {
    /// For heads that divide the features.
    pub(crate) fn new(positions: usize, features: usize, heads: usize, causal: bool) -> Self {
        assert!(heads > 0 && features.is_multiple_of(heads), "heads have equal parts");
        Self { positions, features, heads, causal, scratch: Vec::new() }
    }

    /// The values of scratch memory for batches of `n`.
    pub(crate) fn scratch(positions: usize, features: usize, n: usize) -> u64 {
        let square = positions.saturating_mul(positions);
        (groups(n, square.saturating_mul(2 * features)) as u64).saturating_mul(2 * square as u64)
    }

    fn groups(&mut self, n: usize) -> usize {
        let count = groups(n, 2 * self.positions * self.positions * self.features);
        if self.scratch.len() < count {
            self.scratch.resize_with(count, Scratch::default);
        }
        count
    }

    /// `y` `[n, positions, features]` from `x` `[n, positions, 3 features]`: the queries of all heads, their keys, their values.
    pub(crate) fn forward(&mut self, x: &[f32], y: &mut [f32], n: usize) {
        let count = self.groups(n);
        let mut scratch = std::mem::take(&mut self.scratch);
        let (own, attention) = (self.positions * self.features, &*self);
        assert!(y.len() == n * own && x.len() == 3 * y.len());
        for_groups(&mut scratch[..count], n, y, own, &|scratch, samples: Range<usize>, y| {
            let x = x[3 * samples.start * own..].chunks_exact(3 * own);
            for (x, y) in x.zip(y.chunks_exact_mut(own)) {
                for head in 0..attention.heads {
                    let of = attention.head(x, head);
                    attention.weigh(&of, &mut scratch.weights);
                    let weights = Matrix::new(&scratch.weights, of.positions, of.positions);
                    gemm(1.0, weights, of.values, 0.0, &mut y[of.offset..], attention.features);
                }
            }
        });
        self.scratch = scratch;
    }

    /// `dx` from the gradient `dy` of the output, for the same `x`. With `P` the weights of a head and `s` the scale,
    ///
    /// ```text
    /// dV = P^T dY     dS = P (dY V^T - row sums of P dY V^T)     dQ = s dS K     dK = s dS^T Q
    /// ```
    pub(crate) fn backward(&mut self, x: &[f32], dy: &[f32], dx: &mut [f32], n: usize) {
        let count = self.groups(n);
        let mut scratch = std::mem::take(&mut self.scratch);
        let (own, attention) = (self.positions * self.features, &*self);
        assert!(dy.len() == n * own && x.len() == 3 * dy.len() && dx.len() == x.len());
        for_groups(&mut scratch[..count], n, dx, 3 * own, &|scratch, samples: Range<usize>, dx| {
            let x = x[3 * samples.start * own..].chunks_exact(3 * own);
            let dy = dy[samples.start * own..].chunks_exact(own);
            for ((dx, x), dy) in dx.chunks_exact_mut(3 * own).zip(x).zip(dy) {
                for head in 0..attention.heads {
                    attention.backward_head(head, x, dy, dx, scratch);
                }
            }
        });
        self.scratch = scratch;
    }

    fn backward_head(&self, head: usize, x: &[f32], dy: &[f32], dx: &mut [f32], scratch: &mut Scratch) {
        let of = self.head(x, head);
        let (positions, features, row, scale) = (of.positions, self.features, 3 * self.features, of.scale);
        self.weigh(&of, &mut scratch.weights);
        let dy = Matrix::strided(&dy[of.offset..], positions, features / self.heads, features);
        let weights = Matrix::new(&scratch.weights, positions, positions);
        gemm(1.0, weights.transposed(), dy, 0.0, &mut dx[2 * features + of.offset..], row);
        scratch.gradients.resize(positions * positions, 0.0);
        gemm(1.0, dy, of.values.transposed(), 0.0, &mut scratch.gradients, positions);
        arch().dispatch(SoftmaxGradient {
            weights: &scratch.weights,
            gradients: &mut scratch.gradients,
            positions,
        });
        let gradients = Matrix::new(&scratch.gradients, positions, positions);
        gemm(scale, gradients, of.keys, 0.0, &mut dx[of.offset..], row);
        gemm(scale, gradients.transposed(), of.queries, 0.0, &mut dx[features + of.offset..], row);
    }

    /// One head of one sample.
    fn head<'a>(&self, x: &'a [f32], head: usize) -> Head<'a> {
        let (positions, features, width) = (self.positions, self.features, self.features / self.heads);
        let offset = head * width;
        let part =
            |index: usize| Matrix::strided(&x[index * features + offset..], positions, width, 3 * features);
        let [queries, keys, values] = [0, 1, 2].map(part);
        Head { positions, offset, scale: 1.0 / (width as f32).sqrt(), queries, keys, values }
    }

    /// The weights of a head, `[positions, positions]`: each row sums to 1.
    fn weigh(&self, head: &Head<'_>, weights: &mut Vec<f32>) {
        let &Head { positions, scale, queries, keys, .. } = head;
        weights.resize(positions * positions, 0.0);
        gemm(scale, queries, keys.transposed(), 0.0, weights, positions);
        arch().dispatch(Softmax { rows: weights, positions, causal: self.causal });
    }
}

/// The parts of the input that one head sees.
struct Head<'a> {
    positions: usize,
    /// Of its first feature.
    offset: usize,
    scale: f32,
    queries: Matrix<'a>,
    keys: Matrix<'a>,
    values: Matrix<'a>,
}

/// The softmax of each row, in place; of its beginning up to the diagonal if `causal`, with zeros after it.
struct Softmax<'a> {
    rows: &'a mut [f32],
    positions: usize,
    causal: bool,
}

impl WithSimd for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { rows, positions, causal } = self;
        for (index, row) in rows.chunks_exact_mut(positions).enumerate() {
            let (row, after) = row.split_at_mut(if causal { index + 1 } else { positions });
            after.fill(0.0);
            // Subtracted first, so that large scores do not overflow. NaN is kept by the exponential.
            let most = greatest(simd, row);
            let mut sums = [0.0; LANES];
            let (whole, rest) = row.as_chunks_mut::<LANES>();
            for lanes in whole {
                let vectors = S::as_mut_simd_f32s(lanes).0;
                for (scores, sum) in vectors.iter_mut().zip(S::as_mut_simd_f32s(&mut sums).0) {
                    *scores = exp(simd, simd.sub_f32s(*scores, simd.splat_f32s(most)));
                    *sum = simd.add_f32s(*sum, *scores);
                }
            }
            for scores in rest.chunks_mut(S::F32_LANES) {
                let shifted = simd.sub_f32s(simd.partial_load_f32s(scores), simd.splat_f32s(most));
                simd.partial_store_f32s(scores, exp(simd, shifted));
            }
            let sum = lanes::sum(simd, &sums) + rest.iter().sum::<f32>();
            for weight in row {
                *weight /= sum;
            }
        }
    }
}

/// Turns the gradients of weights into those of scores, in place.
struct SoftmaxGradient<'a> {
    weights: &'a [f32],
    gradients: &'a mut [f32],
    positions: usize,
}

impl WithSimd for SoftmaxGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { weights, gradients, positions } = self;
        for (weights, gradients) in weights.chunks_exact(positions).zip(gradients.chunks_exact_mut(positions))
        {
            let (whole, rest) = weights.as_chunks::<LANES>();
            let (whole_gradients, rest_gradients) = gradients.as_chunks::<LANES>();
            let mut sums = [0.0; LANES];
            for (weights, gradients) in whole.iter().zip(whole_gradients) {
                let vectors = S::as_simd_f32s(weights).0.iter().zip(S::as_simd_f32s(gradients).0);
                for ((&weight, &gradient), sum) in vectors.zip(S::as_mut_simd_f32s(&mut sums).0) {
                    *sum = simd.mul_add_e_f32s(weight, gradient, *sum);
                }
            }
            let rest: f32 = rest.iter().zip(rest_gradients).map(|(weight, gradient)| weight * gradient).sum();
            let sum = lanes::sum(simd, &sums) + rest;
            for (gradient, weight) in gradients.iter_mut().zip(weights) {
                *gradient = weight * (*gradient - sum);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::noise;

    /// One sample in f64.
    fn naive(x: &[f64], positions: usize, features: usize, heads: usize, causal: bool) -> Vec<f64> {
        let width = features / heads;
        let at = |part: usize, position: usize, feature: usize| {
            x[position * 3 * features + part * features + feature]
        };
        let mut y = vec![0.0; positions * features];
        for head in 0..heads {
            let own = || head * width..(head + 1) * width;
            for position in 0..positions {
                let seen = if causal { position + 1 } else { positions };
                let score = |other: usize| {
                    own().map(|f| at(0, position, f) * at(1, other, f)).sum::<f64>() / (width as f64).sqrt()
                };
                let weights: Vec<f64> = (0..seen).map(|other| score(other).exp()).collect();
                let total: f64 = weights.iter().sum();
                for f in own() {
                    let sum = weights.iter().enumerate().map(|(other, w)| w * at(2, other, f)).sum::<f64>();
                    y[position * features + f] = sum / total;
                }
            }
        }
        y
    }

    const CASES: [(usize, usize, usize, usize, bool); 6] = [
        (1, 1, 4, 2, false),
        (2, 5, 6, 3, false),
        (2, 5, 6, 3, true),
        (1, 17, 8, 1, true),
        (3, 20, 64, 2, false),
        (2, 33, 12, 2, true),
    ];

    #[test]
    fn values_and_gradients_are_those_of_double_precision() {
        for (n, positions, features, heads, causal) in CASES {
            let own = positions * features;
            let x: Vec<f32> = noise(3 * n * own, 1).iter().map(|x| 2.0 * x).collect();
            let dy = noise(n * own, 2);
            let (mut y, mut dx) = (vec![f32::NAN; n * own], vec![f32::NAN; x.len()]);
            let mut attention = Attention::new(positions, features, heads, causal);
            attention.forward(&x, &mut y, n);
            attention.backward(&x, &dy, &mut dx, n);
            let wide: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
            for sample in 0..n {
                let x = &wide[3 * sample * own..3 * (sample + 1) * own];
                let range = sample * own..(sample + 1) * own;
                let expected = naive(x, positions, features, heads, causal);
                for (found, expected) in y[range.clone()].iter().zip(&expected) {
                    assert!((f64::from(*found) - expected).abs() < 2e-6, "{found} {expected}");
                }
                // A few of the gradients of sum(dy y), by central differences.
                let loss = |x: &[f64]| -> f64 {
                    let y = naive(x, positions, features, heads, causal);
                    y.iter().zip(&dy[range.clone()]).map(|(y, &dy)| y * f64::from(dy)).sum()
                };
                for index in (0..x.len()).step_by(x.len().div_ceil(40)) {
                    let at = |offset: f64| {
                        let mut moved = x.to_vec();
                        moved[index] += offset;
                        loss(&moved)
                    };
                    let expected = (at(1e-5) - at(-1e-5)) / 2e-5;
                    let found = f64::from(dx[3 * sample * own + index]);
                    assert!((found - expected).abs() < 1e-5, "dx[{index}]: {found} {expected}");
                }
            }
        }
    }

    #[test]
    fn a_causal_position_depends_on_no_later_one() {
        let mut attention = Attention::new(6, 4, 2, true);
        let x = noise(6 * 12, 3);
        let mut changed = x.clone();
        changed[4 * 12..].fill(9.0);
        let (mut y, mut other) = ([0.0; 24], [0.0; 24]);
        attention.forward(&x, &mut y, 1);
        attention.forward(&changed, &mut other, 1);
        assert_eq!(y[..16], other[..16]);
        assert_ne!(y[16..], other[16..]);
    }

    #[test]
    fn large_scores_do_not_overflow_and_nan_does_not_hide() {
        let mut attention = Attention::new(2, 1, 1, false);
        let mut y = [0.0; 2];
        // The second key is far larger than the first.
        attention.forward(&[1e3, 0.0, 5.0, 1e3, 1e3, 7.0], &mut y, 1);
        assert_eq!(y, [7.0, 7.0]);
        attention.forward(&[1.0, 0.0, 5.0, f32::NAN, 1.0, 7.0], &mut y, 1);
        assert!(y[0].is_finite() && y[1].is_nan(), "{y:?}");
    }

    #[test]
    fn threads_do_not_show() {
        let (n, positions, features) = (7, 70, 32);
        let (x, dy) = (noise(3 * n * positions * features, 1), noise(n * positions * features, 2));
        let bits = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut attention = Attention::new(positions, features, 4, true);
            let (mut y, mut dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
            pool.install(|| {
                attention.forward(&x, &mut y, n);
                attention.backward(&x, &dy, &mut dx, n);
            });
            y.into_iter().chain(dx).map(f32::to_bits).collect::<Vec<_>>()
        };
        let one = bits(1);
        assert!([2, 3].into_iter().all(|threads| bits(threads) == one));
    }
}
