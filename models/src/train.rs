//! Training: a network and an optimiser.

use crate::architecture::Architecture;
use crate::batch::Batch;
use crate::correction::Correction;
use crate::device::Backend;
use crate::engine::{OutputGradients, UpdateMode};
use crate::error::ModelError;
use crate::loss::cross_entropy;
use crate::masks::Masks;
use crate::mode::Mode;
use crate::network::Network;
use crate::params::ParamSet;
use crate::sgd::Sgd;
use crate::threads::attended;

/// A network that learns: cross-entropy, stochastic gradient descent.
///
/// Deterministic on the CPU: the same parameters and batches give the same bytes, whatever the number of threads.
#[derive(Debug)]
pub struct Learner {
    network: Network,
    sgd: Sgd,
    /// The greatest length of a gradient that is followed.
    clip: Option<f64>,
    /// Steps since the parameters were loaded.
    steps: u64,
    /// What dropout's masks come from; absent if nobody has said.
    seed: Option<[u8; 32]>,
    drops_out: bool,
    /// Batches learned from since the learner was made.
    passes: u64,
    /// The multiply-adds of a forward pass of one sample.
    multiply_adds: u64,
    /// The gradients by the logits and by the representation, kept for their memory.
    by: LossGradients,
}

/// A further term of the loss, a function of the representation: given it, the term writes its gradient by it, as long, and
/// gives its value.
pub type Term<'a> = dyn FnMut(&[f32], &mut Vec<f32>) -> f32 + Send + 'a;

/// A loss in place of the cross-entropy, a function of what the network gave for a batch and of its parameters: it writes its
/// gradients and gives its value.
pub type Loss<'a> = dyn FnMut(&Network, &mut LossGradients) -> Result<f32, ModelError> + Send + 'a;

/// The gradients of a loss, to be written by it. What an earlier batch has left there does not count, and has to be replaced.
#[derive(Clone, Debug, Default)]
pub struct LossGradients {
    /// By [`Network::representation`], as long; empty if the loss does not depend on it.
    pub representation: Vec<f32>,
    /// By [`Network::logits`], as long.
    pub logits: Vec<f32>,
    /// By parameters, as far as the loss depends on them directly: their names, and values as many as theirs.
    pub parameters: Vec<(String, Vec<f32>)>,
}

impl Learner {
    /// A learner that starts from these parameters, with no velocity.
    ///
    /// # Errors
    /// As [`Network::new`].
    pub fn new(
        architecture: &Architecture,
        params: &ParamSet,
        sgd: Sgd,
        backend: &Backend,
    ) -> Result<Self, ModelError> {
        let network = Network::new(architecture, params, backend)?;
        let multiply_adds = architecture.multiply_adds()?;
        let drops_out = architecture.drops_out();
        Ok(Self {
            network,
            sgd,
            clip: None,
            steps: 0,
            seed: None,
            drops_out,
            passes: 0,
            multiply_adds,
            by: LossGradients::default(),
        })
    }

    /// [`Learner::new`] in the memory of a learner that is done, if that had the same architecture on the CPU: clients that take
    /// turns on one thread need not allocate a network each.
    ///
    /// # Errors
    /// As [`Learner::new`].
    pub fn after(
        done: Option<Self>,
        architecture: &Architecture,
        params: &ParamSet,
        sgd: Sgd,
        backend: &Backend,
    ) -> Result<Self, ModelError> {
        let on_cpu = |backend: &Backend| backend.candle_device().is_none();
        let suits = |done: &Self| {
            done.network.architecture() == architecture && on_cpu(backend) && on_cpu(done.network.backend())
        };
        let Some(mut done) = done.filter(suits) else { return Self::new(architecture, params, sgd, backend) };
        done.load(params)?;
        // Every field is named: one that is added has to be thought of here.
        let Self { network, sgd: _, clip: _, steps: _, seed: _, drops_out, passes: _, multiply_adds, mut by } =
            done;
        by.representation.clear();
        by.logits.clear();
        by.parameters.clear();
        Ok(Self { network, sgd, clip: None, steps: 0, seed: None, drops_out, passes: 0, multiply_adds, by })
    }

    /// Sets what the masks of dropout come from: something of its own for each client in each round, and each learner.
    /// Without it a network with dropout cannot be trained. Each batch that is learned from has masks of its own.
    #[must_use]
    pub fn with_seed(self, seed: [u8; 32]) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// One step of gradient descent on the mean loss over a batch; gives that loss, from before the step.
    ///
    /// # Errors
    /// [`ModelError::Diverged`] if the loss is not finite, and then the step is not made (but batch normalisation has
    /// seen the batch); [`ModelError::Input`], [`ModelError::Token`], [`ModelError::Label`], [`ModelError::Labels`] or
    /// [`ModelError::OneValue`] if the batch does not fit; [`ModelError::Candle`] if the device fails.
    pub fn step(&mut self, batch: &Batch) -> Result<f32, ModelError> {
        self.step_on(batch, None)
    }

    /// [`Learner::step`] on the cross-entropy and a further term together; gives the cross-entropy alone.
    ///
    /// # Errors
    /// As [`Learner::step`]; [`ModelError::Diverged`] also if the term is not finite.
    pub fn step_with(&mut self, batch: &Batch, term: &mut Term<'_>) -> Result<f32, ModelError> {
        self.step_on(batch, Some(term))
    }

    /// The logits of a batch, labelled or not, under the parameters as they are: a prediction, which changes nothing.
    ///
    /// # Errors
    /// As [`Network::forward`].
    pub fn predict(&mut self, batch: &Batch) -> Result<&[f32], ModelError> {
        let work = self.work(batch);
        attended(work, || self.network.forward(batch.x(), batch.shape(), Mode::Evaluation))?;
        Ok(self.network.logits())
    }

