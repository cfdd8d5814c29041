//! Products of rows with weights, by 8-bit integers: fully connected layers, and every position of a sequence.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::finish::Function;
use super::quantise::Quantisation;
use super::tile::{Level, Start, Sums};
use super::weights::Weights;
use super::{PANEL, ROWS};
use crate::kernels::arch;

/// Multiply-adds from which a part of the work pays for a thread: about ten microseconds.
const MIN_TASK_WORK: usize = 1 << 20;
/// Blocks of rows in one task, which read a panel of weights from the cache.
const MAX_TASK_BLOCKS: usize = 16;

/// A linear layer with its weights. Each row is quantised by its own range.
#[derive(Debug)]
pub(crate) struct Linear {
    inputs: usize,
    weights: Weights<PANEL>,
    function: Function,
}

impl Linear {
    /// Quantises the weights `[outputs, inputs]`; `bias` has `outputs` values.
    pub(crate) fn new(weight: &[f32], inputs: usize, bias: &[f32], function: Function) -> Self {
        Self { inputs, weights: Weights::new(weight, bias, inputs), function }
    }

    /// `y` `[rows, outputs]` from `x` `[rows, inputs]`.
    pub(crate) fn forward(&self, x: &[f32], y: &mut [f32]) {
        let (inputs, outputs) = (self.inputs, self.weights.outputs());
        let rows = y.len() / outputs.max(1);
        assert!(x.len() == rows * inputs && y.len() == rows * outputs, "rows of these lengths");
        if y.is_empty() {
            return;
        }
        let work = inputs.max(1).saturating_mul(outputs);
        if rows == 1 {
            let hows = [Quantisation::of(x)];
            let row = Rows::<1>::pack(x, inputs, &hows);
            let panels = MIN_TASK_WORK.div_ceil(inputs.max(1) * PANEL).next_multiple_of(2);
            let task = |(task, y): (usize, &mut [f32])| self.block(&row, task * panels, y, y.len());
            return y.par_chunks_mut(panels * PANEL).enumerate().for_each(task);
        }
        let blocks = MIN_TASK_WORK.div_ceil(work.saturating_mul(ROWS)).clamp(1, MAX_TASK_BLOCKS);
        let chunk = blocks * ROWS;
        let tasks = y.par_chunks_mut(chunk * outputs).zip(x.par_chunks((chunk * inputs).max(1)));
        tasks.for_each(|(y, x)| {
            let hows: Vec<_> = x.chunks_exact(inputs.max(1)).map(Quantisation::of).collect();
            self.rows(&Rows::pack(x, inputs, &hows), y);
        });
    }

    /// Adds to `y` `[rows, outputs]`, whose rows begin `stride` apart, the products of rows of numbers from -1 to 1, which begin
    /// `x_stride` apart. There is no function after it.
    pub(super) fn add_unit(
        &self,
        rows: usize,
        (x, x_stride): (&[f32], usize),
        (y, stride): (&mut [f32], usize),
    ) {
        let hows = [Quantisation::UNIT; ROWS];
        let outputs = self.weights.outputs();
        let mut sums = vec![0.0; ROWS * outputs];
        for first in (0..rows).step_by(ROWS) {
            let count = ROWS.min(rows - first);
            let row = |row: usize| &x[(first + row) * x_stride..][..self.inputs];
            if count == 1 {
                self.block(
                    &Rows::<1>::pack(row(0), self.inputs, &hows[..1]),
                    0,
                    &mut sums[..outputs],
                    outputs,
                );
            } else {
                let mut block = Rows::<ROWS>::zeros(self.inputs, &hows[..count]);
                (0..count).for_each(|index| block.set(index, row(index)));
                self.rows(&block, &mut sums[..count * outputs]);
            }
            for (index, sums) in sums.chunks_exact(outputs).take(count).enumerate() {
                let y = &mut y[(first + index) * stride..][..outputs];
                y.iter_mut().zip(sums).for_each(|(y, sum)| *y += sum);
            }
        }
    }

    /// All outputs of some rows, panel by panel of the weights.
    fn rows(&self, rows: &Rows<ROWS>, y: &mut [f32]) {
        self.block(rows, 0, y, self.weights.outputs());
    }

    /// The outputs from panel `first` on, as many as `y` has for each row: `stride`.
    fn block<const R: usize>(&self, rows: &Rows<R>, first: usize, y: &mut [f32], stride: usize) {
        arch().dispatch(Product { linear: self, rows, first, y, stride });
    }

    /// The bytes of the weights.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.weights.bytes()
    }
}

