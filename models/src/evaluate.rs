//! Evaluation: how a network does on labelled samples, and its predictions.

use std::borrow::Borrow;

use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::deviation::{Deviation, is_flagged, is_set};
use crate::error::ModelError;
use crate::loss::{cross_entropy_of_flag, huber_of, log_sum_exp, sigmoid, squared};
use crate::mode::Mode;
use crate::network::Network;
use crate::per_class::PerClass;
use crate::task::Task;

/// How a network does on some samples. The default, for no samples, is neutral under [`Evaluation::merge`].
///
/// If a network makes a prediction at every position of a sample, each prediction counts as a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Evaluation {
    /// The mean of the task's loss, the cross-entropy in nats for classification; 0 if there are no samples.
    pub loss: f64,
    /// The fraction of samples that are right, from 0 to 1: in their class, or in every flag. `None` for numbers, and without
    /// samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accuracy: Option<f64>,
    /// The number of samples.
    pub samples: usize,
    /// The number of samples that are right.
    pub correct: usize,
    /// What is measured beside that, if the task is not classification.
    #[serde(default, skip_serializing_if = "is_none")]
    pub deviation: Deviation,
}

fn is_none(deviation: &Deviation) -> bool {
    *deviation == Deviation::None
}

impl Evaluation {
    /// The evaluation of both sets of samples together.
    ///
    /// # Panics
    /// If they are of different tasks.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        Sums::from(self).merge(Sums::from(other)).finish()
    }
}

/// An evaluation while its samples are counted.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    loss: f64,
    samples: usize,
    correct: usize,
    deviation: Deviation,
    /// Whether samples are right or wrong.
    is_decided: bool,
}

impl Sums {
    fn merge(self, other: Self) -> Self {
        Self {
            loss: self.loss + other.loss,
            samples: self.samples + other.samples,
            correct: self.correct + other.correct,
            deviation: self.deviation.merge(other.deviation),
            is_decided: self.is_decided || other.is_decided,
        }
    }

    fn finish(self) -> Evaluation {
        let Self { loss, samples, correct, deviation, is_decided } = self;
        if samples == 0 {
            return Evaluation::default();
        }
        let accuracy = is_decided.then(|| correct as f64 / samples as f64);
        Evaluation { loss: loss / samples as f64, accuracy, samples, correct, deviation }
    }
}

impl From<Evaluation> for Sums {
    fn from(evaluation: Evaluation) -> Self {
        let Evaluation { loss, accuracy, samples, correct, deviation } = evaluation;
        Self { loss: loss * samples as f64, samples, correct, deviation, is_decided: accuracy.is_some() }
    }
}

/// A network's prediction for one sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// The most probable class; the first of equals.
    pub class: u32,
    /// The probability of each class.
    pub probabilities: Vec<f32>,
}

impl Prediction {
    /// The softmax of one logit per class.
    ///
    /// # Panics
    /// If there is no class.
    #[must_use]
    pub fn from_logits(logits: &[f32]) -> Self {
        let log_total = log_sum_exp(logits);
        let probabilities = logits.iter().map(|&logit| (f64::from(logit) - log_total).exp() as f32).collect();
        Self { class: argmax(logits) as u32, probabilities }
    }

    /// From the probability of each class.
    ///
    /// # Panics
    /// If there is no class.
    #[must_use]
    pub fn from_probabilities(probabilities: Vec<f32>) -> Self {
        Self { class: argmax(&probabilities) as u32, probabilities }
    }
}

/// Evaluates a network on batches. Sums are taken in `f64` on the host in the order of the samples, so that the result does
/// not depend on the threads.
///
/// # Errors
/// [`ModelError::Input`], [`ModelError::Token`], [`ModelError::Label`] or [`ModelError::Labels`] for a batch that does
/// not fit, [`ModelError::Candle`] if the device fails. A loss that is not finite is a valid result.
pub fn evaluate<B: Borrow<Batch>>(
    network: &mut Network,
    batches: impl IntoIterator<Item = B>,
) -> Result<Evaluation, ModelError> {
    evaluate_each(network, batches, |_, _, _| {})
}

/// [`evaluate`], with the results of each class; none if the task is not classification.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_by_class<B: Borrow<Batch>>(
    network: &mut Network,
    batches: impl IntoIterator<Item = B>,
) -> Result<(Evaluation, PerClass), ModelError> {
    let mut by_class = PerClass::new(network.architecture().classes);
    let evaluation = evaluate_each(network, batches, |label, logits, log_total| {
        let class = argmax(logits);
        by_class.count(label, class as u32, (f64::from(logits[class]) - log_total).exp());
    })?;
    Ok((evaluation, by_class))
}

