//! Networks: an architecture with parameters, on a device.

use std::collections::BTreeSet;

use crate::architecture::{Architecture, ArchitectureError, ParameterKind};
use crate::batch::Batch;
#[cfg(any(test, feature = "cuda"))]
use crate::candle::CandleEngine;
use crate::correction::Correction;
use crate::cpu::CpuEngine;
use crate::device::{Backend, Kind};
use crate::engine::{Engine, OutputGradients, UpdateMode};
use crate::error::ModelError;
use crate::int8::Int8Engine;
use crate::mode::Mode;
use crate::optimizer::{Optimizer, OptimizerState};
use crate::params::{Array, Mismatch, ParamSet, element_count};

/// An architecture with parameters, ready to be run, on the CPU or on a GPU.
///
/// A forward pass leaves three outputs: the extractor's features, the projection's representation and the head's logits.
/// A loss is a function of these; its gradients by them, given to [`Network::backward`], become gradients of the
/// parameters. So an objective needs to know nothing about layers or devices:
///
/// ```
/// use models::{Architecture, Array, Backend, Masks, Mode, Network, OutputGradients, ParamSet};
///
/// let architecture = Architecture::by_name("linear", &[2], 2)?;
/// let mut params = ParamSet::new();
/// params.insert("head.fc.weight", Array::new([2, 2], vec![1.0, 0.0, 0.0, 1.0])?);
/// params.insert("head.fc.bias", Array::zeros([2]));
/// let mut network = Network::new(&architecture, &params, &Backend::cpu())?;
///
/// // The network has no dropout, so that any masks will do.
/// network.forward(&[3.0, -1.0], &[1, 2], Mode::Training(Masks::new([0; 32], 0)))?;
/// assert_eq!(network.logits(), [3.0, -1.0]);
/// // The loss is the square of the first logit.
/// network.backward(OutputGradients { logits: Some(&[2.0 * 3.0, 0.0]), ..OutputGradients::default() })?;
/// assert_eq!(network.gradients()?.get("head.fc.weight").map(Array::values), Some(&[18.0, -6.0, 0.0, 0.0][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Network {
    architecture: Architecture,
    backend: Backend,
    /// Predictions per sample.
    predictions: usize,
    has_frozen_extractor: bool,
    engine: Box<dyn Engine>,
}

impl Network {
    /// A network of this architecture with these parameters.
    ///
    /// On the CPU the parameters are copied only when training changes them: networks that only evaluate share them.
    ///
    /// # Errors
    /// [`ModelError::Architecture`], [`ModelError::Mismatch`] if the parameters do not fit it or a frozen one is not at hand, [`ModelError::Candle`] if
    /// the device fails.
    pub fn new(
        architecture: &Architecture,
        params: &ParamSet,
        backend: &Backend,
    ) -> Result<Self, ModelError> {
        if architecture.is_opaque() {
            return Err(ArchitectureError::Opaque { name: architecture.name.clone() }.into());
        }
        check_fit(architecture, params)??;
        let specs = architecture.all_parameter_specs()?;
        let params = &*architecture.compose(params)?;
        let engine: Box<dyn Engine> = match &backend.kind {
            Kind::Cpu => Box::new(CpuEngine::new(architecture, &specs, params)?),
            Kind::Int8 => Box::new(Int8Engine::new(architecture, params)?),
            #[cfg(any(test, feature = "cuda"))]
            Kind::Candle(device) => Box::new(CandleEngine::new(architecture, &specs, params, device)?),
        };
        let predictions = architecture.predictions()?;
        let has_frozen_extractor = architecture.is_part_frozen("extractor");
        let (architecture, backend) = (architecture.clone(), backend.clone());
        Ok(Self { architecture, backend, predictions, has_frozen_extractor, engine })
    }

    /// Replaces all parameters that are learned, and resets the optimiser and the correction.
    ///
    /// # Errors
    /// [`ModelError::Mismatch`] if they do not fit, in which case none is replaced; [`ModelError::Candle`] if the device fails.
    pub fn load(&mut self, params: &ParamSet) -> Result<(), ModelError> {
        self.check_fit(params)?;
        self.engine.load(params)
    }

    /// All parameters that are learned. Later steps do not change them.
    ///
    /// # Errors
    /// [`ModelError::Candle`] if the device fails.
    pub fn params(&self) -> Result<ParamSet, ModelError> {
        self.engine.params()
    }

