//! Activation functions of each value, with their slopes.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::activation::{exp, normal, sigmoid};
use crate::kernels::arch;

/// Values per task: about fifty microseconds of work.
const TASK_VALUES: usize = 1 << 16;

/// A function of each value. Slopes at kinks are those of `PyTorch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activation {
    /// `min(max(x, 0), 6)`.
    Relu6,
    /// `min(max(x + 3, 0), 6) / 6`.
    HardSigmoid,
    /// `x min(max(x + 3, 0), 6) / 6`.
    HardSwish,
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `x / (1 + e^-x)`.
    Silu,
    /// `x` times the standard normal distribution function of `x`.
    Gelu,
}

impl Activation {
    /// `y = f(x)`.
    pub(crate) fn forward(self, x: &[f32], y: &mut [f32]) {
        assert_eq!(x.len(), y.len());
        let part = |x: &[f32], y: &mut [f32]| arch().dispatch(Values { of: self, x, y });
        if x.len() < 2 * TASK_VALUES {
            return part(x, y);
        }
        y.par_chunks_mut(TASK_VALUES).zip(x.par_chunks(TASK_VALUES)).for_each(|(y, x)| part(x, y));
    }

    /// `dx = dy f'(x)`.
    pub(crate) fn backward(self, x: &[f32], dy: &[f32], dx: &mut [f32]) {
        assert!(x.len() == dy.len() && x.len() == dx.len());
        let part = |x: &[f32], dy: &[f32], dx: &mut [f32]| arch().dispatch(Slopes { of: self, x, dy, dx });
        if x.len() < 2 * TASK_VALUES {
            return part(x, dy, dx);
        }
        let parts = dx.par_chunks_mut(TASK_VALUES).zip(x.par_chunks(TASK_VALUES));
        parts.zip(dy.par_chunks(TASK_VALUES)).for_each(|((dx, x), dy)| part(x, dy, dx));
    }
}

struct Values<'a> {
    of: Activation,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for Values<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { of, x, y } = self;
        // A closure that is not inlined is compiled for the baseline, and calls every instruction as a function.
        match of {
            Activation::Relu6 => map(
                simd,
                x,
                y,
                #[inline(always)]
                |x| clamped(simd, x),
            ),
            Activation::HardSigmoid => map(
                simd,
                x,
                y,
                #[inline(always)]
                |x| hard_sigmoid(simd, x),
            ),
            Activation::HardSwish => map(
                simd,
                x,
                y,
                #[inline(always)]
                |x| simd.mul_f32s(x, hard_sigmoid(simd, x)),
            ),
            Activation::Sigmoid => map(
                simd,
                x,
                y,
                #[inline(always)]
                |x| sigmoid(simd, x),
            ),
            Activation::Silu => map(
                simd,
                x,
                y,
                #[inline(always)]
                |x| simd.mul_f32s(x, sigmoid(simd, x)),
            ),
            Activation::Gelu => map(
                simd,
                x,
                y,
                #[inline(always)]
                |x| simd.mul_f32s(x, normal(simd, x)),
            ),
        }
    }
}

struct Slopes<'a> {
    of: Activation,
    x: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
}

impl WithSimd for Slopes<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { of, x, dy, dx } = self;
        match of {
            Activation::Relu6 => map_slopes(
                simd,
                (x, dy, dx),
                #[inline(always)]
                |x| inside(simd, x, [0.0, 6.0], simd.splat_f32s(1.0)),
            ),
            Activation::HardSigmoid => map_slopes(
                simd,
                (x, dy, dx),
                #[inline(always)]
                |x| inside(simd, x, [-3.0, 3.0], simd.splat_f32s(1.0 / 6.0)),
            ),
            Activation::HardSwish => map_slopes(
                simd,
                (x, dy, dx),
                #[inline(always)]
                |x| slope_of_hard_swish(simd, x),
            ),
            Activation::Sigmoid => map_slopes(
                simd,
                (x, dy, dx),
                #[inline(always)]
                |x| slope_of_sigmoid(simd, x),
            ),
            Activation::Silu => map_slopes(
                simd,
                (x, dy, dx),
                #[inline(always)]
                |x| slope_of_silu(simd, x),
            ),
            Activation::Gelu => map_slopes(
                simd,
                (x, dy, dx),
                #[inline(always)]
                |x| slope_of_gelu(simd, x),
            ),
        }
    }
}

