//! Attention layers.

use super::operator::{Backward, Forward, Operator, Reads};
use super::parameter::Parameter;
use crate::error::ModelError;
use crate::kernels::attention::Attention;

impl Operator for Attention {
    fn forward(&mut self, _: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        Attention::forward(self, pass.x, pass.y, pass.n);
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: true, output: false }
    }

    fn backward(&mut self, _: &mut [Parameter], pass: Backward<'_>) {
        if let Some(dx) = pass.dx {
            Attention::backward(self, pass.x, pass.dy, dx, pass.n);
        }
    }
}
