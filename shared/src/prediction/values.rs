//! Predictions of models whose task is not classification: a number for each output.

use std::ops::ControlFlow;

use models::{BatchError, Evaluation, Mode, ModelError, Network, Task, answer, evaluate_one};

use crate::data::{Preparation, View};

/// What a model says of one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct ValueRow {
    /// The sample's position in the data, counted from 0.
    pub sample: usize,
    /// For several labels the probability of each class, 0 to 1; for regression the numbers.
    pub values: Vec<f32>,
    /// Whether these are probabilities of classes.
    pub flags: bool,
    /// What is true of it, as many: 1 or 0 for each class, or the numbers; empty if it is not known.
    pub truth: Vec<f32>,
}

impl ValueRow {
    /// The classes that the model says apply: those more probable than not.
    pub fn set(&self) -> impl Iterator<Item = u32> {
        (0..)
            .zip(&self.values)
            .filter(|(_, probability)| self.flags && **probability > 0.5)
            .map(|(class, _)| class)
    }
}

/// Why there are no predictions.
#[derive(Debug, thiserror::Error)]
pub enum ValueError {
    /// The samples are not what the model takes.
    #[error("the samples do not fit the model: {0}")]
    Samples(#[from] BatchError),
    /// The model cannot be run on them.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// It computes no finite numbers for one of them.
    #[error(
        "the model computes no finite numbers for sample {sample}: its training has diverged, or the sample is far from all that \
             it has learned of"
    )]
    NotFinite {
        /// The sample, counted from 0.
        sample: usize,
    },
}

/// Predicts samples in order, `size` at a time, and passes what it says of each to `each`, which may break to end early. Gives how
/// it does on those passed, as far as it is known what is true of them.
///
/// # Errors
/// [`ValueError`].
///
/// # Panics
/// If the network's task is classification.
pub fn predict_values(
    network: &mut Network,
    preparation: &Preparation,
    data: &View,
    size: usize,
    each: &mut dyn FnMut(ValueRow) -> ControlFlow<()>,
) -> Result<Evaluation, ValueError> {
    let (task, outputs) = (network.architecture().task, network.architecture().classes);
    let input = network.architecture().input.clone();
    let mut whole = Evaluation::default();
    let positions: Vec<usize> = (0..data.len()).collect();
    for chunk in positions.chunks(size.max(1)) {
        let batch = preparation.batch(data, chunk, &input)?;
        if !batch.targets().is_empty() {
            network.check_labels(&batch)?;
        }
        network.forward_batch(&batch, Mode::Evaluation)?;
        let mut truths = batch.targets().values().chunks_exact(outputs);
        for (&sample, said) in chunk.iter().zip(network.logits().chunks_exact(outputs)) {
            if said.iter().any(|value| !value.is_finite()) {
                return Err(ValueError::NotFinite { sample });
            }
            let truth = truths.next().unwrap_or_default();
            if !truth.is_empty() {
                whole = whole.merge(evaluate_one(task, said, truth));
            }
            let row = ValueRow {
                sample,
                values: answer(task, said),
                flags: task == Task::MultiLabel,
                truth: truth.to_vec(),
            };
            if each(row).is_break() {
                return Ok(whole);
            }
        }
    }
    Ok(whole)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use models::{Architecture, Array, Backend, Measure, ParamSet};

    use super::*;
    use crate::data::{Dataset, Samples};

    /// A network whose only output is its input.
    fn network(task: Task) -> Network {
        let architecture = Architecture { task, ..Architecture::by_name("linear", &[1], 1).unwrap() };
        let mut params = ParamSet::new();
        params.insert("head.fc.weight", Array::new([1, 1], vec![1.0]).unwrap());
        params.insert("head.fc.bias", Array::zeros([1]));
        Network::new(&architecture, &params, &Backend::cpu()).unwrap()
    }

    #[test]
    fn what_is_said_is_compared_with_what_is_true_where_that_is_known() {
        let samples = || Samples::Floats(vec![0.0, 2.0, -3.0]);
        let data = Dataset::valued(vec![1], samples(), vec![1.0, 2.0, -1.0], 1).unwrap();
        let (data, mut rows) = (View::whole(Arc::new(data)), Vec::new());
        let mut of = |data: &View, task, last: usize| {
            rows.clear();
            let found = predict_values(&mut network(task), &Preparation::default(), data, 2, &mut |row| {
                rows.push(row.clone());
                if row.sample == last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            (found.unwrap(), rows.clone())
        };
        let regression = Task::Regression { huber: None };
        let (found, rows) = of(&data, regression, 9);
        assert_eq!((found.samples, found.deviation.measures()[0]), (3, (Measure::Mae, 1.0)));
        assert_eq!(rows[2], ValueRow { sample: 2, values: vec![-3.0], flags: false, truth: vec![-1.0] });
        assert_eq!(of(&data, regression, 1).0.samples, 2);
        let unknown = View::whole(Arc::new(Dataset::unlabelled(vec![1], samples()).unwrap()));
        let (found, rows) = of(&unknown, Task::MultiLabel, 9);
        assert_eq!(
            (found, &rows[0]),
            (Evaluation::default(), &ValueRow { sample: 0, values: vec![0.5], flags: true, truth: vec![] })
        );
    }
}
