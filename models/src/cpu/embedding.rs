//! Embedding layers.

use super::operator::{Backward, Forward, Operator, Reads};
use super::parameter::Parameter;
use crate::engine::UpdateMode;
use crate::error::ModelError;
use crate::kernels::embedding;
use crate::token::check_token;

/// Looks up a row of the weight for each token. The gradient of its input is 0.
#[derive(Debug)]
pub(crate) struct Embedding {
    /// The index of the weight, `[vocabulary, dim]`.
    pub(crate) weight: usize,
    pub(crate) vocabulary: usize,
    pub(crate) dim: usize,
    /// The tokens of the last batch.
    pub(crate) tokens: Vec<u32>,
}

impl Operator for Embedding {
    fn forward(&mut self, parameters: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        let Forward { x, y, .. } = pass;
        self.tokens.clear();
        for &token in x {
            self.tokens.push(check_token(token, self.vocabulary)?);
        }
        embedding::look_up(parameters[self.weight].values.values(), self.dim, &self.tokens, y);
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: false, output: false }
    }

    fn backward(&mut self, parameters: &mut [Parameter], pass: Backward<'_>) {
        let weight = &mut parameters[self.weight];
        match pass.update {
            UpdateMode::Fused(rate) => {
                let table = weight.begin_fused_step(rate);
                embedding::descend(&self.tokens, self.dim, pass.dy, rate, table);
            }
            UpdateMode::Accumulate => {
                embedding::gradient(&self.tokens, self.dim, pass.dy, weight.new_gradient().0);
            }
        }
        if let Some(dx) = pass.dx {
            dx.fill(0.0);
        }
    }
}
