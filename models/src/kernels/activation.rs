//! Vectorised exponential, logistic function, hyperbolic tangent and normal distribution function.
//!
//! The polynomials are those of the Cephes library (Moshier), in single precision: the errors are within a few units of
//! the last place, which the tests check. That of the normal distribution is of Press et al. NaN stays NaN.

use pulp::Simd;

/// `e^x`, clamped to the range from `e^-87` to `e^88` so that all results are normal numbers.
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    // By comparison, because the minimum of some processors drops NaN.
    let x = simd.select_f32s(simd.less_than_f32s(x, simd.splat_f32s(-87.0)), simd.splat_f32s(-87.0), x);
    let x = simd.select_f32s(simd.less_than_f32s(simd.splat_f32s(88.0), x), simd.splat_f32s(88.0), x);
    // x = n ln 2 + r with |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds n to an integer, which the lowest bits hold.
    let shifted = simd.mul_add_e_f32s(x, simd.splat_f32s(std::f32::consts::LOG2_E), simd.splat_f32s(SHIFT));
    let n = simd.sub_f32s(shifted, simd.splat_f32s(SHIFT));
    // ln 2 in two parts: the product of n and the first part is exact.
    let r = simd.mul_add_e_f32s(n, simd.splat_f32s(-0.693_359_4), x);
    let r = simd.mul_add_e_f32s(n, simd.splat_f32s(2.121_944_4e-4), r);
    let mut p = simd.splat_f32s(1.987_569_1e-4);
    for coefficient in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = simd.mul_add_e_f32s(p, r, simd.splat_f32s(coefficient));
    }
    let p = simd.mul_add_e_f32s(simd.mul_f32s(p, r), r, simd.add_f32s(r, simd.splat_f32s(1.0)));
    // 2^n has the exponent n + 127; the shift drops the bits above the exponent.
    let exponent = simd.add_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(127));
    let power = simd.transmute_f32s_u32s(simd.wrapping_dyn_shl_u32s(exponent, simd.splat_u32s(23)));
    simd.mul_f32s(p, power)
}

/// `1.5 * 2^23`: floats of this size are integers, and their lowest bits count up.
const SHIFT: f32 = 12_582_912.0;

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let one = simd.splat_f32s(1.0);
    simd.div_f32s(one, simd.add_f32s(one, exp(simd, simd.neg_f32s(x))))
}

/// `tanh(x)`.
#[inline(always)]
pub(crate) fn tanh<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let size = simd.abs_f32s(x);
    // Around 0 an odd polynomial, which keeps the relative error small; elsewhere 1 - 2 / (e^2x + 1).
    let square = simd.mul_f32s(x, x);
    let mut p = simd.splat_f32s(-5.704_988_6e-3);
    for coefficient in [2.063_909e-2, -5.373_971_5e-2, 1.333_144_2e-1, -3.333_328e-1] {
        p = simd.mul_add_e_f32s(p, square, simd.splat_f32s(coefficient));
    }
    let near = simd.mul_add_e_f32s(simd.mul_f32s(p, square), x, x);
    let power = exp(simd, simd.add_f32s(x, x));
    let far = simd.sub_f32s(
        simd.splat_f32s(1.0),
        simd.div_f32s(simd.splat_f32s(2.0), simd.add_f32s(power, simd.splat_f32s(1.0))),
    );
    simd.select_f32s(simd.less_than_f32s(size, simd.splat_f32s(0.625)), near, far)
}

/// The standard normal distribution function, `erfc(-x / sqrt(2)) / 2`.
///
/// `erfc` is the Chebyshev fit of Press et al. (Numerical Recipes, section 6.2), whose relative error is below 1.2e-7 also where
/// the result is tiny; the square in single precision adds `x^2 / 2` units of the last place.
#[inline(always)]
pub(crate) fn normal<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let z = simd.mul_f32s(simd.abs_f32s(x), simd.splat_f32s(std::f32::consts::FRAC_1_SQRT_2));
    let t = simd
        .div_f32s(simd.splat_f32s(1.0), simd.mul_add_e_f32s(z, simd.splat_f32s(0.5), simd.splat_f32s(1.0)));
    let mut p = simd.splat_f32s(0.170_872_76);
    for coefficient in [
        -0.822_152_26,
        1.488_515_9,
        -1.135_204,
        0.278_868_08,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_95,
        1.000_023_7,
        -1.265_512_2,
    ] {
        p = simd.mul_add_e_f32s(p, t, simd.splat_f32s(coefficient));
    }
    let power = exp(simd, simd.mul_add_e_f32s(simd.neg_f32s(z), z, p));
    let tail = simd.mul_f32s(simd.mul_f32s(t, power), simd.splat_f32s(0.5));
    simd.select_f32s(
        simd.less_than_f32s(x, simd.splat_f32s(0.0)),
        tail,
        simd.sub_f32s(simd.splat_f32s(1.0), tail),
    )
}

#[cfg(test)]
mod tests {
    use pulp::WithSimd;

    use super::*;
    use crate::kernels::arch;

    struct All<'a>(&'a [f32], &'a mut [[f32; 3]]);

    impl WithSimd for All<'_> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            for (&x, y) in self.0.iter().zip(self.1) {
                let x = simd.splat_f32s(x);
                let [a, b, c] = [exp(simd, x), sigmoid(simd, x), tanh(simd, x)];
                for (y, vector) in y.iter_mut().zip([a, b, c]) {
                    simd.partial_store_f32s(std::slice::from_mut(y), vector);
                }
            }
        }
    }

    fn all(x: &[f32]) -> Vec<[f32; 3]> {
        let mut y = vec![[0.0; 3]; x.len()];
        arch().dispatch(All(x, &mut y));
        y
    }

    #[test]
    fn the_error_is_a_few_units_of_the_last_place() {
        // Every 997th number of either sign up to 88: all magnitudes, down to those that are not normal.
        let bits = (0..88.0f32.to_bits()).step_by(997);
        let x: Vec<f32> = bits.flat_map(|bits| [f32::from_bits(bits), -f32::from_bits(bits)]).collect();
        let mut largest = [0.0f64; 3];
        for (&x, y) in x.iter().zip(all(&x)) {
            let (exact, least) = (f64::from(x), f64::from(x.max(-87.0)));
            let expected = [least.exp(), 1.0 / (1.0 + (-exact).exp()), exact.tanh()];
            for ((largest, y), expected) in largest.iter_mut().zip(y).zip(expected) {
                // What is not normal has fewer digits.
                let error =
                    (f64::from(y) - expected).abs() / expected.abs().max(f64::from(f32::MIN_POSITIVE));
                *largest = largest.max(error);
            }
        }
        assert!(largest.iter().all(|&error| error < 4.0 * f64::from(f32::EPSILON)), "{largest:?}");
    }

    #[test]
    fn the_ends_are_finite_and_nan_does_not_hide() {
        let [above, below, nan] = all(&[f32::INFINITY, f32::NEG_INFINITY, f32::NAN])[..] else {
            unreachable!()
        };
        assert!(above[0].is_finite() && above[1..] == [1.0, 1.0]);
        assert!(below[0] > 0.0 && below[0] < 1e-37 && below[1] < 1e-37 && below[2] == -1.0);
        assert!(nan.iter().all(|value| value.is_nan()));
    }
}
