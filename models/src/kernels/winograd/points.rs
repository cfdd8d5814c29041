//! The Winograd transforms along one axis: polynomials of degree 5 and their values at six points.
//!
//! A correlation of 6 inputs with `r` taps has `m = 7 - r` outputs. Toom and Cook's algorithm multiplies
//! polynomials by their values at the points `0, a, -a, b, -b` and infinity; its transpose is the correlation
//! `y = A^T [(G g) . (B^T d)]` (S. Winograd, *Arithmetic Complexity of Computations*, 1980; A. Lavin and S.
//! Gray, *Fast Algorithms for Convolutional Neural Networks*, 2016). With `M(x) = x (x^2 - a^2) (x^2 - b^2)`
//! and `N_p = M'(p)`, the rows belonging to a point `p` are
//!
//! * of `A`: the powers `p^0 .. p^(m-1)`; for infinity the last of them alone,
//! * of `G`: the powers `p^0 .. p^(r-1)`, divided by `N_p`; for infinity the last of them alone,
//! * of `B^T`: the coefficients of `M(x) / (x - p)`; for infinity those of `M(x)`.
//!
//! Points in pairs of opposite sign share the sums over the even and over the odd powers.

use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2};

use pulp::Simd;

/// Points, and inputs of a tile, along one axis.
pub(super) const POINTS: usize = 6;

/// The positive points `a` and `b`. They are reciprocals, so that no coefficient is much larger than the others. Their error was
/// the smallest of eleven pairs measured, less than half of that of the usual 1 and 2.
const NEAR: f64 = FRAC_1_SQRT_2;
const FAR: f64 = SQRT_2;

/// The coefficients of `M(x) = x^5 - SQUARES x^3 + PRODUCT x`.
const SQUARES: f32 = (NEAR * NEAR + FAR * FAR) as f32;
const PRODUCT: f32 = (NEAR * NEAR * FAR * FAR) as f32;

/// A linear map of vectors along one axis of a tile.
pub(super) trait Axis<const FROM: usize, const TO: usize> {
    fn map<S: Simd>(simd: S, values: [S::f32s; FROM]) -> [S::f32s; TO];
}

/// Inputs of a tile to points: `B^T`.
pub(super) struct Inputs;

/// Points to inputs of a tile: `B`.
pub(super) struct InputsTransposed;

/// Values of an output tile to points: `A`.
pub(super) struct Outputs;

/// Points to values of an output tile: `A^T`.
pub(super) struct OutputsTransposed;

/// Taps of a kernel to points: `G`.
pub(super) struct Taps;

/// Points to taps of a kernel: `G^T`.
pub(super) struct TapsTransposed;

impl Axis<POINTS, POINTS> for Inputs {
    #[inline(always)]
    fn map<S: Simd>(simd: S, d: [S::f32s; POINTS]) -> [S::f32s; POINTS] {
        let pair = |p: f64, q: f64| {
            let (p, q) = (p as f32, (q * q) as f32);
            let even = simd.mul_add_e_f32s(simd.splat_f32s(-q), d[2], d[4]);
            let odd = simd.mul_add_e_f32s(simd.splat_f32s(-q), d[1], d[3]);
            let plus = simd.mul_add_e_f32s(simd.splat_f32s(p), odd, even);
            let minus = simd.mul_add_e_f32s(simd.splat_f32s(-p), odd, even);
            (plus, minus)
        };
        let outer = |first: S::f32s, middle: S::f32s, last: S::f32s| {
            let sum = simd.mul_add_e_f32s(simd.splat_f32s(-SQUARES), middle, last);
            simd.mul_add_e_f32s(simd.splat_f32s(PRODUCT), first, sum)
        };
        let (near, far) = (pair(NEAR, FAR), pair(FAR, NEAR));
        [outer(d[0], d[2], d[4]), near.0, near.1, far.0, far.1, outer(d[1], d[3], d[5])]
    }
}

impl Axis<POINTS, POINTS> for InputsTransposed {
    #[inline(always)]
    fn map<S: Simd>(simd: S, v: [S::f32s; POINTS]) -> [S::f32s; POINTS] {
        let fma = |c: f32, x: S::f32s, y: S::f32s| simd.mul_add_e_f32s(simd.splat_f32s(c), x, y);
        let (near, far) = ((NEAR * NEAR) as f32, (FAR * FAR) as f32);
        let (even_near, even_far) = (simd.add_f32s(v[1], v[2]), simd.add_f32s(v[3], v[4]));
        let odd_near = simd.mul_f32s(simd.splat_f32s(NEAR as f32), simd.sub_f32s(v[1], v[2]));
        let odd_far = simd.mul_f32s(simd.splat_f32s(FAR as f32), simd.sub_f32s(v[3], v[4]));
        let zero = simd.mul_f32s(simd.splat_f32s(PRODUCT), v[0]);
        let one = fma(-far, odd_near, simd.mul_f32s(simd.splat_f32s(PRODUCT), v[5]));
        let one = fma(-near, odd_far, one);
        let two = fma(-far, even_near, simd.mul_f32s(simd.splat_f32s(-SQUARES), v[0]));
        let two = fma(-near, even_far, two);
        let three = fma(-SQUARES, v[5], simd.add_f32s(odd_near, odd_far));
        let four = simd.add_f32s(v[0], simd.add_f32s(even_near, even_far));
        [zero, one, two, three, four, v[5]]
    }
}

