//! Evaluation of a model on a client's samples.

use std::ops::ControlFlow;

use models::{Backend, Evaluation, Network, ParamSet, PerClass, evaluate, evaluate_by_class};

use crate::algorithm::TrainError;
use crate::by_class::ByClass;
use crate::data::View;
use crate::spec::RunSpec;

/// Samples per forward pass: bounds memory, not the result.
pub(crate) const BATCH: usize = 64;

/// Loss and accuracy of `params` on `samples`, with the preparation of samples for evaluation; and the results by class if the run
/// asks for them, else none. `go_on` is called between batches and may break to cancel.
pub fn test(
    spec: &RunSpec,
    params: &ParamSet,
    samples: &View,
    device: &Backend,
    go_on: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<(Evaluation, ByClass), TrainError> {
    let preparation = &spec.data.preparation;
    preparation.shape(samples.shape())?;
    let mut network = Network::new(&spec.architecture, params, device)?;
    let order: Vec<usize> = (0..samples.len()).collect();
    let mut whole = Evaluation::default();
    let mut found = spec.evaluate.by_class.then(|| PerClass::new(spec.architecture.classes));
    for positions in order.chunks(BATCH) {
        if go_on().is_break() {
            return Err(TrainError::Cancelled);
        }
        let batch = preparation.batch(samples, positions, &spec.architecture.input)?;
        let part = match found.take() {
            None => evaluate(&mut network, [&batch])?,
            Some(before) => {
                let (part, by_class) = evaluate_by_class(&mut network, [&batch])?;
                found = Some(before.merge(&by_class));
                part
            }
        };
        whole = whole.merge(part);
    }
    Ok((whole, found.as_ref().map(ByClass::from).unwrap_or_default()))
}
