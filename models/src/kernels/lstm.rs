//! Long short-term memory over a sequence.
//!
//! What does not depend on the state before, the products with the inputs and those for the gradients of the weights, is
//! one large product over all samples and positions. The recurrence remains: at every position a few rows times the
//! weights of the state ([`Panels`]). Samples do not depend on each other there, so each thread takes some of them through
//! all positions, and they meet only at the end.

use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::activation::{sigmoid, tanh};
use super::panels::Panels;
use super::product::{Matrix, product_parallel};
use crate::kernels::arch;

/// Multiply-adds of the recurrence from which it is worth more than one thread: about 100 microseconds of work.
const WORTH_THREADS: usize = 1 << 22;

/// The parameters of a memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LstmWeights<'a> {
    /// For the inputs, `[4 hidden, inputs]`; the gates are `i, f, g, o`.
    pub(crate) weight_ih: &'a [f32],
    /// For the state, `[4 hidden, hidden]`.
    pub(crate) weight_hh: &'a [f32],
    /// `[4 hidden]`.
    pub(crate) bias: &'a [f32],
}

/// Where the gradients by the parameters are written to, all of them.
#[derive(Debug)]
pub(crate) struct LstmGradients<'a> {
    /// As [`LstmWeights::weight_ih`].
    pub(crate) weight_ih: &'a mut [f32],
    /// As [`LstmWeights::weight_hh`].
    pub(crate) weight_hh: &'a mut [f32],
    /// As [`LstmWeights::bias`].
    pub(crate) bias: &'a mut [f32],
}

/// A memory of `hidden` units with what its backward pass needs. Rows of all buffers are those of `n` samples, each with
/// its `t` positions one after the other.
#[derive(Debug)]
pub(crate) struct Lstm {
    inputs: usize,
    hidden: usize,
    /// `[n, t, 4 hidden]`: what goes into the gates, then what comes out, then the gradient by what goes in.
    gates: Vec<f32>,
    /// `[n, t, hidden]`: the cells.
    cells: Vec<f32>,
    /// `[n, t, hidden]`: their hyperbolic tangents; in the backward pass the states before each position.
    tanh_cells: Vec<f32>,
    /// Zeros, the cells before the first position.
    start: Vec<f32>,
    /// `[n, 2 hidden]`: the gradients by state and cells on their way back.
    carried: Vec<f32>,
    panels: Panels,
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
            panels: Panels::default(),
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
        product_parallel(1.0, Matrix::new(x, rows, inputs), weight, 0.0, &mut self.gates, 4 * hidden);
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

    /// Propagates the gradient `dy` by the states back, after a forward pass of the same `x` that gave `y`: to the
    /// parameters, and to `dx` if that is wanted.
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
            // The states before each position, in the place of what is no longer needed.
            for (before, y) in tanh_cells.chunks_exact_mut(t * hidden).zip(y.chunks_exact(t * hidden)) {
                before[..hidden].fill(0.0);
                before[hidden..].copy_from_slice(&y[..(t - 1) * hidden]);
            }
        });

        let gates = Matrix::new(&self.gates, rows, 4 * hidden);
        let before = Matrix::new(&self.tanh_cells, rows, hidden);
        product_parallel(1.0, gates.transposed(), before, 0.0, weight_hh, hidden);
        product_parallel(1.0, gates.transposed(), Matrix::new(x, rows, inputs), 0.0, weight_ih, inputs);
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
            product_parallel(1.0, gates, weight, 0.0, dx, inputs);
        }
    }

    /// How many samples one thread takes. It may depend on their number, since every row is computed by itself.
    fn samples_together(&self, n: usize, t: usize) -> usize {
        let work = n * t * 4 * self.hidden * self.hidden;
        let threads = if work < WORTH_THREADS { 1 } else { rayon::current_num_threads() };
        n.div_ceil(threads).max(1)
    }
}

