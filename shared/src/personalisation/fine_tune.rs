//! Fine-tuning: parameters go on learning from the global model (stage 2).

use models::{Architecture, Backend, Batch, Learner, ParamSet, Targets};

use super::{PersonaliseError, Steps};
use crate::seed::{Seed, shuffle};
use crate::spec::Training;

/// Makes a batch of samples, into these buffers.
pub(super) trait Fill {
    /// Of the samples at these positions, in this epoch.
    fn fill(
        &mut self,
        positions: &[usize],
        epoch: u32,
        x: &mut Vec<f32>,
        y: &mut Targets,
        steps: &mut Steps<'_>,
    ) -> Result<(), PersonaliseError>;
}

/// What learns, and how.
pub(super) struct FineTuning<'a> {
    pub(super) architecture: &'a Architecture,
    pub(super) training: Training,
    pub(super) backend: &'a Backend,
}

impl FineTuning<'_> {
    /// Minibatch SGD over freshly shuffled samples, which are made into batches.
    pub(super) fn run(
        &self,
        start: &ParamSet,
        samples: usize,
        seed: &Seed,
        steps: &mut Steps<'_>,
        samples_of: &mut impl Fill,
    ) -> Result<ParamSet, PersonaliseError> {
        let training = &self.training;
        let (size, total) = (training.batch_of(samples as u64) as usize, training.steps(samples as u64));
        if total == 0 {
            return Ok(start.clone());
        }
        let learner = Learner::new(self.architecture, start, training.optimizer.to_engine(), self.backend)?;
        let mut learner = learner.with_seed(*seed.derive("dropout").as_bytes());
        learner.set_decay_on(training.decay_on)?;
        learner.set_clip(training.clip_norm);
        let each = total / u64::from(training.epochs);
        let mut order: Vec<usize> = (0..samples).collect();
        let (mut x, mut y) = (Vec::new(), Targets::default());
        for epoch in 0..training.epochs {
            shuffle(&mut order, &mut seed.derive_numbered("epoch", u64::from(epoch)).rng());
            for positions in order.chunks(size).take(each as usize) {
                samples_of.fill(positions, epoch, &mut x, &mut y, steps)?;
                let shape = [&[positions.len()], &self.architecture.input[..]].concat();
                let batch = Batch::with_targets(std::mem::take(&mut x), shape, std::mem::take(&mut y))?;
                learner.step(&batch)?;
                (x, y) = batch.into_buffers();
                steps.advance()?;
            }
        }
        Ok(learner.params()?)
    }
}
