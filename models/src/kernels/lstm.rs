//! Long short-term memory (LSTM).
//!
//! The products that do not depend on the previous state, those with the inputs and those for the gradients of the weights,
//! are one large product over all samples and positions. What remains for each position is the recurrence: a few rows times
//! the weights of the state ([`PackedMatrix`]). Samples are independent there, so that each thread takes some of them
//! through all positions without waiting for the others.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::activation::{sigmoid, tanh};
use super::gemm::{Matrix, gemm_parallel};
use super::packed::PackedMatrix;
use super::vectors;
use crate::kernels::arch;

/// Multiply-adds of the recurrence from which it uses several threads: about 100 microseconds of work.
const MIN_PARALLEL_WORK: usize = 1 << 22;

/// The parameters of an LSTM.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LstmWeights<'a> {
    /// For the inputs, `[4 hidden, inputs]`; the gates are `i, f, g, o`.
    pub(crate) weight_ih: &'a [f32],
    /// For the state, `[4 hidden, hidden]`.
    pub(crate) weight_hh: &'a [f32],
    /// `[4 hidden]`.
    pub(crate) bias: &'a [f32],
}

/// The gradients with respect to the parameters, to be overwritten in full.
#[derive(Debug)]
pub(crate) struct LstmGradients<'a> {
    /// As [`LstmWeights::weight_ih`].
    pub(crate) weight_ih: &'a mut [f32],
    /// As [`LstmWeights::weight_hh`].
    pub(crate) weight_hh: &'a mut [f32],
    /// As [`LstmWeights::bias`].
    pub(crate) bias: &'a mut [f32],
}

/// An LSTM of `hidden` units with the values that its backward pass needs. The rows of all buffers are those of `n` samples
/// of `t` positions each.
#[derive(Debug)]
pub(crate) struct Lstm {
    inputs: usize,
    hidden: usize,
    /// `[n, t, 4 hidden]`: the inputs of the gates, then their outputs, then the gradients with respect to their inputs.
    gates: Vec<f32>,
    /// `[n, t, hidden]`: the cells.
    cells: Vec<f32>,
    /// `[n, t, hidden]`: the hyperbolic tangents of the cells; after the backward pass the states before each position.
    tanh_cells: Vec<f32>,
    /// The cells before the first position: zeros.
    start: Vec<f32>,
    /// `[n, 2 hidden]`: the gradients with respect to states and cells that the backward pass carries along.
    carried: Vec<f32>,
    panels: PackedMatrix,
}

impl Lstm {
    pub(crate) fn new(inputs: usize, hidden: usize) -> Self {
        Self {
            inputs,
            hidden,
            gates: Vec::new(),
            cells: Vec::new(),
            tanh_cells: Vec::new(),
            start: vec![0.0; hidden],
            carried: Vec::new(),
            panels: PackedMatrix::default(),
        }
    }

    /// The states `y`, `[n, t, hidden]`, for the inputs `x`, `[n, t, inputs]`.
    pub(crate) fn forward(&mut self, weights: LstmWeights<'_>, x: &[f32], y: &mut [f32], n: usize, t: usize) {
        let (inputs, hidden, rows) = (self.inputs, self.hidden, n * t);
        assert!(x.len() == rows * inputs && y.len() == rows * hidden && t > 0 && hidden > 0);
        self.gates.resize(rows * 4 * hidden, 0.0);
        self.cells.resize(rows * hidden, 0.0);
        self.tanh_cells.resize(rows * hidden, 0.0);
        let weight = Matrix::new(weights.weight_ih, 4 * hidden, inputs).transposed();
        gemm_parallel(1.0, Matrix::new(x, rows, inputs), weight, 0.0, &mut self.gates, 4 * hidden);
        self.panels.copy_transposed(weights.weight_hh, hidden, 4 * hidden);

        let samples = self.samples_together(n, t);
        let width = samples * t * hidden;
        let Self { panels, start, gates, cells, tanh_cells, .. } = self;
        let (panels, start) = (&*panels, start.as_slice());
        let groups = (gates.par_chunks_mut(4 * width))
            .zip(cells.par_chunks_mut(width))
            .zip(tanh_cells.par_chunks_mut(width))
            .zip(y.par_chunks_mut(width));
        let forward = |(((gates, cells), tanh_cells), y): (((&mut [f32], _), _), &mut [f32])| {
            let bias = weights.bias;
            arch().dispatch(Forward { panels, start, bias, gates, cells, tanh_cells, y, t });
        };
        groups.for_each(forward);
    }

