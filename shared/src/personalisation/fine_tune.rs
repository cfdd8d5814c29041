//! Fine-tuning: parameters go on learning from the global model (stage 2).

use models::{Architecture, Backend, Batch, Learner, ParamSet};

use super::{PersonaliseError, Steps};
use crate::seed::{Seed, shuffle};
use crate::spec::personalisation::Tuning;

/// Makes a batch: of the samples at these positions in this epoch, into these buffers.
pub(super) type Fill<'a> = dyn FnMut(&[usize], u32, &mut Vec<f32>, &mut Vec<u32>) + 'a;

/// What learns, and how.
pub(super) struct FineTuning<'a> {
    pub(super) architecture: &'a Architecture,
    pub(super) tuning: Tuning,
    /// Whether the last batch of an epoch is left out if it is smaller than the others, as the run's training says.
    pub(super) drop_last: bool,
    pub(super) backend: &'a Backend,
}

impl FineTuning<'_> {
    /// Steps for this number of samples.
    pub(super) fn steps(&self, samples: usize) -> u64 {
        let size = self.size(samples).max(1);
        let batches = if self.drop_last { samples / size } else { samples.div_ceil(size) };
        u64::from(self.tuning.epochs) * batches as u64
    }

    fn size(&self, samples: usize) -> usize {
        if self.tuning.batch == 0 { samples } else { (self.tuning.batch as usize).min(samples) }
    }

    /// Minibatch SGD over freshly shuffled samples, which `fill` makes into batches.
    pub(super) fn run(
        &self,
        start: &ParamSet,
        samples: usize,
        seed: &Seed,
        steps: &mut Steps<'_>,
        fill: &mut Fill<'_>,
    ) -> Result<ParamSet, PersonaliseError> {
        let total = self.steps(samples);
        if total == 0 {
            return Ok(start.clone());
        }
        let learner = Learner::new(self.architecture, start, self.tuning.sgd(), self.backend)?;
        let mut learner = learner.with_seed(*seed.derive("dropout").as_bytes());
        let each = total / u64::from(self.tuning.epochs);
        let mut order: Vec<usize> = (0..samples).collect();
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for epoch in 0..self.tuning.epochs {
            shuffle(&mut order, &mut seed.derive_numbered("epoch", u64::from(epoch)).rng());
            for positions in order.chunks(self.size(samples)).take(each as usize) {
                fill(positions, epoch, &mut x, &mut y);
                let shape = [&[positions.len()], &self.architecture.input[..]].concat();
                let batch = Batch::new(std::mem::take(&mut x), shape, std::mem::take(&mut y))?;
                learner.step(&batch)?;
                (x, y) = batch.into_buffers();
                steps.advance()?;
            }
        }
        Ok(learner.params()?)
    }
}