#[inline(always)]
fn slope_of_hard_swish<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let between = simd.mul_add_e_f32s(x, simd.splat_f32s(1.0 / 3.0), simd.splat_f32s(0.5));
    let above = simd.less_than_or_equal_f32s(simd.splat_f32s(3.0), x);
    simd.select_f32s(above, simd.splat_f32s(1.0), inside(simd, x, [-3.0, 3.0], between))
}

#[inline(always)]
fn slope_of_sigmoid<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let y = sigmoid(simd, x);
    simd.mul_f32s(y, simd.sub_f32s(simd.splat_f32s(1.0), y))
}

#[inline(always)]
fn slope_of_silu<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let (y, one) = (sigmoid(simd, x), simd.splat_f32s(1.0));
    simd.mul_f32s(y, simd.mul_add_e_f32s(x, simd.sub_f32s(one, y), one))
}

/// The distribution function and x times the density.
#[inline(always)]
fn slope_of_gelu<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let half_square = simd.mul_f32s(simd.mul_f32s(x, x), simd.splat_f32s(-0.5));
    let density = simd.mul_f32s(exp(simd, half_square), simd.splat_f32s(0.398_942_3));
    simd.mul_add_e_f32s(x, density, normal(simd, x))
}

/// `y = f(x)`, a vector at a time.
#[inline(always)]
fn map<S: Simd>(simd: S, x: &[f32], y: &mut [f32], f: impl Fn(S::f32s) -> S::f32s) {
    let ((x, x_rest), (y, y_rest)) = (S::as_simd_f32s(x), S::as_mut_simd_f32s(y));
    for (y, &x) in y.iter_mut().zip(x) {
        *y = f(x);
    }
    simd.partial_store_f32s(y_rest, f(simd.partial_load_f32s(x_rest)));
}

/// `dx = dy f(x)`, a vector at a time.
#[inline(always)]
fn map_slopes<S: Simd>(simd: S, (x, dy, dx): (&[f32], &[f32], &mut [f32]), f: impl Fn(S::f32s) -> S::f32s) {
    let ((x, x_rest), (dy, dy_rest)) = (S::as_simd_f32s(x), S::as_simd_f32s(dy));
    let (dx, dx_rest) = S::as_mut_simd_f32s(dx);
    for (dx, (&x, &dy)) in dx.iter_mut().zip(x.iter().zip(dy)) {
        *dx = simd.mul_f32s(dy, f(x));
    }
    let last = simd.mul_f32s(simd.partial_load_f32s(dy_rest), f(simd.partial_load_f32s(x_rest)));
    simd.partial_store_f32s(dx_rest, last);
}

/// `min(max(x, 0), 6)`, by comparison, because the minimum of some processors drops NaN.
#[inline(always)]
pub(super) fn clamped<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let (zero, six) = (simd.splat_f32s(0.0), simd.splat_f32s(6.0));
    let x = simd.select_f32s(simd.less_than_f32s(x, zero), zero, x);
    simd.select_f32s(simd.less_than_f32s(six, x), six, x)
}

#[inline(always)]
pub(super) fn hard_sigmoid<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let shifted = simd.add_f32s(x, simd.splat_f32s(3.0));
    simd.mul_f32s(clamped(simd, shifted), simd.splat_f32s(1.0 / 6.0))
}

