//! Pooling layers.

use super::operator::{Backward, Operator, Outcome, Reads};
use super::parameter::Parameter;
use crate::kernels::pooling::{AveragePool, MaxPool};
use crate::mode::Mode;

/// The maximum over windows, and then `max(y, 0)` if the kernel was made so.
pub(crate) struct MaxPooling(pub(crate) MaxPool);

impl Operator for MaxPooling {
    fn forward(&mut self, _: &mut [Parameter], x: &[f32], y: &mut [f32], n: usize, _mode: Mode) -> Outcome {
        self.0.forward(x, y, n);
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: false, output: false }
    }

    fn backward(&mut self, _: &mut [Parameter], pass: Backward<'_>) {
        if let Some(dx) = pass.dx {
            self.0.backward(pass.dy, dx, pass.n);
        }
    }
}

/// The mean over windows.
pub(crate) struct AveragePooling(pub(crate) AveragePool);

impl Operator for AveragePooling {
    fn forward(&mut self, _: &mut [Parameter], x: &[f32], y: &mut [f32], n: usize, _mode: Mode) -> Outcome {
        self.0.forward(x, y, n);
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: false, output: false }
    }

    fn backward(&mut self, _: &mut [Parameter], pass: Backward<'_>) {
        if let Some(dx) = pass.dx {
            self.0.backward(pass.dy, dx, pass.n);
        }
    }
}

/// The mean over each plane of so many places.
pub(crate) struct GlobalAveragePooling {
    pub(crate) places: usize,
}

impl Operator for GlobalAveragePooling {
    fn forward(&mut self, _: &mut [Parameter], x: &[f32], y: &mut [f32], _n: usize, _mode: Mode) -> Outcome {
        for (y, plane) in y.iter_mut().zip(x.chunks_exact(self.places)) {
            *y = plane.iter().sum::<f32>() / self.places as f32;
        }
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: false, output: false }
    }

    fn backward(&mut self, _: &mut [Parameter], pass: Backward<'_>) {
        if let Some(dx) = pass.dx {
            for (plane, gradient) in dx.chunks_exact_mut(self.places).zip(pass.dy) {
                plane.fill(*gradient / self.places as f32);
            }
        }
    }
}