    /// One step of gradient descent on another loss; gives that loss, from before the step. Labels are the loss's affair: the
    /// batch needs none.
    ///
    /// # Errors
    /// As [`Learner::step`], but for those about labels, and those of the loss; [`ModelError::Mismatch`] if a gradient is by
    /// a parameter that there is not.
    ///
    /// # Panics
    /// If a gradient is not as long as what it is by.
    pub fn step_by(&mut self, batch: &Batch, loss: &mut Loss<'_>) -> Result<f32, ModelError> {
        attended(self.work(batch), || {
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
            // What is added to a gradient has to be added before it is followed.
            let update =
                if self.by.parameters.is_empty() { self.update_mode() } else { UpdateMode::Accumulate };
            self.network.backward_with(gradients, update)?;
            for (parameter, gradient) in &self.by.parameters {
                self.network.add_gradient(parameter, gradient)?;
            }
            self.network.step(&self.sgd, self.clip)?;
            self.steps += 1;
            Ok(value)
        })
    }

    /// Where a gradient is followed as it is, it is so while it is computed.
    fn update_mode(&self) -> UpdateMode {
        let plain = self.sgd.momentum == 0.0 && self.sgd.decay == 0.0 && self.clip.is_none();
        if plain { UpdateMode::Fused(self.sgd.rate as f32) } else { UpdateMode::Accumulate }
    }

    fn step_on(&mut self, batch: &Batch, term: Option<&mut Term<'_>>) -> Result<f32, ModelError> {
        let update = self.update_mode();
        attended(self.work(batch), || {
            let loss = self.pass(batch, update, term)?;
            self.network.step(&self.sgd, self.clip)?;
            self.steps += 1;
            Ok(loss)
        })
    }

    /// The mean loss over a batch and its gradient, without weight decay; that of buffers is 0. Changes nothing but the
    /// buffers of batch normalisation, which follow every batch that is learned from.
    ///
    /// # Errors
    /// As [`Learner::step`].
    pub fn gradient(&mut self, batch: &Batch) -> Result<(f32, ParamSet), ModelError> {
        let loss = attended(self.work(batch), || self.pass(batch, UpdateMode::Accumulate, None))?;
        Ok((loss, self.network.gradients()?))
    }

    /// One step of the optimiser along a given gradient, which may have been corrected since [`Learner::gradient`]: it is
    /// neither clipped nor corrected any more. Buffers stay, whatever it holds for them.
    ///
    /// # Errors
    /// [`ModelError::Mismatch`] if the gradient does not fit the parameters, [`ModelError::Candle`] if the device fails.
    pub fn apply(&mut self, gradient: &ParamSet) -> Result<(), ModelError> {
        self.network.step_along(&self.sgd, gradient)?;
        self.steps += 1;
        Ok(())
    }

    /// The parameters. They do not follow later steps.
    ///
    /// # Errors
    /// [`ModelError::Candle`] if the device fails.
    pub fn params(&self) -> Result<ParamSet, ModelError> {
        self.network.params()
    }

    /// Shortens the gradient of the loss to this length, all parameters together, whenever it is longer; `None` for never.
    /// Corrections and weight decay come after that and are not shortened.
    pub fn set_clip(&mut self, clip: Option<f64>) {
        self.clip = clip;
    }

    /// Corrects the gradient in every step from here on, until parameters are loaded; in place of an earlier correction.
    ///
    /// # Errors
    /// [`ModelError::Mismatch`] if a parameter is missing from it or has another shape, [`ModelError::Candle`] if the
    /// device fails.
    pub fn correct(&mut self, correction: &Correction) -> Result<(), ModelError> {
        self.network.correct(correction)
    }

    /// Replaces the parameters, and forgets the velocity, the correction and the number of steps.
    ///
    /// # Errors
    /// As [`Network::load`].
    pub fn load(&mut self, params: &ParamSet) -> Result<(), ModelError> {
        self.network.load(params)?;
        self.steps = 0;
        Ok(())
    }

    /// The optimiser's settings.
    #[must_use]
    pub fn sgd(&self) -> Sgd {
        self.sgd
    }

    /// Changes the optimiser's settings from the next step on; the velocity stays.
    pub fn set_sgd(&mut self, sgd: Sgd) {
        self.sgd = sgd;
    }

    /// The network being trained.
    #[must_use]
    pub fn network(&mut self) -> &mut Network {
        &mut self.network
    }

    /// The multiply-adds that a forward pass of a batch has for the threads of the CPU.
    fn work(&self, batch: &Batch) -> u64 {
        if self.network.backend().candle_device().is_some() {
            return 0;
        }
        self.multiply_adds.saturating_mul(batch.len() as u64)
    }

    /// The mean loss over a batch, checked to be finite, and a backward pass from it and from the term.
    fn pass(
        &mut self,
        batch: &Batch,
        update: UpdateMode,
        term: Option<&mut Term<'_>>,
    ) -> Result<f32, ModelError> {
        self.network.check_labels(batch)?;
        self.forward(batch)?;
        let Self { network, by, .. } = self;
        let loss = cross_entropy(network.logits(), batch.y(), &mut by.logits);
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

    /// A forward pass to learn from.
    fn forward(&mut self, batch: &Batch) -> Result<(), ModelError> {
        let seed = match self.seed {
            Some(seed) => seed,
            None if self.drops_out => return Err(ModelError::NoSeed),
            // Nobody asks for masks.
            None => [0; 32],
        };
        self.network.forward(batch.x(), batch.shape(), Mode::Training(Masks::new(seed, self.passes)))?;
        self.passes += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
