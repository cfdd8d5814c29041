//! Rectifiers that are a layer of their own: not part of the layer before them.

use super::operator::{Backward, Operator, Outcome, Reads};
use super::parameter::Parameter;
use crate::kernels::bias;
use crate::mode::Mode;

/// `max(x, 0)`.
#[derive(Debug)]
pub(crate) struct Rectifier;

impl Operator for Rectifier {
    fn forward(&mut self, _: &mut [Parameter], x: &[f32], y: &mut [f32], _n: usize, _mode: Mode) -> Outcome {
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
