//! Activations of the frozen extractor, which the head and the gate learn from.

use models::{Mode, Network, Targets};

use super::{PersonaliseError, Steps};
use crate::data::{Preparation, View};
use crate::seed::Seed;

/// Samples in one forward pass: bounds memory, not the result.
pub(crate) const CHUNK: usize = 256;

/// What the global model says about some samples, in their order.
///
/// It takes four bytes for each activation of each sample: 1600 for a sample of LeNet-5.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Features {
    /// Shape of one sample's activations.
    pub shape: Vec<usize>,
    /// The extractor's activations `a`, `[samples, ...shape]`.
    pub activations: Vec<f32>,
    /// The global model's logits, `[rows, classes]`: a row for each sample, or for each position of a text.
    pub logits: Vec<f32>,
    /// The samples' labels, one for each row.
    pub labels: Targets,
}

impl Features {
    /// Runs a view's samples through the global model: augmented from this seed, as for training, or prepared as for a test.
    pub(super) fn of(
        network: &mut Network,
        preparation: &Preparation,
        view: &View,
        augmented: Option<&Seed>,
        steps: &mut Steps<'_>,
    ) -> Result<Self, PersonaliseError> {
        let shape = network.architecture().feature_shape()?;
        let mut features = Self { shape, ..Self::default() };
        let positions: Vec<usize> = (0..view.len()).collect();
        for chunk in positions.chunks(CHUNK) {
            let input = &network.architecture().input;
            let batch = match augmented {
                Some(seed) => preparation.training_batch(view, chunk, seed, input)?,
                None => preparation.batch(view, chunk, input)?,
            };
            network.forward(batch.x(), batch.shape(), Mode::Evaluation)?;
            features.activations.extend_from_slice(network.features());
            features.logits.extend_from_slice(network.logits());
            features.labels.extend_from(batch.targets(), 0..batch.targets().len());
            steps.check()?;
        }
        Ok(features)
    }

    /// Replaces the contents of `x` and `y` by the activations and labels of these samples: a batch for what stands on the
    /// extractor.
    pub(super) fn fill(&self, positions: &[usize], x: &mut Vec<f32>, y: &mut Targets) {
        x.clear();
        y.clear();
        let length = self.shape.iter().product::<usize>();
        let each = self.labels.len() * length / self.activations.len().max(1);
        for &position in positions {
            x.extend_from_slice(&self.activations[position * length..][..length]);
            y.extend_from(&self.labels, position * each..(position + 1) * each);
        }
    }
}
