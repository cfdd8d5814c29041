//! Pooling layers.

use super::operator::{Backward, Mode, Operator};
use super::parameter::Parameter;
use crate::kernels::pooling::MaxPool;

/// The maximum over windows, and then `max(y, 0)` if the kernel was made so.
pub(crate) struct MaxPooling(pub(crate) MaxPool);

impl Operator for MaxPooling {
    fn forward(&mut self, _: &mut [Parameter], x: &[f32], y: &mut [f32], n: usize, _mode: Mode) {
        self.0.forward(x, y, n);
    }

    fn backward(&mut self, _: &mut [Parameter], pass: Backward<'_>) {
        if let Some(dx) = pass.dx {
            self.0.backward(pass.dy, dx, pass.n);
        }
    }
}
