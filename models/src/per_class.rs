//! Results by class: confusion, precision and recall of each class, and calibration of the probabilities.
//!
//! All of it follows from counts, which are added up sample by sample and merge exactly.

use serde::{Deserialize, Serialize};

/// Bins of confidence in the calibration error, as in Guo et al., ICML 2017.
pub(crate) const BINS: usize = 15;

/// Counts of predictions by class and by confidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Counts", into = "Counts")]
pub struct PerClass {
    classes: usize,
    /// By true class, then by predicted class.
    confusion: Vec<u64>,
    bins: [Bin; BINS],
}

/// [`PerClass`] as it is stored.
#[derive(Serialize, Deserialize)]
struct Counts {
    /// A row for each true class.
    confusion: Vec<Vec<u64>>,
    bins: Vec<Bin>,
}

/// What is stored is no [`PerClass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it has {rows} rows of counts, one of them with {columns}, and {bins} bins: the rows must be as long as they are many, and the bins {BINS}"
)]
pub struct CountsError {
    rows: usize,
    columns: usize,
    bins: usize,
}

impl TryFrom<Counts> for PerClass {
    type Error = CountsError;

    fn try_from(Counts { confusion, bins }: Counts) -> Result<Self, CountsError> {
        let classes = confusion.len();
        let odd = confusion.iter().map(Vec::len).find(|&columns| columns != classes);
        let error = CountsError { rows: classes, columns: odd.unwrap_or(classes), bins: bins.len() };
        let bins = bins.try_into().ok().filter(|_| odd.is_none()).ok_or(error)?;
        Ok(Self { classes, confusion: confusion.concat(), bins })
    }
}

impl From<PerClass> for Counts {
    fn from(found: PerClass) -> Self {
        let confusion = (0..found.classes).map(|label| found.confusion_of(label).to_vec()).collect();
        Self { confusion, bins: found.bins.to_vec() }
    }
}

/// The predictions with a confidence in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// How many.
    pub samples: u64,
    /// How many of them are right.
    pub correct: u64,
    /// The sum of their confidences.
    pub confidence: f64,
}

/// The results of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClassResult {
    /// Samples of the class.
    pub samples: u64,
    /// Samples that were taken for it.
    pub predicted: u64,
    /// Samples of it that were taken for it.
    pub correct: u64,
}

impl ClassResult {
    /// The share of what was taken for the class that is of it; `None` if nothing was.
    #[must_use]
    pub fn precision(&self) -> Option<f64> {
        (self.predicted > 0).then(|| self.correct as f64 / self.predicted as f64)
    }

    /// The share of the class that was taken for it, which is its accuracy; `None` without samples.
    #[must_use]
    pub fn recall(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.correct as f64 / self.samples as f64)
    }

    /// The harmonic mean of precision and recall; `None` if one of them is not known.
    #[must_use]
    pub fn f1(&self) -> Option<f64> {
        let (precision, recall) = (self.precision()?, self.recall()?);
        Some(if self.correct == 0 { 0.0 } else { 2.0 * precision * recall / (precision + recall) })
    }
}

impl PerClass {
    /// No predictions among this many classes.
    #[must_use]
    pub fn new(classes: usize) -> Self {
        Self { classes, confusion: vec![0; classes * classes], bins: [Bin::default(); BINS] }
    }

    /// Counts a prediction: the true class, the predicted one and its probability.
    ///
    /// # Panics
    /// If a class is not below their number.
    pub fn count(&mut self, label: u32, class: u32, probability: f64) {
        assert!(
            (label as usize) < self.classes && (class as usize) < self.classes,
            "classes are below their number"
        );
        self.confusion[label as usize * self.classes + class as usize] += 1;
        // Bin m of 1 to M holds ((m - 1) / M, m / M].
        let bin = ((probability * BINS as f64).ceil() as usize).clamp(1, BINS) - 1;
        let bin = &mut self.bins[bin];
        bin.samples += 1;
        bin.correct += u64::from(label == class);
        bin.confidence += probability;
    }

    /// Adds the counts of other predictions among the same classes.
    #[must_use]
    pub fn merge(mut self, other: &Self) -> Self {
        self.confusion.iter_mut().zip(&other.confusion).for_each(|(own, other)| *own += other);
        for (own, other) in self.bins.iter_mut().zip(&other.bins) {
            own.samples += other.samples;
            own.correct += other.correct;
            own.confidence += other.confidence;
        }
        self
    }

    /// Number of classes.
    #[must_use]
    pub fn classes(&self) -> usize {
        self.classes
    }

