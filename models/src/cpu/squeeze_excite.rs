//! Squeeze-and-excitation blocks.

use super::operator::{Backward, Forward, Operator, PassContext, Reads};
use super::parameter::Parameter;
use super::sequence::Sequence;
use crate::error::ModelError;
use crate::kernels::channels;

/// Each channel of `x` times what `body` makes of the means of all channels.
pub(crate) struct SqueezeExcite {
    body: Sequence,
    /// Pixels of a channel.
    pixels: usize,
    /// The means of the last batch.
    means: Vec<f32>,
}

impl SqueezeExcite {
    /// The body takes and gives one value for each channel.
    pub(crate) fn new(body: Sequence, pixels: usize) -> Self {
        Self { body, pixels, means: Vec::new() }
    }
}

impl Operator for SqueezeExcite {
    fn forward(&mut self, parameters: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError> {
        let Forward { x, y, n, mode } = pass;
        self.means.resize(x.len() / self.pixels, 0.0);
        channels::means(x, &mut self.means, self.pixels);
        self.body.forward(parameters, &self.means, n, mode)?;
        channels::scale(x, self.body.output(&self.means), y, self.pixels);
        Ok(())
    }

    fn reads(&self) -> Reads {
        Reads { input: true, output: false }
    }

    fn backward(&mut self, parameters: &mut [Parameter], pass: Backward<'_>) {
        let Backward { x, dy, mut dx, n, update, free, .. } = pass;
        let mut gradient = free.pop().unwrap_or_default();
        gradient.resize(self.means.len(), 0.0);
        channels::products(x, dy, &mut gradient, self.pixels);
        if let Some(dx) = &mut dx {
            channels::scale(dy, self.body.output(&self.means), dx, self.pixels);
        }
        let context = &mut PassContext { n, update, free };
        let gradient = self.body.backward(parameters, &self.means, gradient, dx.is_some(), context);
        if let Some(dx) = dx {
            channels::add_mean_gradient(&gradient, dx, self.pixels);
        }
        free.push(gradient);
    }
}
