//! Predictions for single samples, and their accuracy.

mod values;

pub use values::{ValueError, ValueRow, predict_values};

/// The prediction for one sample, or for one position of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The sample's position in the data, counted from 0.
    pub sample: usize,
    /// The class with the largest probability; the first of equals.
    pub class: u32,
    /// The probability of each class, 0 to 1.
    pub probabilities: Vec<f64>,
    /// The true class, if it is known.
    pub label: Option<u32>,
    /// The weight of the global model in the answer, 0 to 1, if it is a personal model's.
    pub gate: Option<f32>,
}

impl Row {
    /// The probability of the predicted class.
    #[must_use]
    pub fn probability(&self) -> f64 {
        self.probabilities.get(self.class as usize).copied().unwrap_or(0.0)
    }

    /// The `count` most probable classes with their probabilities, the most probable first, of equals the first.
    #[must_use]
    pub fn top(&self, count: usize) -> Vec<(u32, f64)> {
        let mut all: Vec<(u32, f64)> = (0..).zip(self.probabilities.iter().copied()).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.truncate(count);
        all
    }
}

/// The accuracy of predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Number of predictions with a label: one for each sample, or for each position of a text.
    pub samples: usize,
    /// Predictions whose class is the label.
    pub correct: usize,
}

impl Score {
    /// Counts a prediction, if its label is known.
    pub fn add(&mut self, row: &Row) {
        if let Some(label) = row.label {
            self.samples += 1;
            self.correct += usize::from(row.class == label);
        }
    }

    /// The share of predictions that are right, 0 to 1; 0 without samples.
    #[must_use]
    pub fn accuracy(self) -> f64 {
        if self.samples == 0 { 0.0 } else { self.correct as f64 / self.samples as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_probable_classes_come_first_and_of_equals_the_first() {
        let row =
            Row { sample: 0, class: 1, probabilities: vec![0.2, 0.4, 0.2, 0.2], label: None, gate: None };
        assert!((row.probability() - 0.4).abs() < 1e-12);
        assert_eq!(row.top(3), [(1, 0.4), (0, 0.2), (2, 0.2)]);
        assert_eq!(row.top(9).len(), 4);
    }

    #[test]
    fn only_what_has_a_label_counts() {
        let mut score = Score::default();
        for label in [Some(0), Some(1), None] {
            score.add(&Row { sample: 0, class: 1, probabilities: vec![0.1, 0.9], label, gate: None });
        }
        assert_eq!((score, score.accuracy()), (Score { samples: 2, correct: 1 }, 0.5));
    }
}
