//! What an algorithm's client half works with: the device, its data, and the training loop.

use std::borrow::Cow;
use std::ops::ControlFlow;

use models::{
    Backend, Batch, Correction, KeptFeatures, Learner, ModelError, ParamSet, ParameterKind, Sgd, Source,
};

use super::TrainError;
use crate::aggregation::Buffers;
use crate::data::{Preparation, View};
use crate::id::ClientId;
use crate::message::{Metric, Metrics};
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
    seed: Seed,
    /// The device's training data.
    pub data: &'a View,
    /// Where the device trains.
    pub device: &'a Backend,
    /// Who it is, if it knows.
    pub id: Option<ClientId>,
    monitor: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    steps: u64,
    loss_sum: f64,
    /// The device's own buffers, if they stay on it.
    buffers: ParamSet,
    metrics: Metrics,
    workbench: Option<&'a mut Workbench>,
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
        let (mut samples, mut labels) = (Vec::new(), Vec::new());
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
            seed,
            data,
            device,
            id: None,
            monitor,
            steps: 0,
            loss_sum: 0.0,
            buffers: ParamSet::new(),
            metrics: Metrics::default(),
            workbench: None,
        }
    }

    /// The same client at a workbench.
    #[must_use]
    pub fn with_workbench(self, workbench: Option<&'a mut Workbench>) -> Self {
        Self { workbench, ..self }
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
                self.buffers.insert(name, own.clone());
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
        if self.buffers.is_empty() {
            return Ok(Cow::Borrowed(sent));
        }
        let mut start = sent.clone();
        let own = self.buffers.clone();
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
    pub fn sgd_settings(&self) -> Sgd {
        self.spec.sgd_in(self.round)
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

    /// Gives the client the buffers that it kept in its last round.
    pub(super) fn restore_buffers(&mut self, buffers: ParamSet) {
        self.buffers = buffers;
    }

    /// The buffers that the client keeps for its next round.
    pub(super) fn take_buffers(&mut self) -> ParamSet {
        std::mem::take(&mut self.buffers)
    }

    /// E epochs of minibatch SGD over freshly shuffled data, from `start`
    /// (McMahan et al. 2017, Algorithm 1, `ClientUpdate`). The last batch of an epoch may be smaller, unless
    /// `training.drop-last` leaves it out. No epochs leave `start` as it is.
    pub fn sgd(&mut self, start: &ParamSet) -> Result<ParamSet, TrainError> {
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
        let mut learner = self.learner(&start, self.sgd_settings())?;
        learner.set_clip(training.clip_norm);
        let mut order: Vec<usize> = (0..samples).collect();
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for epoch in 0..training.epochs {
            shuffle(&mut order, &mut self.seed.derive_numbered("epoch", u64::from(epoch)).rng());
            for positions in order.chunks(size as usize).take(steps as usize) {
                let batch = self.batch(positions, epoch, std::mem::take(&mut x), std::mem::take(&mut y))?;
                let seed = self.seed.derive_numbered("views of epoch", u64::from(epoch));
                let drawn = Drawn { data: self.data, positions, seed };
                let loss = step(&mut learner, &batch, &drawn)?;
                self.keep(positions, &batch);
                (x, y) = batch.into_buffers();
                self.advance(loss, total)?;
            }
        }
        let trained = learner.params()?;
        self.put_away(learner);
        Ok(trained)
    }

    /// A learner that starts from these parameters.
    fn learner(&mut self, start: &ParamSet, sgd: Sgd) -> Result<Learner, ModelError> {
        let done = self.workbench.as_mut().and_then(|bench| bench.learner.take());
        let learner = Learner::reusing(done, &self.spec.architecture, start, sgd, self.device)?;
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
        let mut learner = self.learner(&start, self.spec.training.optimizer.sgd())?;
        let mut mean = params.zeros_like();
        let mut loss = 0.0;
        let order: Vec<usize> = (0..samples).collect();
        let buffers = self.buffer_names()?;
        let chunk = if buffers.is_empty() { GRADIENT_CHUNK } else { samples.max(1) };
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for positions in order.chunks(chunk) {
            let share = positions.len() as f64 / samples as f64;
            let batch = self.batch(positions, 0, std::mem::take(&mut x), std::mem::take(&mut y))?;
            let (chunk_loss, gradient) = learner.gradient(&batch)?;
            self.keep(positions, &batch);
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
        mut y: Vec<u32>,
    ) -> Result<Batch, TrainError> {
        let seed = self.seed.derive("augmentation").derive_numbered("epoch", u64::from(epoch));
        self.spec.data.preparation.training(self.data, positions, &seed, &mut x, &mut y);
        let shape = [&[positions.len()], &self.spec.architecture.input[..]].concat();
        let batch = if y.is_empty() { Batch::unlabelled(x, shape)? } else { Batch::new(x, shape, y)? };
        let Some((features, source)) = self.kept_features() else { return Ok(batch) };
        let features = features.get(&source, self.samples_at(positions));
        Ok(batch.keeping(features))
    }

    /// Keeps the features of these samples, which training has computed, for later epochs and rounds.
    fn keep(&self, positions: &[usize], batch: &Batch) {
        if let (Some((kept, source)), Some(features)) = (self.kept_features(), batch.features()) {
            kept.keep(&source, self.samples_at(positions), features);
        }
    }

    /// Where features are kept and what they are of, if the extractor is frozen and gives the same for a sample each time.
    fn kept_features(&self) -> Option<(&KeptFeatures, Source)> {
        let RunSpec { architecture, data, .. } = self.spec;
        let kept = architecture.frozen.as_ref()?.features()?;
        let fixed = data.preparation.is_fixed() && architecture.is_part_frozen("extractor");
        fixed.then(|| (kept, self.data.dataset().clone() as Source))
    }

    /// The numbers of these samples in their data set.
    fn samples_at(&self, positions: &[usize]) -> impl ExactSizeIterator<Item = u32> {
        positions.iter().map(|&position| self.data.indices()[position])
    }

    fn advance(&mut self, loss: f32, total: u64) -> Result<(), TrainError> {
        self.steps += 1;
        self.loss_sum += f64::from(loss);
        let progress = Progress { round: Some(self.round), done: self.steps, total };
        if (self.monitor)(progress).is_break() { Err(TrainError::Cancelled) } else { Ok(()) }
    }
}