    /// From the gradient `dy` with respect to the states, computes those of the parameters and optionally that of the inputs,
    /// `dx`. Follows a forward pass of the same `x` that gave `y`.
    pub(crate) fn backward(
        &mut self,
        weights: LstmWeights<'_>,
        (x, y, dy): (&[f32], &[f32], &[f32]),
        (n, t): (usize, usize),
        gradients: LstmGradients<'_>,
        dx: Option<&mut [f32]>,
    ) {
        let LstmGradients { weight_ih, weight_hh, bias } = gradients;
        let (inputs, hidden, rows) = (self.inputs, self.hidden, n * t);
        assert!(x.len() == rows * inputs && y.len() == rows * hidden && dy.len() == y.len());
        assert_eq!(self.gates.len(), rows * 4 * hidden, "a backward pass follows its forward pass");
        self.panels.copy(weights.weight_hh, 4 * hidden, hidden);
        self.carried.resize(n * 2 * hidden, 0.0);

        let samples = self.samples_together(n, t);
        let width = samples * t * hidden;
        let Self { panels, start, gates, cells, tanh_cells, carried, .. } = self;
        let (panels, start) = (&*panels, start.as_slice());
        let groups = (gates.par_chunks_mut(4 * width))
            .zip(cells.par_chunks(width))
            .zip(tanh_cells.par_chunks_mut(width))
            .zip(y.par_chunks(width).zip(dy.par_chunks(width)))
            .zip(carried.par_chunks_mut(samples * 2 * hidden));
        groups.for_each(|((((gates, cells), tanh_cells), (y, dy)), carried)| {
            let (states, cells_gradient) = carried.split_at_mut(carried.len() / 2);
            arch().dispatch(Backward {
                panels,
                start,
                gates,
                cells,
                tanh_cells: &*tanh_cells,
                dy,
                states,
                cells_gradient,
                t,
            });
            // The states before each position overwrite values that are no longer needed.
            for (before, y) in tanh_cells.chunks_exact_mut(t * hidden).zip(y.chunks_exact(t * hidden)) {
                before[..hidden].fill(0.0);
                before[hidden..].copy_from_slice(&y[..(t - 1) * hidden]);
            }
        });

        let gates = Matrix::new(&self.gates, rows, 4 * hidden);
        let before = Matrix::new(&self.tanh_cells, rows, hidden);
        gemm_parallel(1.0, gates.transposed(), before, 0.0, weight_hh, hidden);
        gemm_parallel(1.0, gates.transposed(), Matrix::new(x, rows, inputs), 0.0, weight_ih, inputs);
        bias.fill(0.0);
        arch().dispatch(
            #[inline(always)]
            || {
                for row in self.gates.chunks_exact(4 * hidden) {
                    bias.iter_mut().zip(row).for_each(|(sum, value)| *sum += value);
                }
            },
        );
        if let Some(dx) = dx {
            let weight = Matrix::new(weights.weight_ih, 4 * hidden, inputs);
            gemm_parallel(1.0, gates, weight, 0.0, dx, inputs);
        }
    }

    /// Samples per task. The number may depend on the threads, since every row is computed by itself.
    fn samples_together(&self, n: usize, t: usize) -> usize {
        let work = n * t * 4 * self.hidden * self.hidden;
        let threads = if work < MIN_PARALLEL_WORK { 1 } else { rayon::current_num_threads() };
        n.div_ceil(threads).max(1)
    }
}

