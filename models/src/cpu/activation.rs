//! Activation functions as layers of their own. A rectifier after a convolution, linear layer, pooling, batch or group normalisation or residual
//! sum is part of that.

use super::operator::{Backward, Forward, Operator, Reads};
use super::parameter::Parameter;
use crate::error::ModelError;
use crate::kernels::bias;
use crate::kernels::elementwise::Activation;

/// `max(x, 0)`.
#[derive(Debug)]
pub(crate) struct Relu;

impl Operator for Relu {
    fn forward(&mut self, _: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        let Forward { x, y, .. } = pass;
        y.copy_from_slice(x);
        bias::rectify(y);
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: false, output: true }
    }

    fn backward(&mut self, _: &mut [Parameter], pass: Backward<'_>) {
        if let Some(dx) = pass.dx {
            bias::rectify_gradient(pass.dy, pass.y);
            dx.copy_from_slice(pass.dy);
        }
    }
}

impl Operator for Activation {
    fn forward(&mut self, _: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        Activation::forward(*self, pass.x, pass.y);
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: true, output: false }
    }

    fn backward(&mut self, _: &mut [Parameter], pass: Backward<'_>) {
        if let Some(dx) = pass.dx {
            Activation::backward(*self, pass.x, pass.dy, dx);
        }
    }
}
