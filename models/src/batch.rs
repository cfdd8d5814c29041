//! Batches of samples in host memory.

use crate::params::element_count;
use crate::targets::Targets;

/// Samples with or without labels, for one training step or evaluation.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    x: Vec<f32>,
    shape: Vec<usize>,
    y: Targets,
    /// What a frozen extractor makes of the samples, if that is known.
    features: Option<Vec<f32>>,
}

/// Samples, shape and labels that do not fit together: a mistake of the code that built the batch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// There are no samples, or the shape has no dimension for them.
    #[error("a batch needs at least one sample; its shape is {shape:?}")]
    Empty {
        /// The shape given, samples first.
        shape: Vec<usize>,
    },
    /// The number of values is not the product of the shape.
    #[error("a batch of shape {shape:?} cannot hold {values} values")]
    Values {
        /// The shape given, samples first.
        shape: Vec<usize>,
        /// The number of values given.
        values: usize,
    },
    /// The number of labels is no multiple of the number of samples, or there are none.
    #[error(
        "a batch of {samples} samples cannot have {labels} labels: every sample needs the same number, at least one"
    )]
    Labels {
        /// The number of samples.
        samples: usize,
        /// The number of labels.
        labels: usize,
    },
}

impl Batch {
    /// A batch of `shape[0]` samples of the shape `shape[1..]`, as in `[n, channels, height, width]`, with one label for each
    /// prediction: one per sample, or for sequences one per position, sample by sample.
    ///
    /// # Errors
    /// [`BatchError`] if the three do not fit together.
    pub fn new(x: Vec<f32>, shape: impl Into<Vec<usize>>, y: Vec<u32>) -> Result<Self, BatchError> {
        let shape = shape.into();
        match y.len() {
            0 => Err(BatchError::Labels { samples: Self::unlabelled(x, shape)?.len(), labels: 0 }),
            _ => Self::with_targets(x, shape, Targets::Classes(y)),
        }
    }

    /// A batch of samples of any task, as many targets for each; [unlabelled](Self::unlabelled) without any.
    ///
    /// # Errors
    /// [`BatchError`] if the three do not fit together.
    pub fn with_targets(x: Vec<f32>, shape: impl Into<Vec<usize>>, y: Targets) -> Result<Self, BatchError> {
        let batch = Self::unlabelled(x, shape)?;
        let samples = batch.len();
        if !y.len().is_multiple_of(samples) {
            return Err(BatchError::Labels { samples, labels: y.len() });
        }
        Ok(Self { y, ..batch })
    }

    /// A batch without labels, for prediction or learning from pseudo-labels. Operations that need labels refuse it.
    ///
    /// # Errors
    /// [`BatchError`] if there are none, or the values are not as many as the shape says.
    pub fn unlabelled(x: Vec<f32>, shape: impl Into<Vec<usize>>) -> Result<Self, BatchError> {
        let shape = shape.into();
        if !matches!(shape.first(), Some(1..)) {
            return Err(BatchError::Empty { shape });
        }
        if element_count(&shape) != Some(x.len()) {
            return Err(BatchError::Values { shape, values: x.len() });
        }
        Ok(Self { x, shape, y: Targets::default(), features: None })
    }

    /// The samples, row-major.
    #[must_use]
    pub fn x(&self) -> &[f32] {
        &self.x
    }

    /// The number of samples, followed by the shape of one.
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The class labels, sample by sample; empty if the batch is unlabelled or of another task.
    #[must_use]
    pub fn y(&self) -> &[u32] {
        self.y.classes()
    }

    /// What is to be learned of the samples.
    #[must_use]
    pub fn targets(&self) -> &Targets {
        &self.y
    }

    /// The same batch with its features, `[n, ...]`: networks with a frozen extractor begin with them, and all of those that see
    /// the batch must have the extractor that gave them. Other networks begin with the samples.
    #[must_use]
    pub fn with_features(self, features: Vec<f32>) -> Self {
        Self { features: Some(features), ..self }
    }

    /// The features, if it has them.
    pub(crate) fn features(&self) -> Option<&[f32]> {
        self.features.as_deref()
    }

    /// The buffers of samples and targets, for reuse.
    #[must_use]
    pub fn into_buffers(self) -> (Vec<f32>, Targets) {
        (self.x, self.y)
    }

    /// The number of samples, at least 1.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a batch is never empty")]
    pub fn len(&self) -> usize {
        self.shape[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_must_belong_together() {
        assert_eq!(Batch::new(vec![0.0; 6], [2, 3], vec![0, 1]).map(|b| b.len()), Ok(2));
        assert_eq!(Batch::new(vec![0.0; 6], [2, 3], vec![0; 6]).map(|b| b.len()), Ok(2));
        assert_eq!(Batch::new(vec![], [], vec![]), Err(BatchError::Empty { shape: vec![] }));
        assert_eq!(Batch::new(vec![], [0, 3], vec![]), Err(BatchError::Empty { shape: vec![0, 3] }));
        let values = BatchError::Values { shape: vec![2, 3], values: 5 };
        assert_eq!(Batch::new(vec![0.0; 5], [2, 3], vec![0, 1]), Err(values));
        for labels in [0, 1, 3] {
            let error = BatchError::Labels { samples: 2, labels };
            assert_eq!(Batch::new(vec![0.0; 6], [2, 3], vec![0; labels]), Err(error));
        }
        let unlabelled = |shape: [usize; 2]| Batch::unlabelled(vec![0.0; 6], shape);
        assert_eq!(unlabelled([2, 3]).map(|batch| (batch.len(), batch.y().len())), Ok((2, 0)));
        assert_eq!(unlabelled([2, 4]), Err(BatchError::Values { shape: vec![2, 4], values: 6 }));
        assert_eq!(unlabelled([0, 3]), Err(BatchError::Empty { shape: vec![0, 3] }));
    }
}