/// The forward pass of some samples through all positions.
struct Forward<'a> {
    panels: &'a Panels,
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
        let load = |values: &[f32]| simd.partial_load_f32s(&values[places.clone()]);
        let sum = |gate: &[f32], bias: &[f32]| simd.add_f32s(load(gate), load(bias));
        let input = sigmoid(simd, sum(i, bias_i));
        let forget = sigmoid(simd, sum(f, bias_f));
        let candidate = tanh(simd, sum(g, bias_g));
        let output = sigmoid(simd, sum(o, bias_o));
        let cell = simd.mul_add_e_f32s(forget, load(before), simd.mul_f32s(input, candidate));
        let tanh_cell = tanh(simd, cell);
        let store = |to: &mut [f32], value| simd.partial_store_f32s(&mut to[places.clone()], value);
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
    panels: &'a Panels,
    start: &'a [f32],
    gates: &'a mut [f32],
    cells: &'a [f32],
    tanh_cells: &'a [f32],
    dy: &'a [f32],
    /// `[samples, hidden]`: the gradient by the states of one position.
    states: &'a mut [f32],
    /// `[samples, hidden]`: the gradient by the cells of the position before that.
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

/// From the gradients by state and cells of one sample at one position to those by what goes into the gates, which take
/// the place of what came out of them, and by the cells before.
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
        let load = |values: &[f32]| simd.partial_load_f32s(&values[places.clone()]);
        let [input, forget, candidate, output] = [load(i), load(f), load(g), load(o)];
        let (state, tanh_cell) = (load(states), load(tanh_cells));
        let cell = simd.mul_add_e_f32s(mul(state, output), slope_of_tanh(tanh_cell), load(cells_gradient));
        let store = |to: &mut [f32], value| simd.partial_store_f32s(&mut to[places.clone()], value);
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
mod tests {
    use super::*;
    use crate::kernels::noise;

    /// Weights and inputs in f64, in the order of [`SLOPES`].
    #[derive(Clone)]
    struct Case {
        inputs: usize,
        hidden: usize,
        n: usize,
        t: usize,
        /// `weight_ih`, `weight_hh`, `bias` and `x`.
        lists: [Vec<f32>; 4],
        dy: Vec<f32>,
    }

    impl Case {
        fn new(inputs: usize, hidden: usize, n: usize, t: usize) -> Self {
            let lists = [
                noise(4 * hidden * inputs, 1),
                noise(4 * hidden * hidden, 2),
                noise(4 * hidden, 3),
                noise(n * t * inputs, 4),
            ];
            Self { inputs, hidden, n, t, lists, dy: noise(n * t * hidden, 5) }
        }

        /// The states in f64, straight from the equations.
        fn naive(&self, [weight_ih, weight_hh, bias, x]: [&[f64]; 4]) -> Vec<f64> {
            let (inputs, hidden) = (self.inputs, self.hidden);
            let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
            let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let mut states = vec![];
            for x in x.chunks(self.t * inputs) {
                let (mut h, mut c) = (vec![0.0; hidden], vec![0.0; hidden]);
                for x in x.chunks(inputs) {
                    let gate = |row: usize| {
                        let from_input = dot(&weight_ih[row * inputs..][..inputs], x);
                        from_input + dot(&weight_hh[row * hidden..][..hidden], &h) + bias[row]
                    };
                    let gates: Vec<f64> = (0..4 * hidden).map(gate).collect();
                    for unit in 0..hidden {
                        let [i, f, g, o] = [0, 1, 2, 3].map(|gate| gates[gate * hidden + unit]);
                        c[unit] = sigmoid(f) * c[unit] + sigmoid(i) * g.tanh();
                        h[unit] = sigmoid(o) * c[unit].tanh();
                    }
                    states.extend_from_slice(&h);
                }
            }
            states
        }

