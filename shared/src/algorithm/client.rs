//! What an algorithm's client half works with: the device, its data, and the training loop.

use std::borrow::Cow;
use std::ops::ControlFlow;

use models::{Backend, Batch, Correction, Learner, ModelError, Optimizer, ParamSet, ParameterKind, Targets};
use rand::Rng as _;

use super::TrainError;
use super::frozen_features::FrozenFeatures;
use super::kept::Kept;
use super::trainer::{self, Trainer, TrainerJob, TrainerResult};
use crate::aggregation::Buffers;
use crate::data::{Preparation, View};
use crate::id::ClientId;
use crate::message::{Metric, Metrics};
use crate::outgoing;
use crate::payload::Payload;
use crate::record::Record;
use crate::seed::{Seed, shuffle};
use crate::spec::RunSpec;
use crate::task::Progress;

/// Samples per forward pass when a gradient over all data is wanted: bounds memory, not the result. Where samples are normalised
/// by what is beside them it would, and all are beside each other.
pub(super) const GRADIENT_CHUNK: usize = 1000;

/// The device in one round: data, settings, seed and training loop.
pub struct Client<'a> {
    /// The run's specification.
    pub spec: &'a RunSpec,
    /// The round in training.
    pub round: u32,
    /// Rounds of training before it that have failed.
    failed: u32,
    seed: Seed,
    /// The device's training data.
    pub data: &'a View,
    /// Where the device trains.
    pub device: &'a Backend,
    /// Who it is, if it knows.
    pub id: Option<ClientId>,
    monitor: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    steps: u64,
    /// The sum of their learning rates, if these differ.
    rates: f64,
    loss_sum: f64,
    /// What stays on the device until its next round.
    kept: Kept,
    metrics: Metrics,
    workbench: Option<&'a mut Workbench>,
    trainer: Option<&'a mut dyn Trainer>,
}

/// Reuses one network's buffers across simulated clients that train in turn on a thread. What a client learns does not depend on
/// the clients before it. Not used on devices.
#[derive(Debug, Default)]
pub struct Workbench {
    learner: Option<Learner>,
}

/// The samples of one step, as they lie on the device.
pub struct Drawn<'d> {
    data: &'d View,
    positions: &'d [usize],
    /// The client's in this epoch.
    seed: Seed,
}

impl Drawn<'_> {
    /// Where they stand in the client's data.
    #[must_use]
    pub fn positions(&self) -> &[usize] {
        self.positions
    }

    /// Appends the samples to `x`, each changed at random as `preparation` says. Copies of other names are other draws.
    ///
    /// # Panics
    /// If the preparation does not suit the samples, see [`Preparation::shape`].
    pub fn view(&self, preparation: &Preparation, name: &str, x: &mut Vec<f32>) {
        let (mut samples, mut labels) = (Vec::new(), Targets::default());
        preparation.training(self.data, self.positions, &self.seed.derive(name), &mut samples, &mut labels);
        x.append(&mut samples);
    }
}

impl<'a> Client<'a> {
    /// A client about to train in `round`. `seed` is the client's own in this round. `monitor` hears of
    /// every step and may break to cancel.
    pub fn new(
        spec: &'a RunSpec,
        round: u32,
        seed: Seed,
        data: &'a View,
        device: &'a Backend,
        monitor: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Self {
        Self {
            spec,
            round,
            failed: 0,
            seed,
            data,
            device,
            id: None,
            monitor,
            steps: 0,
            rates: 0.0,
            loss_sum: 0.0,
            kept: Kept::default(),
            metrics: Metrics::default(),
            workbench: None,
            trainer: None,
        }
    }

    /// The same client, whose owner has a program that trains.
    #[must_use]
    pub fn with_trainer(self, trainer: Option<&'a mut dyn Trainer>) -> Self {
        Self { trainer, ..self }
    }

    /// The same client at a workbench.
    #[must_use]
    pub fn with_workbench(self, workbench: Option<&'a mut Workbench>) -> Self {
        Self { workbench, ..self }
    }

    /// The same client in a run in which this number of rounds of training have failed before this one: its learning rate is
    /// that of the round as many before.
    #[must_use]
    pub fn after_failures(self, failed: u32) -> Self {
        Self { failed, ..self }
    }

    /// The same client, which knows who it is.
    #[must_use]
    pub fn with_id(self, id: ClientId) -> Self {
        Self { id: Some(id), ..self }
    }

    /// Number of training samples, `n_k`.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.data.len() as u64
    }

