//! Results by class of a device's test, which travel with its update.

use models::{ClassResult, PerClass};
use serde::{Deserialize, Serialize};

/// The most classes that are told apart in reports: what is counted grows with their square.
pub const MOST_CLASSES: usize = 1000;

/// Samples, answers and right answers of each class, in the order of the classes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ByClass(Vec<ClassResult>);

impl From<&PerClass> for ByClass {
    fn from(found: &PerClass) -> Self {
        Self((0..found.classes()).map(|class| found.class(class)).collect())
    }
}

impl ByClass {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The results, class by class.
    #[must_use]
    pub fn classes(&self) -> &[ClassResult] {
        &self.0
    }

    /// Whether these can be the counts of a test among as many classes. A peer may have sent any.
    #[must_use]
    pub fn is_possible(&self, classes: usize) -> bool {
        // Less than the sums over all clients have room for.
        const MOST: u64 = 1 << 40;
        let all = |count: fn(&ClassResult) -> u64| {
            self.0.iter().map(count).try_fold(0, u64::checked_add).filter(|&sum| sum <= MOST)
        };
        self.0.len() == classes
            && self.0.iter().all(|class| class.correct <= class.samples.min(class.predicted))
            && all(|class| class.samples).is_some_and(|sum| all(|class| class.predicted) == Some(sum))
    }

    /// The counts of several tests together, of as many classes each.
    #[must_use]
    pub fn sum<'a>(all: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        for one in all {
            sum.0.resize(one.0.len(), ClassResult::default());
            for (sum, one) in sum.0.iter_mut().zip(&one.0) {
                sum.samples += one.samples;
                sum.predicted += one.predicted;
                sum.correct += one.correct;
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(all: &[[u64; 3]]) -> ByClass {
        let class = |&[samples, predicted, correct]: &[u64; 3]| ClassResult { samples, predicted, correct };
        ByClass(all.iter().map(class).collect())
    }

    #[test]
    fn a_test_is_counted_by_class_and_tests_are_summed() {
        let mut found = PerClass::new(3);
        for (label, class) in [(0, 0), (0, 1), (1, 1), (2, 0)] {
            found.count(label, class, 0.5);
        }
        let one = ByClass::from(&found);
        assert_eq!(one, counts(&[[2, 2, 1], [1, 2, 1], [1, 0, 0]]));
        assert!(one.is_possible(3));
        assert_eq!(ByClass::sum([&one, &one]), counts(&[[4, 4, 2], [2, 4, 2], [2, 0, 0]]));
        assert!(ByClass::sum([]).is_empty());
    }

    #[test]
    fn counts_of_no_test_are_impossible() {
        for impossible in [
            &[[1, 1, 1]][..],
            &[[1, 1, 1], [1, 0, 0]],
            &[[1, 1, 2], [1, 1, 1]],
            &[[2, 1, 1], [0, 1, 1]],
            &[[u64::MAX, u64::MAX, 0], [1, 1, 0]],
            &[[1 << 41, 1 << 41, 0], [0, 0, 0]],
        ] {
            assert!(!counts(impossible).is_possible(2), "{impossible:?}");
        }
    }
}