    /// How often samples of class `label` were taken for each class.
    #[must_use]
    pub fn confusion_of(&self, label: usize) -> &[u64] {
        &self.confusion[label * self.classes..][..self.classes]
    }

    /// The results of a class.
    #[must_use]
    pub fn class(&self, class: usize) -> ClassResult {
        ClassResult {
            samples: self.confusion_of(class).iter().sum(),
            predicted: (0..self.classes).map(|label| self.confusion_of(label)[class]).sum(),
            correct: self.confusion_of(class)[class],
        }
    }

    /// The bins of confidence, from 0 to 1.
    #[must_use]
    pub fn bins(&self) -> &[Bin] {
        &self.bins
    }

    /// Number of predictions.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.bins.iter().map(|bin| bin.samples).sum()
    }

    /// The expected calibration error: the mean distance of accuracy and confidence in the bins, weighted by their samples (Guo et
    /// al. 2017, equation 3). 0 is perfect; 0 without samples.
    #[must_use]
    pub fn calibration_error(&self) -> f64 {
        let distance = |bin: &Bin| (bin.correct as f64 - bin.confidence).abs();
        self.bins.iter().map(distance).sum::<f64>() / self.samples().max(1) as f64
    }

    /// The mean of the classes' recalls, over those with samples; 0 without samples.
    #[must_use]
    pub fn balanced_accuracy(&self) -> f64 {
        let recalls: Vec<f64> = (0..self.classes).filter_map(|class| self.class(class).recall()).collect();
        recalls.iter().sum::<f64>() / recalls.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_counts_come_back_and_those_that_do_not_fit_are_refused() {
        let mut found = PerClass::new(3);
        for (label, class) in [(0, 0), (0, 1), (2, 0)] {
            found.count(label, class, 0.75);
        }
        let json = serde_json::to_string(&found).unwrap();
        assert_eq!(serde_json::from_str::<PerClass>(&json).unwrap(), found);
        assert!(json.starts_with("{\"confusion\":[[1,1,0],[0,0,0],[1,0,0]],"), "{json}");
        for wrong in [json.replace("[0,0,0]", "[0,0]"), json.replace("[0,0,0],", "")] {
            let said = serde_json::from_str::<PerClass>(&wrong).expect_err(&wrong).to_string();
            assert!(said.contains("rows of counts"), "{said}");
        }
        assert!(serde_json::from_str::<PerClass>("{\"confusion\":[],\"bins\":[]}").is_err());
    }

    #[test]
    fn confusion_precision_and_recall_in_closed_form() {
        let mut found = PerClass::new(3);
        // Of class 0 two are right and one is taken for 1; the only one of class 1 is taken for 0; none is of class 2.
        for (label, class) in [(0, 0), (0, 0), (0, 1), (1, 0)] {
            found.count(label, class, 0.5);
        }
        assert_eq!((found.confusion_of(0), found.confusion_of(1)), (&[2, 1, 0][..], &[1, 0, 0][..]));
        let first = found.class(0);
        assert_eq!(first, ClassResult { samples: 3, predicted: 3, correct: 2 });
        assert_eq!((first.precision(), first.recall()), (Some(2.0 / 3.0), Some(2.0 / 3.0)));
        assert!((first.f1().unwrap() - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(
            (found.class(1).precision(), found.class(1).recall(), found.class(1).f1()),
            (Some(0.0), Some(0.0), Some(0.0))
        );
        assert_eq!(
            (found.class(2).precision(), found.class(2).recall(), found.class(2).f1()),
            (None, None, None)
        );
        assert!((found.balanced_accuracy() - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn calibration_in_closed_form() {
        let mut found = PerClass::new(2);
        assert_eq!(found.calibration_error(), 0.0);
        // Four at 0.9, of which three are right: |0.75 - 0.9|. One at 0.55, which is right: |1 - 0.55|.
        for (label, class, probability) in [(0, 0, 0.9), (0, 0, 0.9), (1, 1, 0.9), (1, 0, 0.9), (0, 0, 0.55)]
        {
            found.count(label, class, probability);
        }
        let expected = (4.0 * 0.15 + 1.0 * 0.45) / 5.0;
        assert!((found.calibration_error() - expected).abs() < 1e-12);
        assert_eq!(found.samples(), 5);
        let mut sure = PerClass::new(2);
        sure.count(0, 0, 1.0);
        assert_eq!(
            (sure.bins()[BINS - 1].samples, sure.calibration_error()),
            (1, 0.0),
            "1 is in the last bin"
        );
        sure.count(0, 1, 0.0);
        assert_eq!(sure.bins()[0].samples, 1, "0 is in the first");
    }
}