/// Evaluates, and passes the label, the logits and the logarithm of the sum of their exponentials of each classification to `each`.
fn evaluate_each<B: Borrow<Batch>>(
    network: &mut Network,
    batches: impl IntoIterator<Item = B>,
    mut each: impl FnMut(u32, &[f32], f64),
) -> Result<Evaluation, ModelError> {
    let mut sums = Sums::default();
    for batch in batches {
        let batch = batch.borrow();
        network.check_labels(batch)?;
        network.forward(batch.x(), batch.shape(), Mode::Evaluation)?;
        let (task, classes) = (network.architecture().task, network.architecture().classes);
        let rows = network.logits().chunks_exact(classes);
        if task.is_classification() {
            sums.is_decided = true;
            for (logits, &label) in rows.zip(batch.y()) {
                let log_total = log_sum_exp(logits);
                sums.loss += log_total - f64::from(logits[label as usize]);
                sums.correct += usize::from(argmax(logits) == label as usize);
                sums.samples += 1;
                each(label, logits, log_total);
            }
        } else {
            let targets = batch.targets().values().chunks_exact(classes);
            sums = rows.zip(targets).fold(sums, |sums, (outputs, targets)| {
                sums.merge(Sums::from(evaluate_one(task, outputs, targets)))
            });
        }
    }
    Ok(sums.finish())
}

/// How the outputs of one prediction do against its targets, where those are numbers.
///
/// # Panics
/// If the task is classification, or there are no outputs.
#[must_use]
pub fn evaluate_one(task: Task, outputs: &[f32], targets: &[f32]) -> Evaluation {
    let pairs = || outputs.iter().copied().zip(targets.iter().copied());
    let mean =
        |loss: &dyn Fn(f32, f32) -> f64| pairs().map(|(x, y)| loss(x, y)).sum::<f64>() / outputs.len() as f64;
    let loss = match task {
        Task::Classification => panic!("the target of classification is a class"),
        Task::MultiLabel => mean(&cross_entropy_of_flag),
        Task::Regression { huber: None } => mean(&squared),
        Task::Regression { huber: Some(delta) } => mean(&|x, y| huber_of(x, y, delta)),
    };
    let is_decided = task == Task::MultiLabel;
    let right = is_decided && pairs().all(|(x, y)| is_set(x) == is_flagged(y));
    let deviation = Deviation::of(task, outputs, targets);
    Sums { loss, samples: 1, correct: usize::from(right), deviation, is_decided }.finish()
}

/// What a model of this task says by the outputs of a prediction: for several labels the probability of each class, for
/// regression the numbers.
#[must_use]
pub fn answer(task: Task, outputs: &[f32]) -> Vec<f32> {
    match task {
        Task::MultiLabel => outputs.iter().map(|&logit| sigmoid(logit) as f32).collect(),
        Task::Classification | Task::Regression { .. } => outputs.to_vec(),
    }
}

/// The predictions for a batch, in order: one per sample, or for sequences one per position. Labels are ignored.
///
/// # Errors
/// [`ModelError::Input`] for samples that do not fit, [`ModelError::Candle`] if the device fails.
pub fn predict(network: &mut Network, batch: &Batch) -> Result<Vec<Prediction>, ModelError> {
    network.forward(batch.x(), batch.shape(), Mode::Evaluation)?;
    let classes = network.architecture().classes;
    Ok(network.logits().chunks_exact(classes).map(Prediction::from_logits).collect())
}