/// The product of rows and the weights from panel `first` on, one panel after the other.
struct Product<'a, const R: usize> {
    linear: &'a Linear,
    rows: &'a Rows<'a, R>,
    first: usize,
    y: &'a mut [f32],
    stride: usize,
}

impl<const R: usize> WithSimd for Product<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { linear: Linear { weights, function, .. }, rows, first, y, stride } = self;
        let (level, panels) = (Level::best(), stride.div_ceil(PANEL));
        for panel in (0..panels).step_by(2) {
            let left = first + panel;
            let right = (left + 1).min(weights.sums.len() - 1);
            for ((block, y), hows) in rows.blocks().zip(y.chunks_mut(R * stride)).zip(rows.hows.chunks(R)) {
                let mut zeros = [0; R];
                zeros.iter_mut().zip(hows).for_each(|(zero, how)| *zero = -i32::from(how.zero));
                let place = (left, panel * PANEL, stride);
                if panel + 1 < panels {
                    let mut sums = [[[0.0; PANEL]; 2]; R];
                    let start = Start::Products(zeros, [&weights.sums[left], &weights.sums[right]]);
                    let both = [weights.block(left), weights.block(right)];
                    level.sums::<R, 2, false>(block, both, &start, &mut sums);
                    store(simd, &sums, weights, *function, hows, place, y);
                } else {
                    let mut sums = [[[0.0; PANEL]; 1]; R];
                    let start = Start::Products(zeros, [&weights.sums[left]]);
                    level.sums::<R, 1, false>(block, [weights.block(left)], &start, &mut sums);
                    store(simd, &sums, weights, *function, hows, place, y);
                }
            }
        }
    }
}

/// Writes the outputs of the panels from `panel` on to the places from `output` on of rows of `stride` values.
#[inline(always)]
fn store<S: Simd, const R: usize, const C: usize>(
    simd: S,
    sums: &Sums<R, C>,
    weights: &Weights<PANEL>,
    function: Function,
    hows: &[Quantisation],
    (panel, output, stride): (usize, usize, usize),
    y: &mut [f32],
) {
    for ((sums, how), y) in sums.iter().zip(hows).zip(y.chunks_exact_mut(stride)) {
        let scale = simd.splat_f32s(how.scale);
        for (index, sums) in sums.iter().enumerate() {
            let y = &mut y[output + index * PANEL..];
            let length = y.len().min(PANEL);
            let (sums, _) = S::as_simd_f32s(sums);
            let (scales, _) = S::as_simd_f32s(&weights.scales[panel + index]);
            let (bias, _) = S::as_simd_f32s(&weights.bias[panel + index]);
            let (to, rest) = S::as_mut_simd_f32s(&mut y[..length]);
            let whole = to.len();
            for (place, to) in to.iter_mut().enumerate() {
                let factor = simd.mul_f32s(scales[place], scale);
                *to = function.of(simd, sums[place], factor, bias[place]);
            }
            if !rest.is_empty() {
                let factor = simd.mul_f32s(scales[whole], scale);
                simd.partial_store_f32s(rest, function.of(simd, sums[whole], factor, bias[whole]));
            }
        }
    }
}

/// Quantised rows, `[rows / R][inputs / 4][R]`.
struct Rows<'a, const R: usize> {
    packed: Vec<[u32; R]>,
    groups: usize,
    hows: &'a [Quantisation],
    /// One row before it is packed.
    row: Vec<u32>,
}

impl<'a, const R: usize> Rows<'a, R> {
    /// Rows that follow each other, each with the quantisation of its own.
    fn pack(x: &[f32], inputs: usize, hows: &'a [Quantisation]) -> Self {
        let mut rows = Self::zeros(inputs, hows);
        x.chunks_exact(inputs.max(1)).enumerate().for_each(|(row, x)| rows.set(row, x));
        rows
    }

    fn zeros(inputs: usize, hows: &'a [Quantisation]) -> Self {
        let groups = inputs.div_ceil(4);
        let packed = vec![[0; R]; hows.len().div_ceil(R) * groups];
        Self { packed, groups, hows, row: vec![0; groups] }
    }

    fn set(&mut self, row: usize, x: &[f32]) {
        self.hows[row].group(x, &mut self.row);
        let to = &mut self.packed[row / R * self.groups..][..self.groups];
        to.iter_mut().zip(&self.row).for_each(|(to, &group)| to[row % R] = group);
    }

    #[inline(always)]
    fn blocks(&self) -> impl Iterator<Item = &[[u32; R]]> {
        self.packed.chunks_exact(self.groups.max(1))
    }
}

#[cfg(test)]
mod tests;
