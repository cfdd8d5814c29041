//! Quantisation of activations: 255 steps over the range of a sample, found when it arrives.

use pulp::{Simd, WithSimd};

use crate::kernels::arch;
use crate::kernels::vectorised::vectorised;

/// How numbers become 8-bit integers: `q = round(x / scale) + zero`, of which `x` is about `scale (q - zero)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Quantisation {
    /// The distance between two steps; NaN if a value is not finite, which so makes all results NaN.
    pub(super) scale: f32,
    inverse: f32,
    /// The integer of 0, which is exact.
    pub(super) zero: u8,
}

/// `1.5 * 2^23`: floats of this size are integers, and their lowest bits count up.
const SHIFT: f32 = 12_582_912.0;

impl Quantisation {
    /// For numbers from -1 to 1.
    pub(super) const UNIT: Self = Self { scale: 1.0 / 127.0, inverse: 127.0, zero: 128 };

    /// For these values. The range is that from the least to the greatest, and 0 is in it.
    pub(super) fn of(x: &[f32]) -> Self {
        let [low, high, zeros] = arch().dispatch(Range(x));
        // One step less than there are, so that rounding the zero point pushes no value over the end. Halves cannot overflow.
        let scale = (high / 2.0 - low / 2.0) / 127.0;
        // Below that the inverse would be infinite: everything is 0.
        let scale = scale.max(1e-36);
        let inverse = 1.0 / scale;
        let zero = (-low * inverse).round_ties_even() as u8;
        Self { scale: if zeros.is_nan() { f32::NAN } else { scale }, inverse, zero }
    }

    /// Four zeros.
    pub(super) fn zeros(&self) -> u32 {
        u32::from_le_bytes([self.zero; 4])
    }

    /// The integers of values from the range.
    #[inline(always)]
    fn numbers<S: Simd>(&self, simd: S, x: S::f32s) -> S::u32s {
        // The sum is rounded to an integer, in the lowest bits.
        let shifted = simd.mul_f32s(x, simd.splat_f32s(self.inverse));
        let shifted = simd.add_f32s(shifted, simd.splat_f32s(SHIFT + f32::from(self.zero)));
        simd.and_u32s(simd.transmute_u32s_f32s(shifted), simd.splat_u32s(255))
    }

    /// The integers of four vectors of values, in groups of one from each.
    #[inline(always)]
    fn groups<S: Simd>(&self, simd: S, x: [S::f32s; 4]) -> S::u32s {
        let [a, b, c, d] = x;
        let place = |x, bits| simd.wrapping_dyn_shl_u32s(self.numbers(simd, x), simd.splat_u32s(bits));
        let low = simd.or_u32s(self.numbers(simd, a), place(b, 8));
        simd.or_u32s(low, simd.or_u32s(place(c, 16), place(d, 24)))
    }

    /// Writes the integers of four rows of values, in groups of one from each.
    #[inline(always)]
    pub(super) fn interleave<S: Simd>(&self, simd: S, rows: [&[f32]; 4], to: &mut [u32]) {
        let [a, b, c, d] = rows;
        let length = to.len();
        let [(a, a_rest), (b, b_rest), (c, c_rest), (d, d_rest)] = [
            S::as_simd_f32s(&a[..length]),
            S::as_simd_f32s(&b[..length]),
            S::as_simd_f32s(&c[..length]),
            S::as_simd_f32s(&d[..length]),
        ];
        let (to, to_rest) = S::as_mut_simd_u32s(to);
        for ((to, (&a, &b)), (&c, &d)) in to.iter_mut().zip(a.iter().zip(b)).zip(c.iter().zip(d)) {
            *to = self.groups(simd, [a, b, c, d]);
        }
        if !to_rest.is_empty() {
            let last = [
                simd.partial_load_f32s(a_rest),
                simd.partial_load_f32s(b_rest),
                simd.partial_load_f32s(c_rest),
                simd.partial_load_f32s(d_rest),
            ];
            simd.partial_store_u32s(to_rest, self.groups(simd, last));
        }
    }

    /// Writes the integers of a row of values, in groups of four that follow each other. The last group is filled with zeros.
    pub(super) fn group(&self, x: &[f32], to: &mut [u32]) {
        let Self { inverse, zero, .. } = *self;
        vectorised(
            #[inline(always)]
            || {
                let number = |x: f32| (x * inverse + (SHIFT + f32::from(zero))).to_bits() & 255;
                let (groups, rest) = x.as_chunks::<4>();
                for (group, to) in groups.iter().zip(to.iter_mut()) {
                    let [a, b, c, d] = *group;
                    *to = number(a) | (number(b) << 8) | (number(c) << 16) | (number(d) << 24);
                }
                if let Some(to) = to.get_mut(groups.len()).filter(|_| !rest.is_empty()) {
                    let mut bytes = [zero; 4];
                    bytes.iter_mut().zip(rest).for_each(|(byte, &x)| *byte = number(x) as u8);
                    *to = u32::from_le_bytes(bytes);
                }
            },
        );
    }
}

