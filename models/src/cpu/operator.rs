//! Operators: layers on the CPU.

use super::parameter::Parameter;
use crate::engine::UpdateMode;
use crate::error::ModelError;
use crate::mode::Mode;

/// A layer on the CPU. It owns its scratch memory, which grows once to the size for the largest batch. It does not own its
/// parameters but their indices in the list of all parameters, which every call gets.
pub(crate) trait Operator: Send + Sync {
    /// Computes the layer's output.
    ///
    /// # Errors
    /// Values that this layer cannot take, although their shape is right.
    fn forward(&mut self, parameters: &mut [Parameter], pass: Forward<'_>) -> Result<(), ModelError>;

    /// Which values of the forward pass the backward pass reads again.
    fn reads(&self) -> Reads;

    /// Propagates a gradient back through the layer, after a forward pass of the same samples in [`Mode::Training`].
    fn backward(&mut self, parameters: &mut [Parameter], pass: Backward<'_>);
}

/// Which values of a forward pass the backward pass reads again. The memory of the others is reused for gradients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reads {
    pub(crate) input: bool,
    pub(crate) output: bool,
}

/// One forward pass through one layer.
pub(crate) struct Forward<'a> {
    /// The layer's input.
    pub(crate) x: &'a [f32],
    /// The layer's output, to be overwritten in full.
    pub(crate) y: &'a mut [f32],
    /// The number of samples.
    pub(crate) n: usize,
    pub(crate) mode: Mode,
}

/// The part of a backward pass that all its layers share.
pub(crate) struct PassContext<'a> {
    /// The number of samples.
    pub(crate) n: usize,
    /// What is done with the gradients of parameters.
    pub(crate) update: UpdateMode,
    /// Memory for gradients; a buffer taken from here has to be returned here.
    pub(crate) free: &'a mut Vec<Vec<f32>>,
}

/// One backward pass through one layer.
pub(crate) struct Backward<'a> {
    /// The layer's input; undefined unless the layer [reads](Operator::reads) it again.
    pub(crate) x: &'a [f32],
    /// The layer's output; undefined unless the layer reads it again.
    pub(crate) y: &'a [f32],
    /// The gradient with respect to `y`. The layer may use it as scratch memory.
    pub(crate) dy: &'a mut [f32],
    /// The gradient with respect to `x`, to be overwritten in full; `None` if no earlier layer has parameters.
    pub(crate) dx: Option<&'a mut [f32]>,
    /// The number of samples.
    pub(crate) n: usize,
    /// What is done with the gradients of parameters.
    pub(crate) update: UpdateMode,
    /// Memory for gradients, as in [`PassContext`].
    pub(crate) free: &'a mut Vec<Vec<f32>>,
}
