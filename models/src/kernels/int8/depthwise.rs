//! Depthwise convolution in `f32`, forward alone: every weight meets few values, so that memory takes the time, not products.
//!
//! A plane is copied into one with its padding, in which columns that are a stride apart are next to each other. Every tap then
//! reads a run. Bias and activation function are applied before a result is stored. Sums have one order, and every
//! operation rounds, so that the bits are the same with all instructions.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::finish::Function;
use crate::kernels::arch;
use crate::kernels::copy::copy_row;
use crate::kernels::geometry::Geometry;

/// Multiply-adds of a task: about ten microseconds of work.
const TASK_WORK: usize = 1 << 18;

/// A depthwise convolution with its weights.
#[derive(Debug)]
pub(crate) struct Depthwise {
    geometry: Geometry,
    /// `[channels, kernel, kernel]`.
    weight: Vec<f32>,
    bias: Vec<f32>,
    function: Function,
    /// Values of a row of the padded plane: for every remainder of a column by the stride, the columns that have it.
    row: usize,
    /// Where each tap reads for the first place.
    offsets: Vec<usize>,
}

impl Depthwise {
    /// For weights `[channels, 1, kernel, kernel]` and a bias per channel.
    pub(crate) fn new(geometry: Geometry, weight: Vec<f32>, bias: Vec<f32>, function: Function) -> Self {
        let Geometry { kernel, stride, width, padding, .. } = geometry;
        let row = (width + 2 * padding).div_ceil(stride) * stride;
        let offset = |tap: usize| {
            let (down, across) = (tap / kernel, tap % kernel);
            down * row + across % stride * (row / stride) + across / stride
        };
        let offsets = (0..kernel * kernel).map(offset).collect();
        Self { geometry, weight, bias, function, row, offsets }
    }

    /// `y` `[n, channels, rows, columns]` from `x` `[n, channels, height, width]`.
    pub(crate) fn forward(&self, x: &[f32], y: &mut [f32], n: usize) {
        let Geometry { channels, .. } = self.geometry;
        let (plane, places) = (self.geometry.height * self.geometry.width, self.geometry.places());
        assert!(
            x.len() == n * channels * plane && y.len() == n * channels * places,
            "images of this geometry"
        );
        if y.is_empty() {
            return;
        }
        let planes = TASK_WORK.div_ceil(places * self.offsets.len());
        let tasks = y.par_chunks_mut(planes * places).zip(x.par_chunks(planes * plane)).enumerate();
        tasks.for_each(|(task, (y, x))| arch().dispatch(Planes { of: self, first: task * planes, x, y }));
    }

    /// Copies a plane into its padded form. What is around it is zero and stays so.
    #[inline(always)]
    fn embed(&self, x: &[f32], padded: &mut [f32]) {
        let Geometry { width, stride, padding, .. } = self.geometry;
        for (row, x) in x.chunks_exact(width).enumerate() {
            let to = &mut padded[(row + padding) * self.row..][..self.row];
            match stride {
                1 => copy_row(x, &mut to[padding..padding + width]),
                2 => {
                    let (even, odd) = to.split_at_mut(self.row / 2);
                    // The first pixel is in column `padding`.
                    let (first, second) = if padding.is_multiple_of(2) { (even, odd) } else { (odd, even) };
                    let (pairs, rest) = x.as_chunks::<2>();
                    let first = &mut first[padding / 2..];
                    let second = &mut second[padding.div_ceil(2)..][..pairs.len()];
                    for ((pair, first), second) in pairs.iter().zip(first.iter_mut()).zip(second) {
                        [*first, *second] = *pair;
                    }
                    if let [last] = rest {
                        first[pairs.len()] = *last;
                    }
                }
                _ => {
                    for (column, &x) in x.iter().enumerate() {
                        let column = column + padding;
                        to[column % stride * (self.row / stride) + column / stride] = x;
                    }
                }
            }
        }
    }

    /// The bytes of the weights.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.weight) + size_of_val(&*self.bias)
    }
}