/// The least and the greatest of these values and 0, and a sum that is NaN if a value is not finite.
struct Range<'a>(&'a [f32]);

impl WithSimd for Range<'_> {
    type Output = [f32; 3];

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> [f32; 3] {
        /// Independent chains, since each instruction takes a few cycles.
        const CHAINS: usize = 4;
        let (x, rest) = S::as_simd_f32s(self.0);
        let zero = simd.splat_f32s(0.0);
        let mut chains = [[zero; 3]; CHAINS];
        let (blocks, last) = x.as_chunks::<CHAINS>();
        for block in blocks {
            for (chain, &x) in chains.iter_mut().zip(block) {
                *chain = step(simd, *chain, x);
            }
        }
        for &x in last {
            chains[0] = step(simd, chains[0], x);
        }
        chains[0] = step(simd, chains[0], simd.partial_load_f32s(rest));
        let [a, b, c, d] = chains;
        let min = simd.min_f32s(simd.min_f32s(a[0], b[0]), simd.min_f32s(c[0], d[0]));
        let max = simd.max_f32s(simd.max_f32s(a[1], b[1]), simd.max_f32s(c[1], d[1]));
        let sum = simd.add_f32s(simd.add_f32s(a[2], b[2]), simd.add_f32s(c[2], d[2]));
        [simd.reduce_min_f32s(min), simd.reduce_max_f32s(max), simd.reduce_sum_f32s(sum)]
    }
}

/// One more vector of values.
#[inline(always)]
fn step<S: Simd>(simd: S, [low, high, zeros]: [S::f32s; 3], x: S::f32s) -> [S::f32s; 3] {
    let product = simd.mul_f32s(x, simd.splat_f32s(0.0));
    [simd.min_f32s(low, x), simd.max_f32s(high, x), simd.add_f32s(zeros, product)]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::noise;

    proptest! {
        #[test]
        fn values_come_back_within_half_a_step(
            x in prop::collection::vec(-3.0f32..9.0, 1..70), factor in prop::sample::select(vec![1e-30f32, 1e-3, 1.0, 1e6, 1e37]),
            shift in prop::sample::select(vec![0.0f32, 3.0, -9.0]),
        ) {
            let x: Vec<f32> = x.iter().map(|x| (x + shift) * factor).collect();
            let how = Quantisation::of(&x);
            let mut groups = vec![0; x.len().div_ceil(4)];
            how.group(&x, &mut groups);
            let bytes: Vec<u8> = groups.iter().flat_map(|group| group.to_le_bytes()).collect();
            for (&x, &q) in x.iter().zip(&bytes) {
                let back = how.scale * (f32::from(q) - f32::from(how.zero));
                prop_assert!((back - x).abs() <= 0.5001 * how.scale, "{x} became {q}, {back}: {how:?}");
            }
            prop_assert!(bytes[x.len()..].iter().all(|&q| q == how.zero));
        }
    }

    fn number(how: Quantisation, x: f32) -> u32 {
        let mut group = [0];
        how.group(&[x], &mut group);
        group[0] & 255
    }

    struct Interleave<'a>(Quantisation, [&'a [f32]; 4], &'a mut [u32]);

    impl WithSimd for Interleave<'_> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            self.0.interleave(simd, self.1, self.2);
        }
    }

    #[test]
    fn rows_are_interleaved() {
        for length in [1, 7, 16, 37] {
            let x = noise(4 * length, 1);
            let how = Quantisation::of(&x);
            let rows = std::array::from_fn(|row| &x[row * length..(row + 1) * length]);
            let mut groups = vec![0; length];
            arch().dispatch(Interleave(how, rows, &mut groups));
            for (place, group) in groups.iter().enumerate() {
                let expected = rows.map(|row| number(how, row[place]) as u8);
                assert_eq!(group.to_le_bytes(), expected, "{place} of {length}");
            }
        }
    }

    #[test]
    fn nothing_but_zeros_and_what_is_not_finite() {
        let how = Quantisation::of(&[0.0, -0.0]);
        assert_eq!((how.zero, number(how, 0.0)), (0, 0));
        assert!(how.scale > 0.0);
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(Quantisation::of(&[1.0, bad, 2.0]).scale.is_nan(), "{bad}");
        }
        assert!(Quantisation::of(&[f32::MIN, f32::MAX]).scale.is_finite());
    }

    #[test]
    fn the_unit_range_is_symmetric() {
        let how = Quantisation::UNIT;
        assert_eq!([-1.0, 0.0, 1.0].map(|x| number(how, x)), [1, 128, 255]);
    }
}
