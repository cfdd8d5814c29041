//! Dropout layers.

use super::operator::{Backward, Forward, Operator, Reads};
use super::parameter::Parameter;
use crate::dropout_masks::scale;
use crate::error::ModelError;
use crate::mode::Mode;

/// Sets values to 0 in training and scales the others.
#[derive(Debug)]
pub(crate) struct Dropout {
    /// The layer's label, from which its masks are derived.
    label: String,
    rate: f64,
    /// The factor of each value of the last batch.
    factors: Vec<f32>,
}

impl Dropout {
    pub(crate) fn new(label: &str, rate: f64) -> Self {
        Self { label: label.to_owned(), rate, factors: Vec::new() }
    }
}

impl Operator for Dropout {
    fn forward(&mut self, _: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        let Forward { x, y, mode, .. } = pass;
        match mode {
            Mode::Training(masks) => {
                let scale = scale(self.rate);
                let kept = masks.kept(&self.label, self.rate).take(x.len());
                self.factors.clear();
                self.factors.extend(kept.map(|kept| if kept { scale } else { 0.0 }));
                for ((y, x), factor) in y.iter_mut().zip(x).zip(&self.factors) {
                    *y = x * factor;
                }
            }
            Mode::Evaluation => y.copy_from_slice(x),
        }
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: false, output: false }
    }

    fn backward(&mut self, _: &mut [Parameter], pass: Backward<'_>) {
        if let Some(dx) = pass.dx {
            for ((dx, dy), factor) in dx.iter_mut().zip(pass.dy).zip(&self.factors) {
                *dx = *dy * factor;
            }
        }
    }
}