/// Some planes from number `first` on.
struct Planes<'a> {
    of: &'a Depthwise,
    first: usize,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for Planes<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { of, first, x, y } = self;
        let Geometry { height, width, stride, padding, rows, columns, .. } = of.geometry;
        // Rows shorter than a vector are computed in one run, whose places between rows are cropped.
        let narrow = columns < S::F32_LANES;
        let run_length = ((rows - 1) * stride * of.row + columns).next_multiple_of(S::F32_LANES);
        let mut run = vec![0.0; if narrow { run_length } else { 0 }];
        let reach = of.offsets.iter().max().map_or(0, |last| last + run_length);
        let mut padded = vec![0.0; ((height + 2 * padding) * of.row).max(reach)];
        for (index, (x, y)) in
            x.chunks_exact(height * width).zip(y.chunks_exact_mut(rows * columns)).enumerate()
        {
            let channel = (first + index) % of.bias.len();
            of.embed(x, &mut padded);
            let kernel = &of.weight[channel * of.offsets.len()..][..of.offsets.len()];
            let taps = Taps { offsets: &of.offsets, kernel, bias: of.bias[channel], function: of.function };
            if narrow {
                taps.sums(simd, &padded, &mut run);
                for (row, y) in y.chunks_exact_mut(columns).enumerate() {
                    copy_row(&run[row * stride * of.row..][..columns], y);
                }
            } else {
                for (row, y) in y.chunks_exact_mut(columns).enumerate() {
                    taps.sums(simd, &padded[row * stride * of.row..], y);
                }
            }
        }
    }
}

/// What a result sums over, and what is done with it.
struct Taps<'a> {
    offsets: &'a [usize],
    kernel: &'a [f32],
    bias: f32,
    function: Function,
}

impl Taps<'_> {
    /// The results of places that follow each other, at least a vector of them. The last vector may overlap the one before.
    #[inline(always)]
    fn sums<S: Simd>(&self, simd: S, x: &[f32], y: &mut [f32]) {
        let (lanes, length) = (S::F32_LANES, y.len());
        let mut place = 0;
        while place + 4 * lanes <= length {
            self.tile::<S, 4>(simd, &x[place..], &mut y[place..]);
            place += 4 * lanes;
        }
        while place + lanes <= length {
            self.tile::<S, 1>(simd, &x[place..], &mut y[place..]);
            place += lanes;
        }
        if place < length {
            let place = length - lanes;
            self.tile::<S, 1>(simd, &x[place..], &mut y[place..]);
        }
    }

    /// `V` vectors of results, all in registers.
    #[inline(always)]
    fn tile<S: Simd, const V: usize>(&self, simd: S, x: &[f32], y: &mut [f32]) {
        let mut sums = [simd.splat_f32s(self.bias); V];
        for (&offset, &weight) in self.offsets.iter().zip(self.kernel) {
            let weight = simd.splat_f32s(weight);
            let (x, _) = S::as_simd_f32s(&x[offset..offset + V * S::F32_LANES]);
            for (sum, &x) in sums.iter_mut().zip(x) {
                *sum = simd.add_f32s(simd.mul_f32s(weight, x), *sum);
            }
        }
        let (y, _) = S::as_mut_simd_f32s(&mut y[..V * S::F32_LANES]);
        for (y, sum) in y.iter_mut().zip(sums) {
            *y = self.function.apply(simd, sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::depthwise::Depthwise as Reference;
    use crate::kernels::noise;

    proptest! {
        #[test]
        fn the_same_as_the_kernel_that_learns(
            n in 1usize..3, channels in 1usize..4, height in 1usize..40, width in 1usize..40,
            kernel in 1usize..8, stride in 1usize..4, padding in 0usize..4,
        ) {
            prop_assume!(padding < kernel && height.min(width) + 2 * padding >= kernel);
            let geometry = Geometry::of(&[channels, height, width], kernel, stride, padding);
            let (x, weight) = (noise(n * geometry.image(), 1), noise(channels * kernel * kernel, 2));
            let bias = noise(channels, 3);
            let mut expected = vec![f32::NAN; n * channels * geometry.places()];
            let mut y = expected.clone();
            Reference::new(geometry).forward(&weight, &x, &mut expected, n, |channel, plane| {
                for y in plane {
                    *y = (*y + bias[channel]).max(0.0);
                }
            });
            Depthwise::new(geometry, weight, bias, Function::Relu).forward(&x, &mut y, n);
            for (place, (y, expected)) in y.iter().zip(&expected).enumerate() {
                prop_assert!((y - expected).abs() < 1e-5, "{place}: {y} {expected}");
            }
        }
    }

    #[test]
    fn threads_do_not_show() {
        let geometry = Geometry::of(&[40, 50, 50], 3, 1, 1);
        let (x, weight, bias) = (noise(3 * geometry.image(), 1), noise(360, 2), noise(40, 3));
        let depthwise = Depthwise::new(geometry, weight, bias, Function::Relu6);
        let bits = |threads| {
            let mut y = vec![0.0; 3 * geometry.image()];
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| depthwise.forward(&x, &mut y, 3));
            y.iter().map(|y| y.to_bits()).collect::<Vec<_>>()
        };
        assert_eq!(bits(1), bits(3));
    }
}