        /// The states and the gradients by weights, bias and inputs.
        fn run(&self, lstm: &mut Lstm) -> (Vec<f32>, [Vec<f32>; 4]) {
            let [weight_ih, weight_hh, bias, x] = &self.lists;
            let weights = LstmWeights { weight_ih, weight_hh, bias };
            let mut y = vec![f32::NAN; self.dy.len()];
            lstm.forward(weights, x, &mut y, self.n, self.t);
            let mut slopes = self.lists.clone().map(|list| vec![f32::NAN; list.len()]);
            let [weight_ih, weight_hh, bias, dx] = &mut slopes;
            let gradients = LstmGradients { weight_ih, weight_hh, bias };
            lstm.backward(weights, (x, &y, &self.dy), (self.n, self.t), gradients, Some(dx));
            (y, slopes)
        }
    }

    #[test]
    fn states_and_gradients_are_those_of_double_precision() {
        for (inputs, hidden, n, t) in [(1, 1, 1, 1), (3, 2, 2, 4), (2, 5, 7, 3), (4, 17, 1, 2), (1, 3, 6, 5)]
        {
            let case = Case::new(inputs, hidden, n, t);
            let mut lstm = Lstm::new(inputs, hidden);
            // What a larger batch leaves behind does not matter.
            Case::new(inputs, hidden, n + 2, t + 1).run(&mut lstm);
            let (y, slopes) = case.run(&mut lstm);
            let lists = case.lists.clone().map(|list| list.into_iter().map(f64::from).collect::<Vec<f64>>());
            let expected = case.naive(lists.each_ref().map(Vec::as_slice));
            assert_eq!(y.len(), expected.len());
            for (found, expected) in y.iter().zip(&expected) {
                assert!((f64::from(*found) - expected).abs() < 2e-6, "{found} {expected}");
            }
            // The gradients of sum(dy y), by central differences.
            for (which, slopes) in slopes.iter().enumerate() {
                for (index, &found) in slopes.iter().enumerate() {
                    let at = |offset: f64| {
                        let mut lists = lists.clone();
                        lists[which][index] += offset;
                        let y = case.naive(lists.each_ref().map(Vec::as_slice));
                        y.iter().zip(&case.dy).map(|(y, &dy)| y * f64::from(dy)).sum::<f64>()
                    };
                    let expected = (at(1e-5) - at(-1e-5)) / 2e-5;
                    let close = (f64::from(found) - expected).abs() < 1e-5 * (1.0 + expected.abs());
                    assert!(close, "{inputs} {hidden} {n} {t}: list {which}[{index}]: {found} {expected}");
                }
            }
        }
    }

    #[test]
    fn threads_do_not_show() {
        // Enough work for threads, and samples that they cannot share evenly.
        let case = Case::new(5, 96, 7, 20);
        const { assert!(7 * 20 * 4 * 96 * 96 > WORTH_THREADS) };
        let bits = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let (y, slopes) = pool.install(|| case.run(&mut Lstm::new(5, 96)));
            let bits = |list: &Vec<f32>| list.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            (bits(&y), slopes.each_ref().map(bits))
        };
        let one = bits(1);
        assert!([2, 3, 5].into_iter().all(|threads| bits(threads) == one));
    }

    #[test]
    fn a_gradient_by_the_inputs_is_made_only_if_wanted() {
        let case = Case::new(2, 3, 2, 2);
        let mut lstm = Lstm::new(2, 3);
        let (y, expected) = case.run(&mut lstm);
        let [weight_ih, weight_hh, bias, x] = &case.lists;
        let weights = LstmWeights { weight_ih, weight_hh, bias };
        let mut y_again = y.clone();
        lstm.forward(weights, x, &mut y_again, 2, 2);
        let mut slopes = expected.clone().map(|list| vec![f32::NAN; list.len()]);
        let [weight_ih, weight_hh, bias, _] = &mut slopes;
        lstm.backward(weights, (x, &y, &case.dy), (2, 2), LstmGradients { weight_ih, weight_hh, bias }, None);
        assert_eq!(slopes[..3], expected[..3]);
    }
}
