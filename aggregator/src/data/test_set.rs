//! The aggregator's test set.

use models::{Architecture, Backend, BatchError, Evaluation, ModelError, Network, ParamSet, evaluate};
use rayon::prelude::*;
use shared::data::{Preparation, Skipped, View};

use crate::ensemble::Question;

/// Why a model cannot be tested.
#[derive(Debug, thiserror::Error)]
pub enum EvaluateError {
    /// The test samples are not what the model takes.
    #[error("the test samples do not fit the model: {0}")]
    Samples(#[from] BatchError),
    /// The model cannot be built, or fails on the samples.
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// A test set, and the number of its samples in a batch.
#[derive(Clone, Debug)]
pub struct TestSet {
    view: View,
    preparation: Preparation,
    batch: usize,
}

impl TestSet {
    /// Tests on `view`, prepared as for a network in use, `batch` samples at a time.
    #[must_use]
    pub fn new(view: View, preparation: Preparation, batch: usize) -> Self {
        Self { view, preparation, batch: batch.max(1) }
    }

    /// The samples.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The samples that were skipped when the test set was read.
    #[must_use]
    pub fn skipped(&self) -> &Skipped {
        self.view.dataset().skipped()
    }

    /// The question to an ensemble about these samples, by no fusion yet.
    #[must_use]
    pub fn question(&self) -> Question<'_> {
        Question { view: &self.view, preparation: &self.preparation, batch: self.batch, fusions: &[] }
    }

    /// Loss and accuracy of `params`, computed on `backend`. Batches are spread over the machine's cores and merged in their
    /// order, so the result does not depend on how many there are.
    pub fn evaluate(
        &self,
        architecture: &Architecture,
        params: &ParamSet,
        backend: &Backend,
    ) -> Result<Evaluation, EvaluateError> {
        // Each worker has its own buffers; the parameters are shared.
        let order: Vec<usize> = (0..self.view.len()).collect();
        let parts = order
            .par_chunks(self.batch)
            .map_init(
                || None,
                |network, positions| -> Result<Evaluation, EvaluateError> {
                    let network = match network {
                        Some(network) => network,
                        None => network.insert(Network::new(architecture, params, backend)?),
                    };
                    let batch = self.preparation.batch(&self.view, positions, &architecture.input)?;
                    Ok(evaluate(network, [&batch])?)
                },
            )
            .collect::<Result<Vec<_>, _>>()?;
        Ok(parts.into_iter().fold(Evaluation::default(), Evaluation::merge))
    }
}
