//! Long short-term memory by products of 8-bit integers. Gates and cells are computed in `f32`.

use rayon::prelude::*;

use super::finish::Function;
use super::linear::Linear;
use crate::kernels::arch;
use crate::kernels::lstm::{ForwardCell, LstmWeights};

/// An LSTM of `hidden` units with its weights. States are from -1 to 1, and so quantised by that range.
#[derive(Debug)]
pub(crate) struct Lstm {
    hidden: usize,
    of_inputs: Linear,
    of_states: Linear,
    bias: Vec<f32>,
}

impl Lstm {
    /// Quantises the weights.
    pub(crate) fn new(weights: LstmWeights<'_>, inputs: usize, hidden: usize) -> Self {
        let linear = |weight, inputs| Linear::new(weight, inputs, &vec![0.0; 4 * hidden], Function::Identity);
        let (of_inputs, of_states) = (linear(weights.weight_ih, inputs), linear(weights.weight_hh, hidden));
        let bias = weights.bias.to_vec();
        Self { hidden, of_inputs, of_states, bias }
    }

    /// The values of scratch memory of each kind, for `n` samples of `t` positions.
    pub(crate) fn scratch(&self, n: usize, t: usize) -> [usize; 2] {
        [n * t * 4 * self.hidden, n * 3 * self.hidden]
    }

    /// The states `y`, `[n, t, hidden]`, for the inputs `x`, `[n, t, inputs]`.
    ///
    /// The scratch memory: `[n, t, 4 hidden]` for the inputs of the gates, then their outputs; `[n, 3, hidden]` for the cells
    /// before and at a position, which swap places, and the hyperbolic tangents of the latter.
    pub(crate) fn forward(&self, scratch: [&mut [f32]; 2], x: &[f32], y: &mut [f32], n: usize, t: usize) {
        let Self { hidden, of_inputs, of_states, bias } = self;
        let (hidden, [gates, cells]) = (*hidden, scratch);
        assert_eq!([gates.len(), cells.len()], self.scratch(n, t), "scratch memory of this size");
        if y.is_empty() {
            return;
        }
        cells.fill(0.0);
        of_inputs.forward(x, gates);
        // The number may depend on the threads, since every row is computed by itself.
        let samples = n.div_ceil(rayon::current_num_threads()).max(1);
        let groups = gates.par_chunks_mut(samples * t * 4 * hidden);
        let groups = groups.zip(cells.par_chunks_mut(samples * 3 * hidden));
        groups.zip(y.par_chunks_mut(samples * t * hidden)).for_each(|((gates, cells), y)| {
            let samples = cells.len() / (3 * hidden);
            for position in 0..t {
                if position > 0 {
                    let states = (&y[(position - 1) * hidden..], t * hidden);
                    let gates = (&mut gates[position * 4 * hidden..], t * 4 * hidden);
                    of_states.add_unit(samples, states, gates);
                }
                for (sample, cells) in cells.chunks_exact_mut(3 * hidden).enumerate() {
                    let row = sample * t + position;
                    let gates = &mut gates[row * 4 * hidden..][..4 * hidden];
                    let y = &mut y[row * hidden..][..hidden];
                    let (cells, tanh_cells) = cells.split_at_mut(2 * hidden);
                    let (first, second) = cells.split_at_mut(hidden);
                    let (before, cells) =
                        if position.is_multiple_of(2) { (first, second) } else { (second, first) };
                    arch().dispatch(ForwardCell { gates, bias, before, cells, tanh_cells, y });
                }
            }
        });
    }

    /// The bytes of the weights.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.of_inputs.bytes() + self.of_states.bytes() + size_of_val(&*self.bias)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::lstm::Lstm as Reference;
    use crate::kernels::noise;

    #[test]
    fn close_to_the_one_in_f32_with_any_number_of_threads() {
        for (n, t, inputs, hidden) in [(1, 1, 3, 5), (3, 7, 8, 20), (9, 12, 5, 33)] {
            let (weight_ih, weight_hh) = (noise(4 * hidden * inputs, 1), noise(4 * hidden * hidden, 2));
            let weight_hh: Vec<f32> = weight_hh.iter().map(|weight| weight * 0.3).collect();
            let (bias, x) = (noise(4 * hidden, 3), noise(n * t * inputs, 4));
            let weights = LstmWeights { weight_ih: &weight_ih, weight_hh: &weight_hh, bias: &bias };
            let mut expected = vec![0.0; n * t * hidden];
            Reference::new(inputs, hidden).forward(weights, &x, &mut expected, n, t);
            let lstm = Lstm::new(weights, inputs, hidden);
            let found = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut scratch = lstm.scratch(n, t).map(|count| vec![f32::NAN; count]);
                let mut y = vec![f32::NAN; n * t * hidden];
                pool.install(|| lstm.forward(scratch.each_mut().map(Vec::as_mut_slice), &x, &mut y, n, t));
                y
            };
            let one = found(1);
            for (found, expected) in one.iter().zip(&expected) {
                assert!((found - expected).abs() < 0.03, "{found} {expected}");
            }
            assert!([2, 3].into_iter().all(|threads| found(threads) == one), "{n} {t} {inputs} {hidden}");
        }
    }
}
