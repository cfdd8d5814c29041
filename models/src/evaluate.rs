//! Evaluation: a network's loss and accuracy on labelled samples, and its predictions.

use std::borrow::Borrow;

use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::error::ModelError;
use crate::loss::log_sum_exp;
use crate::mode::Mode;
use crate::network::Network;
use crate::per_class::PerClass;

/// Loss and accuracy of a network on some samples. The default, for no samples, is neutral under [`Evaluation::merge`].
///
/// If a network makes a prediction at every position of a sample, each prediction counts as a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Evaluation {
    /// The mean cross-entropy in nats; 0 if there are no samples.
    pub loss: f64,
    /// The fraction of samples classified correctly, from 0 to 1; 0 if there are no samples.
    pub accuracy: f64,
    /// The number of samples.
    pub samples: usize,
    /// The number of samples classified correctly.
    pub correct: usize,
}

impl Evaluation {
    /// The evaluation of both sets of samples together.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        let sum = self.loss * self.samples as f64 + other.loss * other.samples as f64;
        Self::from_sums(sum, self.samples + other.samples, self.correct + other.correct)
    }

    fn from_sums(loss: f64, samples: usize, correct: usize) -> Self {
        if samples == 0 {
            return Self::default();
        }
        let accuracy = correct as f64 / samples as f64;
        Self { loss: loss / samples as f64, accuracy, samples, correct }
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

/// [`evaluate`], with the results of each class.
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

/// Evaluates, and passes the label, the logits and the logarithm of the sum of their exponentials of each prediction to `each`.
fn evaluate_each<B: Borrow<Batch>>(
    network: &mut Network,
    batches: impl IntoIterator<Item = B>,
    mut each: impl FnMut(u32, &[f32], f64),
) -> Result<Evaluation, ModelError> {
    let (mut loss, mut samples, mut correct) = (0.0, 0, 0);
    for batch in batches {
        let batch = batch.borrow();
        network.check_labels(batch)?;
        network.forward(batch.x(), batch.shape(), Mode::Evaluation)?;
        let classes = network.architecture().classes;
        for (logits, &label) in network.logits().chunks_exact(classes).zip(batch.y()) {
            let log_total = log_sum_exp(logits);
            loss += log_total - f64::from(logits[label as usize]);
            correct += usize::from(argmax(logits) == label as usize);
            samples += 1;
            each(label, logits, log_total);
        }
    }
    Ok(Evaluation::from_sums(loss, samples, correct))
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
    use crate::device::Backend;
    use crate::params::{Array, ParamSet};

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
        assert_eq!(evaluation.accuracy, 2.0 / 3.0);
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
