//! The two tests of a personal model (Guo et al. 2021, section 4.2).
//!
//! ```text
//! local test of client i   sum_c acc_c p_i(c)    acc_c accuracy on the test samples of class c, p_i(c) its share of the
//!                                                client's labels
//! global test              the accuracy on all test samples
//! ```
//!
//! The local test is so to speak of a test set in which classes are as frequent as on the device, however few samples that
//! has. Classes that the test set has no sample of say nothing: the local test is of the others alone.

/// How often a model was right, class by class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Of each class: test samples, and those of them that were told right.
    classes: Vec<(u64, u64)>,
}

/// Both tests of one model. Neither without test samples; no local one if the test set has no class of the device's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Scores {
    /// The local test, from 0 to 1.
    pub local: Option<f64>,
    /// The global test, from 0 to 1.
    pub global: Option<f64>,
}

impl Tally {
    /// Of no samples of this number of classes.
    #[must_use]
    pub fn new(classes: usize) -> Self {
        Self { classes: vec![(0, 0); classes] }
    }

    /// Counts a test sample of the class `label`.
    ///
    /// # Panics
    /// If there is no such class.
    pub fn count(&mut self, label: u32, predicted: u32) {
        let (samples, right) = &mut self.classes[label as usize];
        *samples += 1;
        *right += u64::from(label == predicted);
    }

    /// The number of test samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.classes.iter().map(|(samples, _)| samples).sum()
    }

    /// The accuracy on all test samples; `None` if there are none.
    #[must_use]
    pub fn global(&self) -> Option<f64> {
        let right: u64 = self.classes.iter().map(|(_, right)| right).sum();
        let samples = self.samples();
        (samples > 0).then(|| right as f64 / samples as f64)
    }

    /// The accuracy with classes as frequent as on a device with these numbers of labels.
    #[must_use]
    pub fn local(&self, histogram: &[usize]) -> Option<f64> {
        let (mut sum, mut labels) = (0.0, 0);
        for (&(samples, right), &own) in self.classes.iter().zip(histogram) {
            if samples > 0 {
                sum += own as f64 * (right as f64 / samples as f64);
                labels += own;
            }
        }
        (labels > 0).then(|| sum / labels as f64)
    }

    /// Both.
    #[must_use]
    pub fn scores(&self, histogram: &[usize]) -> Scores {
        Scores { local: self.local(histogram), global: self.global() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tests_by_hand() {
        let mut tally = Tally::new(3);
        // Class 0: 3 of 4 right; class 1: 1 of 2; class 2: 0 of 1.
        for (label, predicted) in [(0, 0), (0, 0), (0, 0), (0, 1), (1, 1), (1, 0), (2, 1)] {
            tally.count(label, predicted);
        }
        assert_eq!((tally.samples(), tally.global()), (7, Some(4.0 / 7.0)));
        // 60 % of class 0 and 40 % of class 2: 0.6 * 3/4 + 0.4 * 0.
        assert!((tally.local(&[6, 0, 4]).unwrap() - 0.45).abs() < 1e-12);
        assert!((tally.local(&[1, 1, 2]).unwrap() - (0.75 + 0.5) / 4.0).abs() < 1e-12);
        // One class alone.
        assert_eq!(tally.local(&[0, 9, 0]), Some(0.5));
    }

    #[test]
    fn classes_without_test_samples_are_left_out() {
        let mut tally = Tally::new(3);
        assert_eq!(tally.scores(&[1, 2, 3]), Scores::default());
        tally.count(1, 1);
        tally.count(1, 0);
        assert_eq!(tally.scores(&[5, 5, 0]), Scores { local: Some(0.5), global: Some(0.5) });
        assert_eq!(tally.scores(&[5, 0, 5]), Scores { local: None, global: Some(0.5) });
    }
}
