//! A reference implementation of convolution, and the tests that every other implementation passes.

use proptest::prelude::*;

use super::geometry::Geometry;

/// A convolution with arguments.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) geometry: Geometry,
    pub(super) out: usize,
    pub(super) n: usize,
    pub(super) weight: Vec<f32>,
    pub(super) x: Vec<f32>,
    pub(super) dy: Vec<f32>,
}

/// Sums, each with the sum of the magnitudes of its terms.
pub(super) struct Sums {
    values: Vec<f64>,
    magnitudes: Vec<f64>,
}

impl Sums {
    fn zeros(count: usize) -> Self {
        Self { values: vec![0.0; count], magnitudes: vec![0.0; count] }
    }

    fn add(&mut self, index: usize, a: f32, b: f32) {
        let product = f64::from(a) * f64::from(b);
        self.values[index] += product;
        self.magnitudes[index] += product.abs();
    }

    /// Panics if a value is further from its sum than rounding explains.
    pub(super) fn assert_near(&self, what: &str, values: &[f32]) {
        assert_eq!(values.len(), self.values.len(), "{what}");
        for (index, &value) in values.iter().enumerate() {
            let (expected, magnitude) = (self.values[index], self.magnitudes[index]);
            let error = (f64::from(value) - expected).abs();
            assert!(error <= 4e-6 * magnitude, "{what}[{index}] is {value}, not {expected}");
        }
    }
}