/// `value` where `x` is between the bounds, and 0 elsewhere.
#[inline(always)]
fn inside<S: Simd>(simd: S, x: S::f32s, [low, high]: [f32; 2], value: S::f32s) -> S::f32s {
    let zero = simd.splat_f32s(0.0);
    let above = simd.select_f32s(simd.less_than_f32s(simd.splat_f32s(low), x), value, zero);
    simd.select_f32s(simd.less_than_f32s(x, simd.splat_f32s(high)), above, zero)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::noise;

    const ALL: [Activation; 6] = [
        Activation::Relu6,
        Activation::HardSigmoid,
        Activation::HardSwish,
        Activation::Sigmoid,
        Activation::Silu,
        Activation::Gelu,
    ];

    fn value(of: Activation, x: f64) -> f64 {
        let gate = (x + 3.0).clamp(0.0, 6.0) / 6.0;
        let logistic = 1.0 / (1.0 + (-x).exp());
        match of {
            Activation::Relu6 => x.clamp(0.0, 6.0),
            Activation::HardSigmoid => gate,
            Activation::HardSwish => x * gate,
            Activation::Sigmoid => logistic,
            Activation::Silu => x * logistic,
            Activation::Gelu => x * normal_by_series(x),
        }
    }

    /// The standard normal distribution function by its Taylor series, good for small numbers.
    fn normal_by_series(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for k in 1..200 {
            term *= -x * x / 2.0 / f64::from(k);
            sum += term / f64::from(2 * k + 1);
        }
        0.5 + sum / std::f64::consts::TAU.sqrt()
    }

    #[test]
    fn values_and_slopes_of_every_length() {
        for of in ALL {
            for count in [1, 7, 16, 33, 100] {
                let x: Vec<f32> = noise(count, 5).iter().map(|x| 5.0 * x).collect();
                let dy = noise(count, 6);
                let (mut y, mut dx) = (vec![f32::NAN; count], vec![f32::NAN; count]);
                of.forward(&x, &mut y);
                of.backward(&x, &dy, &mut dx);
                for (((x, y), dy), dx) in x.iter().map(|&x| f64::from(x)).zip(y).zip(dy).zip(dx) {
                    assert!((f64::from(y) - value(of, x)).abs() < 2e-6, "{of:?}({x}) is {y}");
                    let slope = (value(of, x + 1e-6) - value(of, x - 1e-6)) / 2e-6;
                    let expected = slope * f64::from(dy);
                    assert!((f64::from(dx) - expected).abs() < 2e-6, "{of:?}'({x}): {dx} {expected}");
                }
            }
        }
    }

    #[test]
    fn ends_are_right_and_nan_does_not_hide() {
        for of in ALL {
            let x = [100.0, -100.0, f32::NAN, 0.0];
            let (mut y, mut dx) = ([0.0; 4], [0.0; 4]);
            of.forward(&x, &mut y);
            of.backward(&x, &[1.0; 4], &mut dx);
            let above = match of {
                Activation::Relu6 => (6.0, 0.0),
                Activation::HardSigmoid | Activation::Sigmoid => (1.0, 0.0),
                _ => (100.0, 1.0),
            };
            assert_eq!((y[0], dx[0]), above, "{of:?}");
            assert!(y[1].abs() < 1e-30 && dx[1].abs() < 1e-30, "{of:?}: {y:?} {dx:?}");
            assert!(y[2].is_nan(), "{of:?}");
        }
    }

    #[test]
    fn threads_do_not_show() {
        let (x, dy) = (noise(3 * TASK_VALUES + 5, 1), noise(3 * TASK_VALUES + 5, 2));
        for of in ALL {
            let bits = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let (mut y, mut dx) = (vec![0.0; x.len()], vec![0.0; x.len()]);
                pool.install(|| {
                    of.forward(&x, &mut y);
                    of.backward(&x, &dy, &mut dx);
                });
                y.into_iter().chain(dx).map(f32::to_bits).collect::<Vec<_>>()
            };
            let one = bits(1);
            assert!([2, 3].into_iter().all(|threads| bits(threads) == one), "{of:?}");
        }
    }
}