    /// Optimiser steps taken so far, `tau_k`.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// The sum of the learning rates of these steps, `tau_k eta` where the rate does not change within a round.
    #[must_use]
    pub fn rates(&self) -> f64 {
        if self.spec.training.schedule_by_step {
            self.rates
        } else {
            self.steps as f64 * self.optimizer().rate()
        }
    }

    /// Mean training loss over the steps so far, `l_k`; 0 before the first.
    #[must_use]
    pub fn loss(&self) -> f64 {
        if self.steps == 0 { 0.0 } else { self.loss_sum / self.steps as f64 }
    }

    /// What this client sends of the model `w_k` that it has trained from `w_t`: the difference. Buffers that stay on the
    /// device are kept for the next round and are not part of it. What the run wants measured of the training is measured
    /// here, so that every algorithm asks for this once in a round.
    pub fn delta(&mut self, w_k: ParamSet, w_t: &ParamSet) -> Result<ParamSet, TrainError> {
        self.measure_alignment(&w_k, w_t)?;
        let delta = self.difference(w_k, w_t)?;
        self.measure_drift(&delta);
        Ok(delta)
    }

    fn difference(&mut self, w_k: ParamSet, w_t: &ParamSet) -> Result<ParamSet, TrainError> {
        let kept = match self.spec.aggregation.buffers {
            Buffers::Local => self.buffer_names()?,
            Buffers::Average => Vec::new(),
        };
        for name in &kept {
            if let Some(own) = w_k.get(name) {
                self.kept.buffers.insert(name, own.clone());
            }
        }
        let mut delta = w_k.difference(w_t).map_err(ModelError::from)?;
        for name in &kept {
            delta.remove(name);
        }
        Ok(delta)
    }

