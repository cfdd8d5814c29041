//! What every layer can do.

use super::parameter::{Descent, Parameter};
use crate::error::ModelError;
use crate::mode::Mode;

/// What a forward pass ends with: the samples may not be what a layer takes.
pub(super) type Outcome = Result<(), ModelError>;

/// A layer on the CPU. It owns its scratch memory, which grows with the largest batch once; its parameters are those at
/// its indices in the list that every call gets.
pub(crate) trait Operator: Send + Sync {
    /// Writes the layer's output for `n` samples `x` to all of `y`.
    ///
    /// # Errors
    /// Samples that this layer cannot take, though their shape fits.
    fn forward(
        &mut self,
        parameters: &mut [Parameter],
        x: &[f32],
        y: &mut [f32],
        n: usize,
        mode: Mode,
    ) -> Outcome;

    /// What of a forward pass the backward pass reads again.
    fn reads(&self) -> Reads;

    /// Propagates a gradient back through the layer, after a forward pass of the same samples in [`Mode::Training`].
    fn backward(&mut self, parameters: &mut [Parameter], pass: Backward<'_>);
}

/// What of a forward pass a backward pass reads again. Memory that nobody reads again is used for gradients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads {
    /// What the layer got.
    pub(crate) input: bool,
    /// What it gave.
    pub(crate) output: bool,
}

/// One backward pass through one layer.
pub(crate) struct Backward<'a> {
    /// What the layer got; nothing, unless it [reads](Operator::reads) that again.
    pub(crate) x: &'a [f32],
    /// What it gave; nothing, unless it reads that again.
    pub(crate) y: &'a [f32],
    /// The gradient by `y`. The layer may use it as scratch memory.
    pub(crate) dy: &'a mut [f32],
    /// Where the gradient by `x` is written to, all of it; absent if nothing before the layer learns.
    pub(crate) dx: Option<&'a mut [f32]>,
    /// The number of samples.
    pub(crate) n: usize,
    /// What becomes of the parameters' gradients.
    pub(crate) descent: Descent,
}
