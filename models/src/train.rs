//! Training: a network with an optimiser.

use std::collections::BTreeSet;

use crate::architecture::{Architecture, DecayOn};
use crate::batch::Batch;
use crate::correction::Correction;
use crate::device::Backend;
use crate::dropout_masks::Masks;
use crate::engine::{OutputGradients, UpdateMode};
use crate::error::ModelError;
use crate::mode::Mode;
use crate::network::Network;
use crate::optimizer::{Optimizer, OptimizerState};
use crate::params::ParamSet;
use crate::spinning::with_spinning_threads;

/// A network in training, by steps of an optimiser along the gradient of its task's loss or of another.
///
/// Deterministic on the CPU: the same parameters and batches give the same bytes for any number of threads.
#[derive(Debug)]
pub struct Learner {
    network: Network,
    optimizer: Optimizer,
    /// The norm to which gradients are clipped.
    clip: Option<f64>,
    /// Steps since the parameters were loaded.
    steps: u64,
    /// The seed of dropout's masks, if it was set.
    seed: Option<[u8; 32]>,
    has_dropout: bool,
    /// Training passes since the learner was created.
    passes: u64,
    /// The multiply-adds of a forward pass of one sample.
    multiply_adds: u64,
    /// The gradients of the loss, kept to reuse their memory.
    by: LossGradients,
}

/// An additional term of the loss, a function of the representation. It overwrites the vector with its gradient, which is as
/// long as the representation, and returns its value.
pub type Term<'a> = dyn FnMut(&[f32], &mut Vec<f32>) -> f32 + Send + 'a;

/// A loss in place of the task's, a function of the network's outputs for a batch and of its parameters. It writes its
/// gradients and returns its value.
pub type Loss<'a> = dyn FnMut(&Network, &mut LossGradients) -> Result<f32, ModelError> + Send + 'a;

/// The gradients of a loss, which has to overwrite all of them: they hold those of an earlier batch.
#[derive(Clone, Debug, Default)]
pub struct LossGradients {
    /// With respect to [`Network::representation`], as long; empty if the loss does not depend on it.
    pub representation: Vec<f32>,
    /// With respect to [`Network::logits`], as long.
    pub logits: Vec<f32>,
    /// With respect to the parameters on which the loss depends directly: names and gradients.
    pub parameters: Vec<(String, Vec<f32>)>,
}

