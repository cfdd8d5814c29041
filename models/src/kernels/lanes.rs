//! Sums in sixteen lanes, on processors with vectors of any length.
//!
//! A sum of floats depends on its order. Value `i` goes to lane `i % 16`, as it does with AVX-512, and the lanes are added by
//! halves. Shorter vectors hold some of the lanes: a loop runs once for each such part, over every `16 / F32_LANES`th vector. So
//! AVX2, AVX-512 and NEON give the same bits.

use pulp::Simd;

/// Lanes of a sum: those of the longest vectors.
pub(crate) const LANES: usize = 16;

/// Vectors that hold the lanes.
#[inline(always)]
pub(crate) fn parts<S: Simd>() -> usize {
    LANES / S::F32_LANES
}

/// The sum of the lanes, by halves.
#[inline(always)]
pub(crate) fn sum<S: Simd>(simd: S, lanes: &[f32; LANES]) -> f32 {
    if S::F32_LANES == LANES {
        return simd.reduce_sum_f32s(S::as_simd_f32s(lanes).0[0]);
    }
    let mut lanes = *lanes;
    let mut half = LANES / 2;
    while half > 0 {
        let (low, high) = lanes.split_at_mut(half);
        for (low, high) in low.iter_mut().zip(high) {
            *low += *high;
        }
        half /= 2;
    }
    lanes[0]
}

/// One vector of the lanes.
#[inline(always)]
pub(crate) fn part<S: Simd>(lanes: &mut [f32; LANES], part: usize) -> &mut S::f32s {
    &mut S::as_mut_simd_f32s(lanes).0[part]
}

#[cfg(test)]
mod tests {
    use pulp::WithSimd;

    use super::*;
    use crate::kernels::{arch, noise};

    struct Sum<'a>(&'a [f32; LANES]);

    impl WithSimd for Sum<'_> {
        type Output = f32;

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) -> f32 {
            sum(simd, self.0)
        }
    }

    #[test]
    fn lanes_are_added_by_halves() {
        for seed in 0..100 {
            let values = noise(LANES, seed);
            let lanes = values.first_chunk().expect("sixteen values");
            let halves = |values: &[f32], half: usize| -> Vec<f32> {
                values[..half].iter().zip(&values[half..]).map(|(low, high)| low + high).collect()
            };
            let expected = [8, 4, 2, 1].iter().fold(values.clone(), |values, &half| halves(&values, half));
            assert_eq!(arch().dispatch(Sum(lanes)).to_bits(), expected[0].to_bits());
        }
    }
}