/// The forward pass of some samples through all positions.
struct Forward<'a> {
    panels: &'a PackedMatrix,
    start: &'a [f32],
    bias: &'a [f32],
    gates: &'a mut [f32],
    cells: &'a mut [f32],
    tanh_cells: &'a mut [f32],
    y: &'a mut [f32],
    t: usize,
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { panels, start, bias, gates, cells, tanh_cells, y, t } = self;
        let hidden = start.len();
        let samples = y.len() / (t * hidden);
        for position in 0..t {
            if position > 0 {
                let states = (&y[(position - 1) * hidden..], t * hidden);
                panels.multiply_add(
                    simd,
                    samples,
                    states,
                    (&mut gates[position * 4 * hidden..], t * 4 * hidden),
                );
            }
            for sample in 0..samples {
                let row = sample * t + position;
                let (earlier, later) = cells.split_at_mut(row * hidden);
                let before = if position > 0 { &earlier[(row - 1) * hidden..] } else { start };
                let here = row * hidden..(row + 1) * hidden;
                forward_cell(
                    simd,
                    &mut gates[4 * here.start..4 * here.end],
                    bias,
                    before,
                    &mut later[..hidden],
                    &mut tanh_cells[here.clone()],
                    &mut y[here],
                );
            }
        }
    }
}

/// One sample at one position, for an LSTM that never goes back.
pub(super) struct ForwardCell<'a> {
    /// The inputs of the gates, `[4 hidden]`, which their outputs overwrite.
    pub(super) gates: &'a mut [f32],
    /// `[4 hidden]`, added to these inputs.
    pub(super) bias: &'a [f32],
    /// The cells before this position, `[hidden]`.
    pub(super) before: &'a [f32],
    /// The cells, their hyperbolic tangents and the states, `[hidden]` each, to be overwritten.
    pub(super) cells: &'a mut [f32],
    pub(super) tanh_cells: &'a mut [f32],
    pub(super) y: &'a mut [f32],
}

impl WithSimd for ForwardCell<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        forward_cell(simd, self.gates, self.bias, self.before, self.cells, self.tanh_cells, self.y);
    }
}

/// The gates and cells of one sample at one position.
#[inline(always)]
fn forward_cell<S: Simd>(
    simd: S,
    gates: &mut [f32],
    bias: &[f32],
    before: &[f32],
    cells: &mut [f32],
    tanh_cells: &mut [f32],
    y: &mut [f32],
) {
    let hidden = y.len();
    let [i, f, g, o] = quarters_mut(gates, hidden);
    let [bias_i, bias_f, bias_g, bias_o] = quarters(bias, hidden);
    for first in (0..hidden).step_by(S::F32_LANES) {
        let places = first..(first + S::F32_LANES).min(hidden);
        let load = |values: &[f32]| vectors::load(simd, &values[places.clone()]);
        let sum = |gate: &[f32], bias: &[f32]| simd.add_f32s(load(gate), load(bias));
        let input = sigmoid(simd, sum(i, bias_i));
        let forget = sigmoid(simd, sum(f, bias_f));
        let candidate = tanh(simd, sum(g, bias_g));
        let output = sigmoid(simd, sum(o, bias_o));
        let cell = simd.mul_add_e_f32s(forget, load(before), simd.mul_f32s(input, candidate));
        let tanh_cell = tanh(simd, cell);
        let store = |to: &mut [f32], value| vectors::store(simd, &mut to[places.clone()], value);
        store(i, input);
        store(f, forget);
        store(g, candidate);
        store(o, output);
        store(cells, cell);
        store(tanh_cells, tanh_cell);
        store(y, simd.mul_f32s(output, tanh_cell));
    }
}

