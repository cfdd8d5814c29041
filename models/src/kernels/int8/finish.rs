//! From sums of integers to a layer's output: scale, bias and activation function.

use pulp::Simd;

use crate::kernels::elementwise::{clamped, hard_sigmoid};

/// An activation function that a layer applies to its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Function {
    /// None.
    #[default]
    Identity,
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, 0), 6)`.
    Relu6,
    /// `min(max(x + 3, 0), 6) / 6`.
    HardSigmoid,
    /// `x min(max(x + 3, 0), 6) / 6`.
    HardSwish,
}

impl Function {
    /// The function of each value. Everything is one rounding at a time, so that the bits are the same with all instructions; NaN
    /// stays NaN.
    #[inline(always)]
    pub(super) fn apply<S: Simd>(self, simd: S, x: S::f32s) -> S::f32s {
        let zero = simd.splat_f32s(0.0);
        match self {
            Self::Identity => x,
            Self::Relu => simd.select_f32s(simd.less_than_f32s(x, zero), zero, x),
            Self::Relu6 => clamped(simd, x),
            Self::HardSigmoid => hard_sigmoid(simd, x),
            Self::HardSwish => simd.mul_f32s(x, hard_sigmoid(simd, x)),
        }
    }

    /// The function of `factor sum + bias`.
    #[inline(always)]
    pub(super) fn of<S: Simd>(self, simd: S, sum: S::f32s, factor: S::f32s, bias: S::f32s) -> S::f32s {
        // Not fused, for the same bits with all instructions.
        self.apply(simd, simd.add_f32s(simd.mul_f32s(sum, factor), bias))
    }
}

#[cfg(test)]
mod tests {
    use pulp::WithSimd;

    use super::*;
    use crate::kernels::arch;
    use crate::kernels::elementwise::Activation;
    use crate::kernels::noise;

    struct Apply<'a>(Function, &'a mut [f32]);

    impl WithSimd for Apply<'_> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            for y in self.1 {
                let value = self.0.apply(simd, simd.splat_f32s(*y));
                simd.partial_store_f32s(std::slice::from_mut(y), value);
            }
        }
    }

    #[test]
    fn functions_are_those_of_the_layers() {
        let x: Vec<f32> = noise(101, 1).iter().map(|x| 9.0 * x).chain([f32::NAN, -0.0]).collect();
        let bits = |values: &[f32]| values.iter().map(|x| (x + 0.0).to_bits()).collect::<Vec<_>>();
        let applied = |function| {
            let mut y = x.clone();
            arch().dispatch(Apply(function, &mut y));
            y
        };
        for (function, activation) in [
            (Function::Relu6, Activation::Relu6),
            (Function::HardSigmoid, Activation::HardSigmoid),
            (Function::HardSwish, Activation::HardSwish),
        ] {
            let mut expected = x.clone();
            activation.forward(&x, &mut expected);
            assert_eq!(bits(&applied(function)), bits(&expected), "{function:?}");
        }
        for (x, y) in x.iter().zip(applied(Function::Relu)) {
            assert!(y == x.max(0.0) || (x.is_nan() && y.is_nan()), "{x} {y}");
        }
        assert_eq!(bits(&applied(Function::Identity)), bits(&x));
    }
}
