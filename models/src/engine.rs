//! Engines: what a network runs on, and the values it exchanges with them.

use std::collections::BTreeSet;
use std::fmt;

use crate::correction::Correction;
use crate::error::ModelError;
use crate::mode::Mode;
use crate::optimizer::{Optimizer, OptimizerState};
use crate::params::{Array, ParamSet};

/// The gradients of a loss with respect to a network's outputs, each as long as the output; `None` where the loss does not
/// depend on it.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutputGradients<'a> {
    /// With respect to [`Network::features`](crate::Network::features).
    pub features: Option<&'a [f32]>,
    /// With respect to [`Network::representation`](crate::Network::representation).
    pub representation: Option<&'a [f32]>,
    /// With respect to [`Network::logits`](crate::Network::logits).
    pub logits: Option<&'a [f32]>,
}

/// What a backward pass does with the gradients of parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum UpdateMode {
    /// Stores all of them, for the optimiser or the caller.
    Accumulate,
    /// Where that saves a pass over memory, subtracts the gradient times this learning rate from the parameter at once and
    /// does not store it. Stores the others.
    Fused(f32),
}

/// A network's parameters on one kind of processor, and the passes through its layers.
///
/// The caller has checked names and shapes against the architecture: sets of parameters and gradients fit. An engine is made with
/// all parameters; afterwards sets hold those that are learned, and the frozen ones never change. Every method can
/// fail with [`ModelError::Candle`] if the device does.
pub(crate) trait Engine: fmt::Debug + Send + Sync {
    /// Replaces all parameters that are learned, and resets the optimiser and the correction.
    fn load(&mut self, params: &ParamSet) -> Result<(), ModelError>;

    /// All parameters that are learned. Later steps do not change them.
    fn params(&self) -> Result<ParamSet, ModelError>;

    /// One parameter; `None` if no parameter has this name.
    fn parameter(&self, name: &str) -> Result<Option<Array>, ModelError>;

    /// Runs a batch of samples `x`, of the shape `[n, ...]`, through extractor, projection and head.
    fn forward(&mut self, x: &[f32], shape: &[usize], mode: Mode) -> Result<(), ModelError>;

    /// [`Engine::forward`] of `n` samples from what the extractor, which is frozen, has made of them.
    fn forward_from(&mut self, features: &[f32], n: usize, mode: Mode) -> Result<(), ModelError>;

    /// The outputs of extractor, projection and head for the last batch.
    fn outputs(&self) -> [&[f32]; 3];

    /// Propagates the gradients of the three outputs of the last batch back to the parameters.
    fn backward(&mut self, gradients: OutputGradients<'_>, update: UpdateMode) -> Result<(), ModelError>;

    /// The gradients of the last backward pass, by name; zeros for parameters that it did not reach.
    fn gradients(&mut self) -> Result<ParamSet, ModelError>;

    /// Adds to the gradient of one parameter, before [`Engine::step`]; `None` if no parameter has this name.
    fn add_gradient(&mut self, name: &str, gradient: &[f32]) -> Result<Option<()>, ModelError>;

    /// Corrects the gradients of all later steps, until parameters are loaded. The correction need not contain buffers.
    fn correct(&mut self, correction: &Correction) -> Result<(), ModelError>;

    /// One step of the optimiser along the gradients of the last backward pass that were not applied during it. If their
    /// common norm exceeds `clip`, they are scaled down to it first.
    fn step(&mut self, optimizer: &Optimizer, clip: Option<f64>) -> Result<(), ModelError>;

    /// Names the parameters that weight decay spares in all later steps, in place of those named before.
    fn spare(&mut self, spared: &BTreeSet<String>);

    /// One step of the optimiser along the given gradients.
    fn step_along(&mut self, optimizer: &Optimizer, gradients: &ParamSet) -> Result<(), ModelError>;

    /// What the optimiser keeps from step to step.
    fn optimizer_state(&self) -> Result<OptimizerState, ModelError>;

    /// Gives the optimiser what it has kept elsewhere. The caller has checked that it fits the parameters.
    fn restore_optimizer(&mut self, state: &OptimizerState) -> Result<(), ModelError>;
}
