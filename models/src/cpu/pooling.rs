//! Pooling layers.

use super::operator::{Backward, Forward, Operator, Reads};
use super::parameter::Parameter;
use crate::error::ModelError;
use crate::kernels::pooling::{AveragePool, MaxPool};

impl Operator for MaxPool {
    fn forward(&mut self, _: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        MaxPool::forward(self, pass.x, pass.y, pass.n);
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: false, output: false }
    }

    fn backward(&mut self, _: &mut [Parameter], pass: Backward<'_>) {
        if let Some(dx) = pass.dx {
            MaxPool::backward(self, pass.dy, dx, pass.n);
        }
    }
}

impl Operator for AveragePool {
    fn forward(&mut self, _: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        AveragePool::forward(self, pass.x, pass.y, pass.n);
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: false, output: false }
    }

    fn backward(&mut self, _: &mut [Parameter], pass: Backward<'_>) {
        if let Some(dx) = pass.dx {
            AveragePool::backward(self, pass.dy, dx, pass.n);
        }
    }
}

/// The mean over each channel, of `pixels` pixels.
pub(crate) struct GlobalAveragePool {
    pub(crate) pixels: usize,
}

impl Operator for GlobalAveragePool {
    fn forward(&mut self, _: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        let Forward { x, y, .. } = pass;
        for (y, plane) in y.iter_mut().zip(x.chunks_exact(self.pixels)) {
            *y = plane.iter().sum::<f32>() / self.pixels as f32;
        }
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: false, output: false }
    }

    fn backward(&mut self, _: &mut [Parameter], pass: Backward<'_>) {
        if let Some(dx) = pass.dx {
            for (plane, gradient) in dx.chunks_exact_mut(self.pixels).zip(pass.dy) {
                plane.fill(*gradient / self.pixels as f32);
            }
        }
    }
}
