//! Predictions for single samples, and their accuracy.

/// The prediction for one sample, or for one position of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The sample's position in the data, counted from 0.
    pub sample: usize,
    /// The class with the largest probability.
    pub class: u32,
    /// Its probability, 0 to 1.
    pub probability: f64,
    /// The true class.
    pub label: u32,
    /// The weight of the global model in the answer, 0 to 1, if it is a personal model's.
    pub gate: Option<f32>,
}

/// The accuracy of predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Score {
    /// Number of predictions: one for each sample, or for each position of a text.
    pub samples: usize,
    /// Predictions whose class is the label.
    pub correct: usize,
}

impl Score {
    /// Counts a prediction.
    pub fn add(&mut self, row: &Row) {
        self.samples += 1;
        self.correct += usize::from(row.class == row.label);
    }

    /// The share of predictions that are right, 0 to 1; 0 without samples.
    #[must_use]
    pub fn accuracy(self) -> f64 {
        if self.samples == 0 { 0.0 } else { self.correct as f64 / self.samples as f64 }
    }
}