    /// The model that training starts from: what the server sent, with the device's own buffers if they stay here.
    pub fn start<'s>(&self, sent: &'s ParamSet) -> Result<Cow<'s, ParamSet>, TrainError> {
        if self.kept.buffers.is_empty() {
            return Ok(Cow::Borrowed(sent));
        }
        let mut start = sent.clone();
        let own = self.kept.buffers.clone();
        start.overlay(own).map_err(|mismatch| TrainError::Local(mismatch.to_string()))?;
        Ok(Cow::Owned(start))
    }

    fn buffer_names(&self) -> Result<Vec<String>, TrainError> {
        let specs = self.spec.architecture.parameter_specs().map_err(ModelError::from)?;
        let buffers = specs.into_iter().filter(|spec| spec.kind == ParameterKind::Buffer);
        Ok(buffers.map(|spec| spec.name).collect())
    }

    /// The tensors of `set` that follow a gradient.
    pub fn without_buffers(&self, set: &ParamSet) -> Result<ParamSet, TrainError> {
        let mut set = set.clone();
        for name in self.buffer_names()? {
            set.remove(&name);
        }
        Ok(set)
    }

    /// The local optimiser in this round.
    #[must_use]
    pub fn optimizer(&self) -> Optimizer {
        self.spec.optimizer_in(self.round.saturating_sub(self.failed))
    }

    /// Adds a measurement to the report on this round's training. Measurements beyond
    /// [`MAX_METRICS`](crate::message::MAX_METRICS) are left out.
    pub fn report(&mut self, metric: Metric) {
        if let Some(free) = self.metrics.iter_mut().find(|slot| slot.is_none()) {
            *free = Some(metric);
        }
    }

    /// What was measured so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics
    }

    /// The bytes of what this client sends.
    #[must_use]
    pub fn payload(&self, update: &Record) -> Payload {
        outgoing::payload(update, self.spec, &self.seed)
    }

    /// What the server will read of it.
    pub(super) fn received(&self, update: Record) -> Result<Record, TrainError> {
        outgoing::received(update, self.spec, &self.seed)
            .map_err(|error| TrainError::Local(error.to_string()))
    }

    /// Gives the client what it kept in its last round.
    pub(super) fn restore(&mut self, kept: Kept) {
        self.kept = kept;
    }

    /// What the client keeps for its next round.
    pub(super) fn take_kept(&mut self) -> Kept {
        std::mem::take(&mut self.kept)
    }

    /// E epochs of minibatch steps over freshly shuffled data, from `start`
    /// (McMahan et al. 2017, Algorithm 1, `ClientUpdate`). The last batch of an epoch may be smaller, unless
    /// `training.drop-last` leaves it out. No epochs leave `start` as it is. A trainer of the device's owner does what it does.
    pub fn sgd(&mut self, start: &ParamSet) -> Result<ParamSet, TrainError> {
        if let Some(trainer) = self.trainer.take() {
            return self.trained_by(trainer, start);
        }
        self.sgd_corrected(start, &Correction::default())
    }

    /// [`Client::sgd`] with corrected gradients.
    pub fn sgd_corrected(
        &mut self,
        start: &ParamSet,
        correction: &Correction,
    ) -> Result<ParamSet, TrainError> {
        let mut fresh = !correction.is_none();
        self.epochs(start, |learner, batch| {
            if std::mem::take(&mut fresh) {
                learner.correct(correction)?;
            }
            learner.step(batch)
        })
    }

    /// [`Client::sgd`] with steps of another kind, each of which gives its loss.
    pub fn epochs(
        &mut self,
        start: &ParamSet,
        mut step: impl FnMut(&mut Learner, &Batch) -> Result<f32, ModelError>,
    ) -> Result<ParamSet, TrainError> {
        self.epochs_of(start, |learner, batch, _| Ok(step(learner, batch)?))
    }

    /// [`Client::epochs`] with steps that also see their samples otherwise than as they were prepared.
    pub fn epochs_of(
        &mut self,
        start: &ParamSet,
        mut step: impl FnMut(&mut Learner, &Batch, &Drawn<'_>) -> Result<f32, TrainError>,
    ) -> Result<ParamSet, TrainError> {
        let training = self.spec.training;
        let start = self.start(start)?;
        let samples = self.data.len();
        let (size, total) = (training.batch_of(samples as u64), training.steps(samples as u64));
        if total == 0 {
            return Ok(start.into_owned());
        }
        let steps = total / u64::from(training.epochs);
        let mut learner = self.learner(&start, self.optimizer())?;
        learner.set_clip(training.clip_norm);
        learner.set_decay_on(training.decay_on)?;
        if let Some(state) = self.kept.optimizer.take() {
            learner.restore_optimizer(&state).map_err(|error| TrainError::Local(error.to_string()))?;
        }
        let features = self.features(&mut learner)?;
        let mut order: Vec<usize> = (0..samples).collect();
        let (mut x, mut y) = (Vec::new(), Targets::default());
        let mut taken = 0;
        for epoch in 0..training.epochs {
            shuffle(&mut order, &mut self.seed.derive_numbered("epoch", u64::from(epoch)).rng());
            for positions in order.chunks(size as usize).take(steps as usize) {
                let mut batch =
                    self.batch(positions, epoch, std::mem::take(&mut x), std::mem::take(&mut y))?;
                if let Some(features) = &features {
                    batch = features.give(batch, positions);
                }
                let seed = self.seed.derive_numbered("views of epoch", u64::from(epoch));
                let drawn = Drawn { data: self.data, positions, seed };
                if training.schedule_by_step {
                    let rate = self.spec.rate_in_step(self.round.saturating_sub(self.failed), (taken, total));
                    learner.set_rate(rate);
                    (taken, self.rates) = (taken + 1, self.rates + rate);
                }
                let loss = step(&mut learner, &batch, &drawn)?;
                (x, y) = batch.into_buffers();
                self.advance(loss, total)?;
            }
        }
        let trained = learner.params()?;
        if training.keeps_optimizer() {
            self.kept.optimizer = Some(learner.optimizer_state()?);
        }
        self.put_away(learner);
        Ok(trained)
    }

    /// What a program of the device's owner makes of `start`.
    fn trained_by(&mut self, trainer: &mut dyn Trainer, start: &ParamSet) -> Result<ParamSet, TrainError> {
        let start = self.start(start)?;
        let whole = self.spec.architecture.compose(&start).map_err(ModelError::from)?;
        let job = TrainerJob {
            round: self.round,
            samples: self.samples(),
            seed: self.seed.derive("trainer").rng().next_u32(),
            training: &self.spec.training,
            learning_rate: self.optimizer().rate(),
            params: &whole,
        };
        let TrainerResult { params, steps, loss, accuracy } = trainer.train(&job, self.monitor)?;
        let params = trainer::learned(&start, &whole, params)?;
        self.steps += steps;
        self.loss_sum += loss * steps as f64;
        if let Some(accuracy) = accuracy {
            self.report(Metric::TrainAccuracy(accuracy));
        }
        Ok(params)
    }

    /// A learner that starts from these parameters.
    fn learner(&mut self, start: &ParamSet, optimizer: Optimizer) -> Result<Learner, ModelError> {
        let done = self.workbench.as_mut().and_then(|bench| bench.learner.take());
        let learner = Learner::reusing(done, &self.spec.architecture, start, optimizer, self.device)?;
        Ok(learner.with_seed(self.dropout_seed()))
    }

    /// Leaves a learner to the next client of this thread, if there is one.
    fn put_away(&mut self, learner: Learner) {
        if let Some(bench) = &mut self.workbench {
            bench.learner = Some(learner);
        }
    }

    /// The mean gradient of the loss over all of the device's data at `params`: one step of FedSGD. For buffers it holds
    /// the difference by which the data has moved them; those that stay on the device are not part of it.
    pub fn gradient(&mut self, params: &ParamSet) -> Result<ParamSet, TrainError> {
        let samples = self.data.len();
        let start = self.start(params)?;
        let mut learner = self.learner(&start, self.spec.training.optimizer.to_engine())?;
        let features = self.features(&mut learner)?;
        let mut mean = params.zeros_like();
        let mut loss = 0.0;
        let order: Vec<usize> = (0..samples).collect();
        let buffers = self.buffer_names()?;
        let chunk = if buffers.is_empty() { GRADIENT_CHUNK } else { samples.max(1) };
        let (mut x, mut y) = (Vec::new(), Targets::default());
        for positions in order.chunks(chunk) {
            let share = positions.len() as f64 / samples as f64;
            let mut batch = self.batch(positions, 0, std::mem::take(&mut x), std::mem::take(&mut y))?;
            if let Some(features) = &features {
                batch = features.give(batch, positions);
            }
            let (chunk_loss, gradient) = learner.gradient(&batch)?;
            (x, y) = batch.into_buffers();
            mean.add_scaled(share as f32, &gradient).map_err(ModelError::from)?;
            loss += share * f64::from(chunk_loss);
            if (self.monitor)(Progress { round: Some(self.round), done: 0, total: 1 }).is_break() {
                return Err(TrainError::Cancelled);
            }
        }
        self.advance(loss as f32, 1)?;
        if !buffers.is_empty() {
            let moved = self.difference(learner.params()?, params)?;
            for name in buffers {
                match moved.get(&name) {
                    Some(moved) => mean.insert(name, moved.clone()),
                    None => mean.remove(&name),
                };
            }
        }
        self.put_away(learner);
        Ok(mean)
    }

    /// What the masks of dropout come from: this client's in this round.
    fn dropout_seed(&self) -> [u8; 32] {
        *self.seed.derive("dropout").as_bytes()
    }

    /// The samples at these positions, prepared as in this epoch, in the buffers given.
    fn batch(
        &self,
        positions: &[usize],
        epoch: u32,
        mut x: Vec<f32>,
        mut y: Targets,
    ) -> Result<Batch, TrainError> {
        let seed = self.seed.derive("augmentation").derive_numbered("epoch", u64::from(epoch));
        self.spec.data.preparation.training(self.data, positions, &seed, &mut x, &mut y);
        let shape = [&[positions.len()], &self.spec.architecture.input[..]].concat();
        Ok(Batch::with_targets(x, shape, y)?)
    }

    fn features(&mut self, learner: &mut Learner) -> Result<Option<FrozenFeatures>, TrainError> {
        let progress = Progress { round: Some(self.round), done: 0, total: 1 };
        FrozenFeatures::of(self.spec, self.data, learner, || (self.monitor)(progress))
    }

    fn advance(&mut self, loss: f32, total: u64) -> Result<(), TrainError> {
        self.steps += 1;
        self.loss_sum += f64::from(loss);
        let progress = Progress { round: Some(self.round), done: self.steps, total };
        if (self.monitor)(progress).is_break() { Err(TrainError::Cancelled) } else { Ok(()) }
    }
}