/// Some values between -1 and 1.
pub(super) fn noise(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

impl Case {
    pub(super) fn new(
        image: (usize, usize, usize),
        out: usize,
        kernel: usize,
        stride: usize,
        padding: usize,
        n: usize,
    ) -> Self {
        let (channels, height, width) = image;
        let geometry = Geometry::of(&[channels, height, width], kernel, stride, padding);
        Self {
            geometry,
            out,
            n,
            weight: noise(out * geometry.taps(), 1),
            x: noise(n * geometry.image(), 2),
            dy: noise(n * out * geometry.places(), 3),
        }
    }

    /// The output, the gradient of the weights, and that of the images.
    pub(super) fn expected(&self) -> (Sums, Sums, Sums) {
        let g = self.geometry;
        let mut y = Sums::zeros(self.dy.len());
        let mut dweight = Sums::zeros(self.weight.len());
        let mut dx = Sums::zeros(self.x.len());
        for at in 0..self.dy.len() {
            let (plane, place) = (at / g.places(), at % g.places());
            let (image, out) = (plane / self.out, plane % self.out);
            for tap in 0..g.taps() {
                let (channel, tap_place) = (tap / (g.kernel * g.kernel), tap % (g.kernel * g.kernel));
                let down = place / g.columns * g.stride + tap_place / g.kernel;
                let across = place % g.columns * g.stride + tap_place % g.kernel;
                let inside = |at: usize, size: usize| at.checked_sub(g.padding).filter(|at| *at < size);
                let (Some(down), Some(across)) = (inside(down, g.height), inside(across, g.width)) else {
                    continue;
                };
                let pixel = ((image * g.channels + channel) * g.height + down) * g.width + across;
                let weight = out * g.taps() + tap;
                y.add(at, self.weight[weight], self.x[pixel]);
                dweight.add(weight, self.dy[at], self.x[pixel]);
                dx.add(pixel, self.dy[at], self.weight[weight]);
            }
        }
        (y, dweight, dx)
    }
}

/// Any sizes that fit.
pub(super) fn cases() -> impl Strategy<Value = Case> {
    let image = (1..4usize, 1..12usize, 1..20usize);
    (image, 1..10usize, 1..6usize, 1..4usize, 0..4usize, 1..4usize)
        .prop_filter("the kernel fits", |((_, height, width), _, kernel, _, padding, _)| {
            height.min(width) + 2 * padding >= *kernel
        })
        .prop_map(|(image, out, kernel, stride, padding, n)| {
            Case::new(image, out, kernel, stride, padding, n)
        })
}

/// `new`, `run` and `check` for a convolution with the methods `forward` and `backward` of [`super::direct::Direct`].
macro_rules! convolution_checks {
    ($Convolution:ident, $new:expr) => {
        use std::sync::atomic::{AtomicUsize, Ordering};

        use proptest::prelude::*;

        fn new(geometry: $crate::kernels::geometry::Geometry, out: usize) -> $Convolution {
            $new(geometry, out)
        }

        /// The output, the gradient of the weights, and that of the images.
        fn run(convolution: &mut $Convolution, case: &Case) -> [Vec<f32>; 3] {
            // NaN shows values that are read before they are written.
            let nan = |like: &[f32]| vec![f32::NAN; like.len()];
            let (mut y, mut dweight, mut dx) = (nan(&case.dy), nan(&case.weight), nan(&case.x));
            let finished = AtomicUsize::new(0);
            convolution.forward(&case.weight, &case.x, &mut y, case.n, |output| {
                assert_eq!(output.len(), case.out * case.geometry.places());
                assert!(output.iter().all(|value| value.is_finite()), "finished before it was complete");
                finished.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(finished.into_inner(), case.n);
            convolution.backward(&case.weight, &case.x, &case.dy, case.n, &mut dweight, Some(&mut dx));
            [y, dweight, dx]
        }

        fn check(case: &Case) {
            let mut convolution = new(case.geometry, case.out);
            let (y, dweight, dx) = case.expected();
            let results = run(&mut convolution, case);
            y.assert_near("y", &results[0]);
            dweight.assert_near("the weights' gradient", &results[1]);
            dx.assert_near("the images' gradient", &results[2]);
            // A later batch must not depend on an earlier one, not even on a smaller one.
            assert_eq!(run(&mut convolution, case), results);
            let half = case.n.div_ceil(2);
            let smaller = Case {
                n: half,
                x: case.x[..half * case.geometry.image()].to_vec(),
                dy: case.dy[..half * case.out * case.geometry.places()].to_vec(),
                ..case.clone()
            };
            run(&mut convolution, &smaller);
            assert_eq!(run(&mut convolution, case), results);
            let mut dweight = results[1].clone();
            dweight.fill(f32::NAN);
            convolution.backward(&case.weight, &case.x, &case.dy, case.n, &mut dweight, None);
            assert_eq!(dweight, results[1], "the weights' gradient alone");
        }
    };
}
pub(super) use convolution_checks;

/// Tests for a convolution of any sizes.
macro_rules! convolution_tests {
    ($Convolution:ident) => {
        use super::$Convolution;
        use $crate::kernels::reference::{Case, cases, convolution_checks};

        convolution_checks!($Convolution, $Convolution::new);

        proptest! {
            #[test]
            fn any_sizes(case in cases()) {
                check(&case);
            }
        }

        #[test]
        fn the_models_sizes() {
            for (image, out, kernel, stride, padding) in [
                ((1, 28, 28), 6, 5, 1, 2),
                ((3, 32, 32), 6, 5, 1, 0),
                ((6, 14, 14), 16, 5, 1, 0),
                ((1, 28, 28), 8, 5, 2, 2),
                ((8, 14, 14), 16, 3, 1, 1),
                ((32, 14, 14), 64, 5, 1, 2),
                ((3, 32, 32), 64, 3, 1, 1),
                ((48, 32, 32), 7, 3, 1, 1),
                ((17, 2, 2), 9, 3, 1, 1),
                ((5, 9, 7), 6, 1, 2, 0),
            ] {
                check(&Case::new(image, out, kernel, stride, padding, 5));
            }
        }

        #[test]
        fn the_same_bits_for_any_number_of_threads() {
            for (image, out, kernel, padding) in [((6, 14, 14), 16, 5, 0), ((32, 8, 8), 40, 3, 1)] {
                let case = Case::new(image, out, kernel, 1, padding, 37);
                let with = |threads: usize| {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
                    pool.install(|| run(&mut new(case.geometry, case.out), &case))
                };
                let one = with(1);
                assert_eq!(with(2), one);
                assert_eq!(with(3), one);
            }
        }

        #[test]
        fn an_empty_batch_has_no_gradient() {
            let case = Case::new((2, 5, 5), 3, 3, 1, 1, 0);
            let [y, dweight, dx] = run(&mut new(case.geometry, case.out), &case);
            assert!(y.is_empty() && dx.is_empty());
            assert!(dweight.iter().all(|value| *value == 0.0));
        }
    };
}
pub(super) use convolution_tests;
