//! One vector of a slice that may end before the vector is full.
//!
//! Most vectors are full. A partial load or store is a call, and takes several times as long as a whole one.

use pulp::Simd;

/// At most a vector of values, with zeros after the last one.
#[inline(always)]
pub(crate) fn load<S: Simd>(simd: S, values: &[f32]) -> S::f32s {
    match S::as_simd_f32s(values) {
        ([whole], []) => *whole,
        _ => simd.partial_load_f32s(values),
    }
}

/// As many values of a vector as there is room for.
#[inline(always)]
pub(crate) fn store<S: Simd>(simd: S, to: &mut [f32], vector: S::f32s) {
    match S::as_mut_simd_f32s(to) {
        ([whole], []) => *whole = vector,
        _ => simd.partial_store_f32s(to, vector),
    }
}

#[cfg(test)]
mod tests {
    use pulp::WithSimd;

    use super::*;
    use crate::kernels::{arch, noise};

    /// Doubles values.
    struct Double<'a>(&'a mut [f32]);

    impl WithSimd for Double<'_> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            for values in self.0.chunks_mut(S::F32_LANES) {
                let vector = load(simd, values);
                store(simd, values, simd.add_f32s(vector, vector));
            }
        }
    }

    #[test]
    fn whole_vectors_and_parts_of_one() {
        for count in 0..40 {
            let mut values = noise(count, 1);
            let expected: Vec<f32> = values.iter().map(|value| 2.0 * value).collect();
            arch().dispatch(Double(&mut values));
            assert_eq!(values, expected);
        }
    }
}
