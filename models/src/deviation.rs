//! How far outputs are from their targets: what is measured beside the loss where the task is not classification.

use serde::{Deserialize, Serialize};

use crate::task::Task;

/// Counts or sums over predictions, which merge to those of all of them. The default, of nothing, is neutral.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deviation {
    /// Nothing: the task is classification, or nothing was predicted.
    #[default]
    None,
    /// Of flags, over all classes together.
    Flags {
        /// Flags that are set, and should be.
        hits: u64,
        /// Flags that are set, and should not be.
        false_alarms: u64,
        /// Flags that are not set, and should be.
        misses: u64,
    },
    /// Of numbers, over all outputs together.
    #[serde(rename_all = "kebab-case")]
    Numbers {
        /// Outputs of a prediction.
        outputs: usize,
        /// How many numbers.
        count: u64,
        /// The sum of the errors' absolute values.
        absolute: f64,
        /// The sum of the errors' squares.
        squared: f64,
        /// The mean of the targets.
        mean: f64,
        /// The sum of the squares of the targets' distances from their mean.
        spread: f64,
    },
}

/// What a [`Deviation`] comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Measure {
    /// The harmonic mean of precision and recall of flags, 0 to 1: 1 where all are right.
    F1,
    /// The share of the flags that were set that should be, 0 to 1.
    Precision,
    /// The share of the flags that should be set that were, 0 to 1.
    Recall,
    /// The mean of the errors' absolute values, in the unit of the numbers.
    Mae,
    /// The root of the mean of the errors' squares, in the unit of the numbers.
    Rmse,
    /// The coefficient of determination: 1 where there are no errors, 0 for what always says the mean.
    R2,
}

impl Measure {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::F1, Self::Precision, Self::Recall, Self::Mae, Self::Rmse, Self::R2];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::F1 => "f1",
            Self::Precision => "precision",
            Self::Recall => "recall",
            Self::Mae => "mae",
            Self::Rmse => "rmse",
            Self::R2 => "r2",
        }
    }

    /// Its name as people write it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::F1 => "F1",
            Self::Precision => "precision",
            Self::Recall => "recall",
            Self::Mae => "MAE",
            Self::Rmse => "RMSE",
            Self::R2 => "R2",
        }
    }

    /// Whether it is a share, from 0 to 1.
    #[must_use]
    pub fn is_share(self) -> bool {
        matches!(self, Self::F1 | Self::Precision | Self::Recall)
    }
}

impl Deviation {
    /// That of one prediction: of logits for [`Task::MultiLabel`], of numbers for [`Task::Regression`].
    #[must_use]
    pub fn of(task: Task, outputs: &[f32], targets: &[f32]) -> Self {
        let pairs = || outputs.iter().zip(targets);
        match task {
            Task::Classification => Self::None,
            Task::MultiLabel => {
                let count = |is: fn(bool, bool) -> bool| {
                    pairs().filter(|&(&x, &y)| is(is_set(x), is_flagged(y))).count() as u64
                };
                Self::Flags {
                    hits: count(|said, is| said && is),
                    false_alarms: count(|said, is| said && !is),
                    misses: count(|said, is| !said && is),
                }
            }
            Task::Regression { .. } => {
                let number = |(&x, &y): (&f32, &f32)| {
                    let error = f64::from(x) - f64::from(y);
                    Self::Numbers {
                        outputs: outputs.len(),
                        count: 1,
                        absolute: error.abs(),
                        squared: error * error,
                        mean: y.into(),
                        spread: 0.0,
                    }
                };
                pairs().map(number).fold(Self::None, Self::merge)
            }
        }
    }

    /// That of both together.
    ///
    /// # Panics
    /// If they are of different tasks.
    #[must_use]
    pub fn merge(self, other: Self) -> Self {
        match (self, other) {
            (all, Self::None) | (Self::None, all) => all,
            (
                Self::Flags { hits, false_alarms, misses },
                Self::Flags { hits: more_hits, false_alarms: more_alarms, misses: more_misses },
            ) => Self::Flags {
                hits: hits + more_hits,
                false_alarms: false_alarms + more_alarms,
                misses: misses + more_misses,
            },
            (
                Self::Numbers { outputs, count: a, absolute, squared, mean, spread },
                Self::Numbers {
                    count: b,
                    absolute: more_absolute,
                    squared: more_squared,
                    mean: other_mean,
                    spread: other_spread,
                    ..
                },
            ) => {
                // Chan, Golub and LeVeque 1979: no difference of large sums.
                let (count, between) = (a + b, other_mean - mean);
                let share = b as f64 / count as f64;
                Self::Numbers {
                    outputs,
                    count,
                    absolute: absolute + more_absolute,
                    squared: squared + more_squared,
                    mean: between.mul_add(share, mean),
                    spread: spread + other_spread + between * between * a as f64 * share,
                }
            }
            _ => panic!("predictions of different tasks are not merged"),
        }
    }