/// The backward pass of some samples through all positions.
struct Backward<'a> {
    panels: &'a PackedMatrix,
    start: &'a [f32],
    gates: &'a mut [f32],
    cells: &'a [f32],
    tanh_cells: &'a [f32],
    dy: &'a [f32],
    /// `[samples, hidden]`: the gradient with respect to the states of one position.
    states: &'a mut [f32],
    /// `[samples, hidden]`: the gradient with respect to the cells of the position before.
    cells_gradient: &'a mut [f32],
    t: usize,
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { panels, start, gates, cells, tanh_cells, dy, states, cells_gradient, t } = self;
        let hidden = start.len();
        let samples = dy.len() / (t * hidden);
        cells_gradient.fill(0.0);
        for position in (0..t).rev() {
            for (sample, states) in states.chunks_exact_mut(hidden).enumerate() {
                states.copy_from_slice(&dy[(sample * t + position) * hidden..][..hidden]);
            }
            if position + 1 < t {
                let after = (&gates[(position + 1) * 4 * hidden..], t * 4 * hidden);
                panels.multiply_add(simd, samples, after, (&mut *states, hidden));
            }
            for sample in 0..samples {
                let row = sample * t + position;
                let here = row * hidden..(row + 1) * hidden;
                let before = if position > 0 { &cells[(row - 1) * hidden..][..hidden] } else { start };
                backward_cell(
                    simd,
                    &mut gates[4 * here.start..4 * here.end],
                    before,
                    &tanh_cells[here],
                    &states[sample * hidden..][..hidden],
                    &mut cells_gradient[sample * hidden..][..hidden],
                );
            }
        }
    }
}

/// From the gradients with respect to state and cells of one sample at one position, computes those with respect to the
/// inputs of the gates, which overwrite the outputs of the gates, and those with respect to the cells before.
#[inline(always)]
fn backward_cell<S: Simd>(
    simd: S,
    gates: &mut [f32],
    before: &[f32],
    tanh_cells: &[f32],
    states: &[f32],
    cells_gradient: &mut [f32],
) {
    let hidden = before.len();
    let [i, f, g, o] = quarters_mut(gates, hidden);
    let one = simd.splat_f32s(1.0);
    let mul = |a, b| simd.mul_f32s(a, b);
    // The derivatives of the two functions, from their values.
    let slope_of_sigmoid = |s| mul(s, simd.sub_f32s(one, s));
    let slope_of_tanh = |s| simd.sub_f32s(one, mul(s, s));
    for first in (0..hidden).step_by(S::F32_LANES) {
        let places = first..(first + S::F32_LANES).min(hidden);
        let load = |values: &[f32]| vectors::load(simd, &values[places.clone()]);
        let [input, forget, candidate, output] = [load(i), load(f), load(g), load(o)];
        let (state, tanh_cell) = (load(states), load(tanh_cells));
        let cell = simd.mul_add_e_f32s(mul(state, output), slope_of_tanh(tanh_cell), load(cells_gradient));
        let store = |to: &mut [f32], value| vectors::store(simd, &mut to[places.clone()], value);
        store(i, mul(mul(cell, candidate), slope_of_sigmoid(input)));
        store(f, mul(mul(cell, load(before)), slope_of_sigmoid(forget)));
        store(g, mul(mul(cell, input), slope_of_tanh(candidate)));
        store(o, mul(mul(state, tanh_cell), slope_of_sigmoid(output)));
        store(cells_gradient, mul(cell, forget));
    }
}

/// The four gates of a row.
#[inline(always)]
fn quarters(row: &[f32], hidden: usize) -> [&[f32]; 4] {
    std::array::from_fn(|gate| &row[gate * hidden..(gate + 1) * hidden])
}

/// The four gates of a row.
#[inline(always)]
fn quarters_mut(row: &mut [f32], hidden: usize) -> [&mut [f32]; 4] {
    let (front, back) = row.split_at_mut(2 * hidden);
    let (i, f) = front.split_at_mut(hidden);
    let (g, o) = back.split_at_mut(hidden);
    [i, f, g, o]
}

#[cfg(test)]
mod tests;
