//! Fully connected layers.

use super::operator::{Backward, Forward, Operator, Reads};
use super::parameter::Parameter;
use crate::engine::UpdateMode;
use crate::error::ModelError;
use crate::kernels::bias;
use crate::kernels::gemm::{Matrix, gemm_parallel};

/// `y = x W^T + b` for each row of `x`, and then `max(y, 0)` if `rectified`.
#[derive(Debug)]
pub(crate) struct Linear {
    /// The index of `W`, `[outputs, inputs]`.
    pub(crate) weight: usize,
    /// The index of `b`, `[outputs]`.
    pub(crate) bias: Option<usize>,
    pub(crate) inputs: usize,
    pub(crate) outputs: usize,
    /// Rows of one sample: 1, or the length of a sequence.
    pub(crate) rows: usize,
    pub(crate) rectified: bool,
}

impl Operator for Linear {
    fn forward(&mut self, parameters: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        let Forward { x, y, n, .. } = pass;
        let rows = n * self.rows;
        let weight = Matrix::new(parameters[self.weight].values.values(), self.outputs, self.inputs);
        let x = Matrix::new(x, rows, self.inputs);
        gemm_parallel(1.0, x, weight.transposed(), 0.0, y, self.outputs);
        match self.bias {
            Some(bias) => bias::add_row_bias(y, parameters[bias].values.values(), self.rectified),
            None if self.rectified => bias::rectify(y),
            None => {}
        }
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: true, output: self.rectified }
    }

    /// With `G` the gradient of the output: `G W` for `x`, `G^T x` for the weights, the sum of the rows of `G` for the bias.
    fn backward(&mut self, parameters: &mut [Parameter], pass: Backward<'_>) {
        let Backward { x, y, dy, dx, n, update, .. } = pass;
        let rows = n * self.rows;
        if self.rectified {
            bias::rectify_gradient(dy, y);
        }
        if let Some(bias) = self.bias {
            let (gradient, _) = parameters[bias].new_gradient();
            bias::row_bias_gradient(dy, gradient);
        }
        let g = Matrix::new(dy, rows, self.outputs);
        let weight = &mut parameters[self.weight];
        // Before a fused step changes the weights.
        if let Some(dx) = dx {
            let w = Matrix::new(weight.values.values(), self.outputs, self.inputs);
            gemm_parallel(1.0, g, w, 0.0, dx, self.inputs);
        }
        let x = Matrix::new(x, rows, self.inputs);
        match update {
            // Directly into the weights, without storing their gradient.
            UpdateMode::Fused(rate) => {
                gemm_parallel(-rate, g.transposed(), x, 1.0, weight.begin_fused_step(rate), self.inputs);
            }
            UpdateMode::Accumulate => {
                gemm_parallel(1.0, g.transposed(), x, 0.0, weight.new_gradient().0, self.inputs);
            }
        }
    }
}