    /// Runs samples `x` of the shape `[n, ...]` through all three parts. In [`Mode::Training`] batch normalisation updates its
    /// running statistics.
    ///
    /// # Errors
    /// [`ModelError::Input`] for samples of another shape, [`ModelError::Token`] for tokens that are not in the
    /// vocabulary, [`ModelError::OneValue`] for too small a batch in training, [`ModelError::Candle`] if the device fails.
    ///
    /// # Panics
    /// If the number of values in `x` is not the product of the shape.
    pub fn forward(&mut self, x: &[f32], shape: &[usize], mode: Mode) -> Result<(), ModelError> {
        if shape.is_empty() || shape[1..] != self.architecture.input {
            return Err(ModelError::Input {
                expected: self.architecture.input.clone(),
                found: shape.get(1..).unwrap_or_default().to_vec(),
            });
        }
        assert_eq!(Some(x.len()), element_count(shape), "as many values as the shape says");
        self.engine.forward(x, shape, mode)
    }

    /// [`Network::forward`] of a batch. If the extractor is frozen and the batch [has its features](Batch::with_features), the
    /// pass begins with them.
    ///
    /// # Errors
    /// As [`Network::forward`]; [`ModelError::Input`] for features of another length.
    pub fn forward_batch(&mut self, batch: &Batch, mode: Mode) -> Result<(), ModelError> {
        let Some(features) = batch.features().filter(|_| self.has_frozen_extractor) else {
            return self.forward(batch.x(), batch.shape(), mode);
        };
        let shape = self.architecture.feature_shape()?;
        if element_count(&shape).map(|each| each * batch.len()) != Some(features.len()) {
            return Err(ModelError::Input { expected: shape, found: vec![features.len() / batch.len()] });
        }
        self.engine.forward_from(features, batch.len(), mode)
    }

    /// The representation of a batch in [`Mode::Evaluation`]. Labels are ignored.
    ///
    /// # Errors
    /// As [`Network::forward`].
    pub fn represent(&mut self, batch: &Batch) -> Result<&[f32], ModelError> {
        self.forward_batch(batch, Mode::Evaluation)?;
        Ok(self.representation())
    }

    /// The extractor's output for the last batch, `[n, ...]`.
    #[must_use]
    pub fn features(&self) -> &[f32] {
        self.engine.outputs()[0]
    }

    /// The projection's output for the last batch, `[n, ...]`; the features themselves if there is no projection.
    #[must_use]
    pub fn representation(&self) -> &[f32] {
        self.engine.outputs()[1]
    }

    /// The head's output for the last batch, `[n, classes]`; with predictions at each of `t` positions `[n * t, classes]`, sample
    /// by sample.
    #[must_use]
    pub fn logits(&self) -> &[f32] {
        self.engine.outputs()[2]
    }

    /// Propagates the gradients of a loss with respect to the outputs of the last batch, which was run in [`Mode::Training`],
    /// back to the parameters that are learned, and no further than to the first of them; [`Network::gradients`] has the result.
    ///
    /// After a pass in [`Mode::Evaluation`] the result is wrong if the network has batch normalisation or dropout: their state
    /// is that of the last training pass.
    ///
    /// # Errors
    /// [`ModelError::Candle`] if the device fails.
    ///
    /// # Panics
    /// If a gradient is not as long as its output.
    pub fn backward(&mut self, gradients: OutputGradients<'_>) -> Result<(), ModelError> {
        self.backward_with(gradients, UpdateMode::Accumulate)
    }

    /// [`Network::backward`] with a choice of what happens to the gradients of parameters.
    pub(crate) fn backward_with(
        &mut self,
        gradients: OutputGradients<'_>,
        update: UpdateMode,
    ) -> Result<(), ModelError> {
        self.engine.backward(gradients, update)
    }

    /// The gradients of the last backward pass, by the names of the parameters; 0 for buffers and for parameters that the pass
    /// did not reach.
    ///
    /// They are defined after [`Network::backward`] and [`Learner::gradient`](crate::Learner::gradient), but not after
    /// [`Learner::step`](crate::Learner::step): a plain step applies gradients without storing them.
    ///
    /// # Errors
    /// [`ModelError::Candle`] if the device fails.
    pub fn gradients(&mut self) -> Result<ParamSet, ModelError> {
        self.engine.gradients()
    }

    /// The values of one parameter. Later steps do not change them.
    ///
    /// # Errors
    /// [`ModelError::Mismatch`] if no parameter has this name, [`ModelError::Candle`] if the device fails.
    pub fn parameter(&self, name: &str) -> Result<Array, ModelError> {
        self.engine.parameter(name)?.ok_or_else(|| Mismatch::missing(name).into())
    }