/// The index of the largest value, the first of equals. NaN is never the largest.
///
/// # Panics
/// If there are no values.
#[must_use]
pub fn argmax(logits: &[f32]) -> usize {
    let mut best = 0;
    for (index, &logit) in logits.iter().enumerate() {
        if logit > logits[best] || (logits[best].is_nan() && !logit.is_nan()) {
            best = index;
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::architecture::Architecture;
    use crate::deviation::Measure;
    use crate::device::Backend;
    use crate::params::{Array, ParamSet};
    use crate::targets::Targets;

    /// A linear model whose logits are its inputs.
    fn identity() -> Network {
        let architecture = Architecture::by_name("linear", &[3], 3).unwrap();
        let mut params = ParamSet::new();
        let eye = vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0];
        params.insert("head.fc.weight", Array::new([3, 3], eye).unwrap());
        params.insert("head.fc.bias", Array::zeros([3]));
        Network::new(&architecture, &params, &Backend::cpu()).unwrap()
    }

    fn batch(x: &[[f32; 3]], y: &[u32]) -> Batch {
        Batch::new(x.concat(), [x.len(), 3], y.to_vec()).unwrap()
    }

    #[test]
    fn loss_and_accuracy_in_closed_form() {
        let row = [0.0, 2f32.ln(), 5f32.ln()];
        let all = batch(&[row, row, [1.0; 3]], &[2, 1, 0]);
        let evaluation = evaluate(&mut identity(), [&all]).unwrap();
        // Probabilities 5/8, 2/8 and 1/3; the first and the last, a tie that goes to class 0, are right.
        let expected = ((8.0f64 / 5.0).ln() + 4f64.ln() + 3f64.ln()) / 3.0;
        assert!((evaluation.loss - expected).abs() < 1e-6);
        assert_eq!((evaluation.samples, evaluation.correct), (3, 2));
        assert_eq!(evaluation.accuracy, Some(2.0 / 3.0));
    }

    #[test]
    fn other_tasks_are_measured_by_what_they_predict() {
        let of = |task: Task, y: &[f32]| {
            let architecture = Architecture { task, ..identity().architecture().clone() };
            let mut network =
                Network::new(&architecture, &identity().params().unwrap(), &Backend::cpu()).unwrap();
            let x = vec![0.0, 3f32.ln(), -1.0, 2.0, 1.0, 0.5];
            let batch = Batch::with_targets(x, [2, 3], Targets::Values(y.to_vec())).unwrap();
            evaluate_by_class(&mut network, [&batch]).unwrap()
        };
        let (flags, by_class) = of(Task::MultiLabel, &[0.0, 1.0, 0.0, 1.0, 1.0, 0.0]);
        assert_eq!((flags.samples, flags.correct, flags.accuracy), (2, 1, Some(0.5)));
        assert_eq!(flags.deviation, Deviation::Flags { hits: 3, false_alarms: 1, misses: 0 });
        let soft = |x: f64| x.exp().ln_1p();
        let expected =
            (2f64.ln() + soft(-(3f64.ln())) + soft(-1.0) + soft(-2.0) + soft(-1.0) + soft(0.5)) / 6.0;
        assert!((flags.loss - expected).abs() < 1e-6, "{} {expected}", flags.loss);
        assert_eq!(by_class, PerClass::new(3));
        let (numbers, _) = of(Task::Regression { huber: None }, &[0.0, 3f32.ln(), 1.0, 2.0, 1.0, 3.5]);
        assert_eq!((numbers.samples, numbers.correct, numbers.accuracy), (2, 0, None));
        assert!((numbers.loss - 13.0 / 6.0).abs() < 1e-6, "{}", numbers.loss);
        assert_eq!(numbers.deviation.measures()[0], (Measure::Mae, 5.0 / 6.0));
        let (huber, _) = of(Task::Regression { huber: Some(1.0) }, &[0.0, 3f32.ln(), 1.0, 2.0, 1.0, 3.5]);
        assert!((huber.loss - (1.5 + 2.5) / 6.0).abs() < 1e-6, "{}", huber.loss);
        assert_eq!(numbers.merge(numbers).deviation.measures()[0], (Measure::Mae, 5.0 / 6.0));
        let near = |found: Vec<f32>, expected: [f32; 2]| {
            found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6)
        };
        assert!(near(answer(Task::MultiLabel, &[0.0, 3f32.ln()]), [0.5, 0.75]));
        assert!(near(answer(Task::Regression { huber: None }, &[0.0, 3.0]), [0.0, 3.0]));
    }

    #[test]
    fn merging_is_evaluating_together() {
        let mut network = identity();
        let a = batch(&[[0.3, 0.1, -2.0], [1.0, 2.0, 3.0]], &[0, 0]);
        let b = batch(&[[0.0, -1.0, 4.0]], &[2]);
        let merged = evaluate(&mut network, [&a]).unwrap().merge(evaluate(&mut network, [&b]).unwrap());
        let together = evaluate(&mut network, [a, b]).unwrap();
        assert!((merged.loss - together.loss).abs() < 1e-12);
        assert_eq!((merged.samples, merged.correct, merged.accuracy), (3, 2, together.accuracy));
        assert_eq!(together.merge(Evaluation::default()), Evaluation { loss: together.loss, ..together });
        assert_eq!(evaluate(&mut network, Vec::<Batch>::new()).unwrap(), Evaluation::default());
    }

    #[test]
    fn a_logit_that_is_not_a_number_is_never_the_largest() {
        for (logits, expected) in [
            ([f32::NAN, 1.0, 2.0], 2),
            ([f32::NAN, -1.0, -2.0], 1),
            ([3.0, f32::NAN, 3.0], 0),
            ([f32::NAN; 3], 0),
        ] {
            assert_eq!(argmax(&logits), expected, "{logits:?}");
        }
    }

    #[test]
    fn predictions_are_the_softmax() {
        let predictions =
            predict(&mut identity(), &batch(&[[0.0, 2f32.ln(), 5f32.ln()], [900.0, 0.0, 0.0]], &[0, 9]));
        let predictions = predictions.unwrap();
        assert_eq!((predictions[0].class, predictions[1].class), (2, 0));
        for (found, expected) in predictions[0].probabilities.iter().zip([0.125, 0.25, 0.625]) {
            assert!((found - expected).abs() < 1e-6);
        }
        assert_eq!(predictions[1].probabilities, [1.0, 0.0, 0.0]);
    }

    #[test]
    fn a_label_out_of_range_is_an_error() {
        let result = evaluate(&mut identity(), [batch(&[[0.0; 3]], &[3])]);
        assert!(matches!(result, Err(ModelError::Label { label: 3, classes: 3 })));
    }
}
