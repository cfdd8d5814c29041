//! The aggregator's test set.

use models::{
    Architecture, Backend, Batch, BatchError, Evaluation, ModelError, Network, ParamSet, PerClass, evaluate,
    evaluate_by_class,
};
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

    /// [`Self::evaluate`], with the results of each class.
    pub fn evaluate_by_class(
        &self,
        architecture: &Architecture,
        params: &ParamSet,
        backend: &Backend,
    ) -> Result<(Evaluation, PerClass), EvaluateError> {
        let parts = self.each_batch(architecture, params, backend, |network, batch| {
            evaluate_by_class(network, [batch])
        })?;
        let none = (Evaluation::default(), PerClass::new(architecture.classes));
        Ok(parts.into_iter().fold(none, |whole, part| (whole.0.merge(part.0), whole.1.merge(&part.1))))
    }

    /// Loss and accuracy of `params`, computed on `backend`. Batches are spread over the machine's cores and merged in their
    /// order, so the result does not depend on how many there are.
    pub fn evaluate(
        &self,
        architecture: &Architecture,
        params: &ParamSet,
        backend: &Backend,
    ) -> Result<Evaluation, EvaluateError> {
        let parts =
            self.each_batch(architecture, params, backend, |network, batch| evaluate(network, [batch]))?;
        Ok(parts.into_iter().fold(Evaluation::default(), Evaluation::merge))
    }

    /// What `work` makes of each batch, in order.
    fn each_batch<T: Send>(
        &self,
        architecture: &Architecture,
        params: &ParamSet,
        backend: &Backend,
        work: impl Fn(&mut Network, &Batch) -> Result<T, ModelError> + Sync,
    ) -> Result<Vec<T>, EvaluateError> {
        // Each worker has its own buffers; the parameters are shared.
        let order: Vec<usize> = (0..self.view.len()).collect();
        order
            .par_chunks(self.batch)
            .map_init(
                || None,
                |network, positions| -> Result<T, EvaluateError> {
                    let network = match network {
                        Some(network) => network,
                        None => network.insert(Network::new(architecture, params, backend)?),
                    };
                    let batch = self.preparation.batch(&self.view, positions, &architecture.input)?;
                    Ok(work(network, &batch)?)
                },
            )
            .collect()
    }
}