    /// What it comes to. What is not defined, such as the precision where no flag was set, is left out, and what is not finite.
    #[must_use]
    pub fn measures(&self) -> Vec<(Measure, f64)> {
        let share = |of: u64, all: u64| (all > 0).then(|| of as f64 / all as f64);
        let measures = match *self {
            Self::None => vec![],
            Self::Flags { hits, false_alarms, misses } => vec![
                (Measure::F1, share(2 * hits, 2 * hits + false_alarms + misses)),
                (Measure::Precision, share(hits, hits + false_alarms)),
                (Measure::Recall, share(hits, hits + misses)),
            ],
            Self::Numbers { outputs, count, absolute, squared, spread, .. } => vec![
                (Measure::Mae, Some(absolute / count as f64)),
                (Measure::Rmse, Some((squared / count as f64).sqrt())),
                // Outputs of different units have no common spread.
                (Measure::R2, (outputs == 1 && spread > 0.0).then(|| 1.0 - squared / spread)),
            ],
        };
        let finite = |value: &f64| value.is_finite();
        measures.into_iter().filter_map(|(measure, value)| Some((measure, value.filter(finite)?))).collect()
    }
}

/// Whether a target, which is 1 or 0, is set.
pub(crate) fn is_flagged(target: f32) -> bool {
    target > 0.5
}

/// Whether the model says that a class applies: its probability is above one half.
pub(crate) fn is_set(logit: f32) -> bool {
    logit > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGRESSION: Task = Task::Regression { huber: None };

    fn near(found: &Deviation, expected: &[(&str, f64)]) {
        let found = found.measures();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (&(name, value), &(other, expected)) in found.iter().zip(expected) {
            let name = name.name();
            assert!(
                name == other && (value - expected).abs() < 1e-12,
                "{name} {value}, not {other} {expected}"
            );
        }
    }

    #[test]
    fn flags_are_counted_over_all_classes() {
        let one = Deviation::of(Task::MultiLabel, &[2.0, 0.1, -1.0, 0.0], &[1.0, 0.0, 1.0, 1.0]);
        assert_eq!(one, Deviation::Flags { hits: 1, false_alarms: 1, misses: 2 });
        let two = one.merge(Deviation::of(Task::MultiLabel, &[5.0; 4], &[1.0; 4]));
        near(&two, &[("f1", 10.0 / 13.0), ("precision", 5.0 / 6.0), ("recall", 5.0 / 7.0)]);
        near(&Deviation::of(Task::MultiLabel, &[-1.0], &[0.0]), &[]);
        near(&Deviation::of(Task::MultiLabel, &[-1.0], &[1.0]), &[("f1", 0.0), ("recall", 0.0)]);
    }

    #[test]
    fn errors_of_numbers_in_closed_form_however_they_are_merged() {
        let each = |x: f32, y: f32| Deviation::of(REGRESSION, &[x], &[y]);
        let parts = [each(1001.0, 1000.0), each(1002.0, 1002.0), each(1001.0, 1004.0)];
        let [a, b, c] = parts;
        // Errors 1, 0, -3; the targets' mean is 1002 and their spread 8.
        let expected = [("mae", 4.0 / 3.0), ("rmse", (10.0f64 / 3.0).sqrt()), ("r2", 1.0 - 10.0 / 8.0)];
        for whole in [a.merge(b).merge(c), a.merge(b.merge(c)), Deviation::None.merge(c).merge(a).merge(b)] {
            near(&whole, &expected);
        }
        near(&each(1.0, 3.0), &[("mae", 2.0), ("rmse", 2.0)]);
        // JSON has no such numbers, and records are JSON.
        near(&each(f32::INFINITY, 3.0).merge(a), &[]);
        near(&each(f32::NAN, 3.0).merge(a), &[]);
        // Two outputs may have different units: no spread is common to them.
        let two = Deviation::of(REGRESSION, &[1.0, 300.0], &[2.0, 100.0]);
        near(&two, &[("mae", 100.5), ("rmse", (40_001.0f64 / 2.0).sqrt())]);
    }
}
