//! Evaluation of a model on a client's samples.

use std::ops::ControlFlow;

use models::{Backend, Evaluation, Network, ParamSet, evaluate};

use crate::algorithm::TrainError;
use crate::data::View;
use crate::spec::RunSpec;

/// Samples per forward pass: bounds memory, not the result.
pub(crate) const BATCH: usize = 64;

/// Loss and accuracy of `params` on `samples`, with the preparation of samples for evaluation. `go_on` is called between batches
/// and may break to cancel.
pub fn test(
    spec: &RunSpec,
    params: &ParamSet,
    samples: &View,
    device: &Backend,
    go_on: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Evaluation, TrainError> {
    let preparation = &spec.data.preparation;
    preparation.shape(samples.shape())?;
    let mut network = Network::new(&spec.architecture, params, device)?;
    let order: Vec<usize> = (0..samples.len()).collect();
    let mut whole = Evaluation::default();
    for positions in order.chunks(BATCH) {
        if go_on().is_break() {
            return Err(TrainError::Cancelled);
        }
        let batch = preparation.batch(samples, positions, &spec.architecture.input)?;
        whole = whole.merge(evaluate(&mut network, [&batch])?);
    }
    Ok(whole)
}