/// The powers of the points with a factor for each: the values of a polynomial of `L` coefficients, and the
/// transpose.
struct Powers<const L: usize> {
    zero: f32,
    near: [f32; L],
    far: [f32; L],
}

impl<const L: usize> Powers<L> {
    const PLAIN: Self = Self::new(1.0, 1.0, 1.0);

    /// Divided by `M'(p)`.
    const DIVIDED: Self = {
        let (near, far) = (NEAR * NEAR, FAR * FAR);
        Self::new(1.0 / (near * far), 0.5 / (near * (near - far)), 0.5 / (far * (far - near)))
    };

    const fn new(zero: f64, mut near: f64, mut far: f64) -> Self {
        let mut powers = Self { zero: zero as f32, near: [0.0; L], far: [0.0; L] };
        let mut power = 0;
        while power < L {
            (powers.near[power], powers.far[power]) = (near as f32, far as f32);
            (near, far, power) = (near * NEAR, far * FAR, power + 1);
        }
        powers
    }

    #[inline(always)]
    fn values<S: Simd>(&self, simd: S, c: [S::f32s; L]) -> [S::f32s; POINTS] {
        let pair = |powers: &[f32; L]| {
            let mut even = simd.mul_f32s(simd.splat_f32s(powers[0]), c[0]);
            let mut odd = simd.mul_f32s(simd.splat_f32s(powers[1]), c[1]);
            for power in 2..L {
                let sum = if power % 2 == 0 { &mut even } else { &mut odd };
                *sum = simd.mul_add_e_f32s(simd.splat_f32s(powers[power]), c[power], *sum);
            }
            (simd.add_f32s(even, odd), simd.sub_f32s(even, odd))
        };
        let (near, far) = (pair(&self.near), pair(&self.far));
        [simd.mul_f32s(simd.splat_f32s(self.zero), c[0]), near.0, near.1, far.0, far.1, c[L - 1]]
    }

    #[inline(always)]
    fn transposed<S: Simd>(&self, simd: S, v: [S::f32s; POINTS]) -> [S::f32s; L] {
        let near = [simd.add_f32s(v[1], v[2]), simd.sub_f32s(v[1], v[2])];
        let far = [simd.add_f32s(v[3], v[4]), simd.sub_f32s(v[3], v[4])];
        let mut result = [v[5]; L];
        result[0] = simd.mul_f32s(simd.splat_f32s(self.zero), v[0]);
        for power in 0..L {
            let (near_factor, far_factor) =
                (simd.splat_f32s(self.near[power]), simd.splat_f32s(self.far[power]));
            let sum = if power == 0 || power == L - 1 {
                simd.mul_add_e_f32s(near_factor, near[power % 2], result[power])
            } else {
                simd.mul_f32s(near_factor, near[power % 2])
            };
            result[power] = simd.mul_add_e_f32s(far_factor, far[power % 2], sum);
        }
        result
    }
}

impl<const L: usize> Axis<L, POINTS> for Outputs {
    #[inline(always)]
    fn map<S: Simd>(simd: S, values: [S::f32s; L]) -> [S::f32s; POINTS] {
        Powers::<L>::PLAIN.values(simd, values)
    }
}

impl<const L: usize> Axis<POINTS, L> for OutputsTransposed {
    #[inline(always)]
    fn map<S: Simd>(simd: S, values: [S::f32s; POINTS]) -> [S::f32s; L] {
        Powers::<L>::PLAIN.transposed(simd, values)
    }
}

impl<const L: usize> Axis<L, POINTS> for Taps {
    #[inline(always)]
    fn map<S: Simd>(simd: S, values: [S::f32s; L]) -> [S::f32s; POINTS] {
        Powers::<L>::DIVIDED.values(simd, values)
    }
}

impl<const L: usize> Axis<POINTS, L> for TapsTransposed {
    #[inline(always)]
    fn map<S: Simd>(simd: S, values: [S::f32s; POINTS]) -> [S::f32s; L] {
        Powers::<L>::DIVIDED.transposed(simd, values)
    }
}