impl Learner {
    /// A learner that starts from these parameters; the optimiser has kept nothing yet.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub fn new(
        architecture: &Architecture,
        params: &ParamSet,
        optimizer: impl Into<Optimizer>,
        backend: &Backend,
    ) -> Result<Self, ModelError> {
        let network = Network::new(architecture, params, backend)?;
        let multiply_adds = architecture.multiply_adds()?;
        let has_dropout = architecture.has_dropout();
        Ok(Self {
            network,
            optimizer: optimizer.into(),
            clip: None,
            steps: 0,
            seed: None,
            has_dropout,
            passes: 0,
            multiply_adds,
            by: LossGradients::default(),
        })
    }

    /// [`Learner::new`] in the memory of a finished learner, if that had the same architecture on the CPU: simulated clients that
    /// take turns on one thread share one network's buffers.
    ///
    /// # Errors
    /// As [`Learner::new`].
    pub fn reusing(
        done: Option<Self>,
        architecture: &Architecture,
        params: &ParamSet,
        optimizer: impl Into<Optimizer>,
        backend: &Backend,
    ) -> Result<Self, ModelError> {
        let on_cpu = |backend: &Backend| !backend.runs_candle();
        let suits = |done: &Self| {
            done.network.architecture() == architecture && on_cpu(backend) && on_cpu(done.network.backend())
        };
        let Some(mut done) = done.filter(suits) else {
            return Self::new(architecture, params, optimizer, backend);
        };
        done.load(params)?;
        done.network.spare(&BTreeSet::new());
        // All fields are named, so that a new one cannot be forgotten here.
        let Self {
            network,
            optimizer: _,
            clip: _,
            steps: _,
            seed: _,
            has_dropout,
            passes: _,
            multiply_adds,
            mut by,
        } = done;
        by.representation.clear();
        by.logits.clear();
        by.parameters.clear();
        let optimizer = optimizer.into();
        Ok(Self {
            network,
            optimizer,
            clip: None,
            steps: 0,
            seed: None,
            has_dropout,
            passes: 0,
            multiply_adds,
            by,
        })
    }

    /// Sets the seed of dropout's masks, which should differ for each client, round and learner. A network with dropout cannot
    /// be trained without it. Each training pass has its own masks.
    #[must_use]
    pub fn with_seed(self, seed: [u8; 32]) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// One step of gradient descent on the mean loss over a batch. Returns the loss before the step.
    ///
    /// # Errors
    /// [`ModelError::Diverged`] if the loss is not finite, in which case parameters do not change (but running statistics may
    /// have); [`ModelError::Input`], [`ModelError::Token`], [`ModelError::Label`], [`ModelError::Labels`] or
    /// [`ModelError::OneValue`] if the batch does not fit; [`ModelError::Candle`] if the device fails.
    pub fn step(&mut self, batch: &Batch) -> Result<f32, ModelError> {
        self.step_on(batch, None)
    }

    /// [`Learner::step`] on the sum of the task's loss and another term. Returns the task's loss alone.
    ///
    /// # Errors
    /// As [`Learner::step`]; [`ModelError::Diverged`] also if the term is not finite.
    pub fn step_with_term(&mut self, batch: &Batch, term: &mut Term<'_>) -> Result<f32, ModelError> {
        self.step_on(batch, Some(term))
    }

    /// The logits of a batch in [`Mode::Evaluation`]. Labels are ignored.
    ///
    /// # Errors
    /// As [`Network::forward`].
    pub fn predict(&mut self, batch: &Batch) -> Result<&[f32], ModelError> {
        let work = self.work(batch);
        with_spinning_threads(work, || self.network.forward_batch(batch, Mode::Evaluation))?;
        Ok(self.network.logits())
    }

    /// The features of a batch in [`Mode::Evaluation`]. Labels are ignored.
    ///
    /// # Errors
    /// As [`Network::forward`].
    pub fn features(&mut self, batch: &Batch) -> Result<&[f32], ModelError> {
        self.predict(batch)?;
        Ok(self.network.features())
    }

    /// One step of gradient descent on another loss. Returns that loss before the step. The batch needs no labels.
    ///
    /// # Errors
    /// As [`Learner::step`] except for those about labels, and the errors of the loss; [`ModelError::Mismatch`] if there is a
    /// gradient of an unknown parameter.
    ///
    /// # Panics
    /// If a gradient does not have the length of its output or parameter.
    pub fn step_with_loss(&mut self, batch: &Batch, loss: &mut Loss<'_>) -> Result<f32, ModelError> {
        with_spinning_threads(self.work(batch), || {
            self.forward(batch)?;
            let value = loss(&self.network, &mut self.by)?;
            if !value.is_finite() {
                return Err(ModelError::Diverged { step: self.steps, loss: value });
            }
            let gradients = OutputGradients {
                representation: Some(&self.by.representation[..]).filter(|gradient| !gradient.is_empty()),
                logits: Some(&self.by.logits),
                ..OutputGradients::default()
            };
            // A fused step would apply a gradient before the loss's own term is added to it.
            let update =
                if self.by.parameters.is_empty() { self.update_mode() } else { UpdateMode::Accumulate };
            self.network.backward_with(gradients, update)?;
            for (parameter, gradient) in &self.by.parameters {
                self.network.add_gradient(parameter, gradient)?;
            }
            self.network.step(&self.optimizer, self.clip)?;
            self.steps += 1;
            Ok(value)
        })
    }

    /// Plain SGD applies gradients while they are computed.
    fn update_mode(&self) -> UpdateMode {
        match self.optimizer.plain_rate() {
            Some(rate) if self.clip.is_none() => UpdateMode::Fused(rate),
            _ => UpdateMode::Accumulate,
        }
    }

    fn step_on(&mut self, batch: &Batch, term: Option<&mut Term<'_>>) -> Result<f32, ModelError> {
        let update = self.update_mode();
        with_spinning_threads(self.work(batch), || {
            let loss = self.pass(batch, update, term)?;
            self.network.step(&self.optimizer, self.clip)?;
            self.steps += 1;
            Ok(loss)
        })
    }

    /// The mean loss over a batch and its gradient, without weight decay; 0 for buffers. Changes nothing but the running
    /// statistics of batch normalisation.
    ///
    /// # Errors
    /// As [`Learner::step`].
    pub fn gradient(&mut self, batch: &Batch) -> Result<(f32, ParamSet), ModelError> {
        let loss =
            with_spinning_threads(self.work(batch), || self.pass(batch, UpdateMode::Accumulate, None))?;
        Ok((loss, self.network.gradients()?))
    }

    /// One step of the optimiser along the given gradient, such as that of [`Learner::gradient`] after a correction by the caller.
    /// It is neither clipped nor corrected here. Buffers do not change, even if the gradient has values for them.
    ///
    /// # Errors
    /// [`ModelError::Mismatch`] if the gradient does not fit the parameters, [`ModelError::Candle`] if the device fails.
    pub fn apply(&mut self, gradient: &ParamSet) -> Result<(), ModelError> {
        self.network.step_along(&self.optimizer, gradient)?;
        self.steps += 1;
        Ok(())
    }

    /// The parameters. Later steps do not change them.
    ///
    /// # Errors
    /// [`ModelError::Candle`] if the device fails.
    pub fn params(&self) -> Result<ParamSet, ModelError> {
        self.network.params()
    }

    /// Clips the gradient of the loss to this norm, over all parameters together; `None` turns clipping off. Corrections and
    /// weight decay are added afterwards and are not clipped.
    pub fn set_clip(&mut self, clip: Option<f64>) {
        self.clip = clip;
    }

    /// Sets the parameters that weight decay takes from; without this, all.
    ///
    /// # Errors
    /// As [`Architecture::parameter_specs`].
    pub fn set_decay_on(&mut self, decay: DecayOn) -> Result<(), ModelError> {
        let spared = self.network.architecture().spared_by(decay)?;
        self.network.spare(&spared);
        Ok(())
    }

    /// Corrects the gradient in every later step, until parameters are loaded. Replaces an earlier correction.
    ///
    /// # Errors
    /// [`ModelError::Mismatch`] if a parameter is missing from the correction or has another shape, [`ModelError::Candle`] if the
    /// device fails.
    pub fn correct(&mut self, correction: &Correction) -> Result<(), ModelError> {
        self.network.correct(correction)
    }

    /// Replaces the parameters, and resets what the optimiser keeps, the correction and the number of steps.
    ///
    /// # Errors
    /// As [`Network::load`].
    pub fn load(&mut self, params: &ParamSet) -> Result<(), ModelError> {
        self.network.load(params)?;
        self.steps = 0;
        Ok(())
    }

    /// Changes the learning rate from the next step on. The optimiser keeps what it has kept.
    pub fn set_rate(&mut self, rate: f64) {
        self.optimizer = self.optimizer.at_rate(rate);
    }

    /// What the optimiser keeps from step to step, to go on with elsewhere.
    ///
    /// # Errors
    /// [`ModelError::Candle`] if the device fails.
    pub fn optimizer_state(&self) -> Result<OptimizerState, ModelError> {
        self.network.optimizer_state()
    }

    /// Gives the optimiser what it has kept elsewhere, until parameters are loaded.
    ///
    /// # Errors
    /// [`ModelError::Mismatch`] if it does not fit the parameters, [`ModelError::Candle`] if the device fails.
    pub fn restore_optimizer(&mut self, state: &OptimizerState) -> Result<(), ModelError> {
        self.network.restore_optimizer(state)
    }

    /// The network being trained.
    #[must_use]
    pub fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    /// The multiply-adds of a forward pass of a batch on the CPU; 0 on other devices.
    fn work(&self, batch: &Batch) -> u64 {
        if self.network.backend().runs_candle() {
            return 0;
        }
        self.multiply_adds.saturating_mul(batch.len() as u64)
    }

    /// A forward pass, and a backward pass of the task's loss and the term if their sum is finite. Returns the task's loss.
    fn pass(
        &mut self,
        batch: &Batch,
        update: UpdateMode,
        term: Option<&mut Term<'_>>,
    ) -> Result<f32, ModelError> {
        self.network.check_labels(batch)?;
        self.forward(batch)?;
        let Self { network, by, .. } = self;
        let loss = network.architecture().task.loss(network.logits(), batch.targets(), &mut by.logits);
        let mut gradients = OutputGradients { logits: Some(&by.logits), ..OutputGradients::default() };
        let mut whole = loss;
        if let Some(term) = term {
            whole += term(network.representation(), &mut by.representation);
            gradients.representation = Some(&by.representation);
        }
        if !whole.is_finite() {
            return Err(ModelError::Diverged { step: self.steps, loss: whole });
        }
        network.backward_with(gradients, update)?;
        Ok(loss)
    }

    /// A forward pass in training mode.
    fn forward(&mut self, batch: &Batch) -> Result<(), ModelError> {
        let seed = match self.seed {
            Some(seed) => seed,
            None if self.has_dropout => return Err(ModelError::NoSeed),
            // No layer uses the masks.
            None => [0; 32],
        };
        self.network.forward_batch(batch, Mode::Training(Masks::new(seed, self.passes)))?;
        self.passes += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