    /// Adds to the gradient of a parameter after a backward pass and before the step.
    ///
    /// # Panics
    /// If the gradient is not as long as the parameter.
    pub(crate) fn add_gradient(&mut self, name: &str, gradient: &[f32]) -> Result<(), ModelError> {
        self.engine.add_gradient(name, gradient)?.ok_or_else(|| Mismatch::missing(name).into())
    }

    /// Corrects the gradients of all later steps, until parameters are loaded.
    pub(crate) fn correct(&mut self, correction: &Correction) -> Result<(), ModelError> {
        let specs = self.architecture.parameter_specs()?;
        let sets = [correction.anchor.as_ref().map(|(_, anchor)| anchor), correction.shift.as_ref()];
        for set in sets.into_iter().flatten() {
            for spec in specs.iter().filter(|spec| spec.kind != ParameterKind::Buffer) {
                let array = set.get(&spec.name).ok_or_else(|| Mismatch::missing(&spec.name))?;
                if array.shape() != spec.shape {
                    return Err(Mismatch::shape(&spec.name, &spec.shape, array.shape()).into());
                }
            }
        }
        self.engine.correct(correction)
    }

    /// Names the parameters that weight decay spares in later steps.
    pub(crate) fn spare(&mut self, spared: &BTreeSet<String>) {
        self.engine.spare(spared);
    }

    /// One step of the optimiser along the gradients that the last backward pass stored, clipped to the norm `clip`.
    pub(crate) fn step(&mut self, optimizer: &Optimizer, clip: Option<f64>) -> Result<(), ModelError> {
        self.engine.step(optimizer, clip)
    }

    /// One step of the optimiser along these gradients.
    pub(crate) fn step_along(
        &mut self,
        optimizer: &Optimizer,
        gradients: &ParamSet,
    ) -> Result<(), ModelError> {
        self.check_fit(gradients)?;
        self.engine.step_along(optimizer, gradients)
    }

    /// What the optimiser keeps from step to step.
    pub(crate) fn optimizer_state(&self) -> Result<OptimizerState, ModelError> {
        self.engine.optimizer_state()
    }

    /// Gives the optimiser what it has kept elsewhere.
    pub(crate) fn restore_optimizer(&mut self, state: &OptimizerState) -> Result<(), ModelError> {
        let specs = self.architecture.parameter_specs()?;
        for (name, kept) in state.moments.iter().flatten() {
            match specs.iter().find(|spec| spec.name == name) {
                None => return Err(Mismatch::extra(name).into()),
                Some(spec) if spec.shape != kept.shape() => {
                    return Err(Mismatch::shape(name, &spec.shape, kept.shape()).into());
                }
                Some(_) => {}
            }
        }
        self.engine.restore_optimizer(state)
    }

    /// Checks that a batch has targets for all predictions, which are those of the network's task.
    ///
    /// # Errors
    /// As [`Task::check`](crate::Task::check).
    pub fn check_labels(&self, batch: &Batch) -> Result<(), ModelError> {
        let Architecture { task, classes, .. } = self.architecture;
        task.check(batch.targets(), batch.len() * self.predictions, classes)
    }

    /// The network's architecture.
    #[must_use]
    pub fn architecture(&self) -> &Architecture {
        &self.architecture
    }

    /// The device that the network runs on.
    #[must_use]
    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    fn check_fit(&self, found: &ParamSet) -> Result<(), ModelError> {
        Ok(check_fit(&self.architecture, found)??)
    }
}

/// Checks that parameters fit an architecture. The outer error is about the architecture, the inner one about the parameters.
pub(crate) fn check_fit(
    architecture: &Architecture,
    found: &ParamSet,
) -> Result<Result<(), Mismatch>, ArchitectureError> {
    let mut specs = architecture.parameter_specs()?;
    specs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(check_shapes(specs.iter().map(|spec| (spec.name.as_str(), spec.shape.as_slice())), found))
}

/// Compares names and shapes: first the expected ones, then extra ones.
fn check_shapes<'a>(
    expected: impl Iterator<Item = (&'a str, &'a [usize])> + Clone,
    found: &ParamSet,
) -> Result<(), Mismatch> {
    for (name, shape) in expected.clone() {
        let array = found.get(name).ok_or_else(|| Mismatch::missing(name))?;
        if array.shape() != shape {
            return Err(Mismatch::shape(name, shape, array.shape()));
        }
    }
    let mut expected = expected.map(|(name, _)| name);
    // All expected names were found, so that any difference between the two ordered lists is an extra name.
    match found.names().find(|&name| expected.next() != Some(name)) {
        Some(name) => Err(Mismatch::extra(name)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
