//! The results of single runs, and means over them.

use std::collections::BTreeMap;

use serde::Serialize;

use super::plan::Planned;
use super::troubles::Troubles;
use crate::round::{RoundRecord, of_a_model, stopping};

/// The rounds of every planned run, in the order of the plan; `None` for a run that has not begun.
pub type Rounds = Vec<Option<Vec<RoundRecord>>>;

/// A mean over seeds with its spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mean {
    /// The mean.
    pub mean: f64,
    /// The sample standard deviation (n - 1); `None` for a single value.
    pub spread: Option<f64>,
    /// The number of seeds.
    pub seeds: usize,
}

impl Mean {
    /// `None` without values.
    #[must_use]
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        // What has no finite mean has no spread.
        let spread = (values.len() > 1 && mean.is_finite()).then(|| (squares / (count - 1.0)).sqrt());
        Some(Self { mean, spread, seeds: values.len() })
    }
}

/// Bytes, as the server counts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Traffic<T> {
    /// Sent to clients.
    pub down: T,
    /// Received from them.
    pub up: T,
}

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Seed {
    /// Its seed.
    pub seed: u64,
    /// Its directory's name.
    pub run: String,
    /// Rounds of training that closed.
    pub rounds: usize,
    /// Whether it has closed all of its rounds.
    pub complete: bool,
    /// The last accuracy measured.
    pub accuracy: Option<f64>,
    /// The best accuracy measured.
    pub best: Option<f64>,
    /// The last test loss, where there is no accuracy; infinite if it was not finite.
    pub loss: Option<f64>,
    /// The accuracy to which rounds and bytes are counted.
    pub target: Option<f64>,
    /// The first round that was tested and reached the target, and the bytes up to it.
    pub reached: Option<(u32, Traffic<u64>)>,
    /// Rounds to the target: where the best accuracy so far crosses it, on a straight line between two tests.
    pub crossing: Option<f64>,
    /// Bytes of all rounds.
    pub traffic: Traffic<u64>,
    /// Mean over the rounds of the optimiser's steps that clients took; `None` if the records do not say.
    pub steps: Option<f64>,
    /// Measurements by name: the mean over the rounds for training, the last one for tests of models.
    pub metrics: BTreeMap<String, f64>,
    /// What went wrong.
    pub troubles: Troubles,
}

impl Seed {
    /// The results of a run with these rounds.
    pub(super) fn of(run: &Planned, rounds: &[RoundRecord], target: Option<f64>) -> Self {
        let tested = || rounds.iter().filter_map(|round| Some((round.round, round.accuracy?)));
        let until = |last: u32| {
            let rounds = rounds.iter().take_while(|round| round.round <= last);
            rounds.fold(Traffic::default(), |sum: Traffic<u64>, round| Traffic {
                down: sum.down.saturating_add(round.bytes_down),
                up: sum.up.saturating_add(round.bytes_up),
            })
        };
        let first = target.and_then(|target| tested().find(|&(_, accuracy)| accuracy >= target));
        let config = &run.config;
        Self {
            seed: run.seed,
            run: config.spec.name.clone(),
            rounds: rounds.iter().filter(|round| !round.closing).count(),
            complete: is_complete(run, rounds),
            accuracy: tested().next_back().map(|(_, accuracy)| accuracy),
            best: peak(rounds),
            loss: losses(rounds).last().filter(|_| tested().next().is_none()),
            target,
            reached: first.map(|(round, _)| (round, until(round))),
            crossing: target.and_then(|target| crossing(tested(), target)),
            traffic: until(u32::MAX),
            steps: {
                let steps: Vec<f64> = rounds.iter().filter_map(|round| round.steps).collect();
                Mean::of(&steps).map(|mean| mean.mean)
            },
            metrics: metrics(rounds),
            troubles: Troubles::of(rounds, config.policy.min),
        }
    }

    /// Whether it counts in the means: it is complete and has learned something.
    #[must_use]
    pub fn counts(&self) -> bool {
        self.complete && !self.fruitless()
    }

    /// Whether it is complete and no round had enough updates, so that the model is the initial one.
    #[must_use]
    pub fn fruitless(&self) -> bool {
        self.complete && self.rounds > 0 && self.troubles.void >= self.rounds
    }
}

/// Whether a run with these rounds is over, has closed all of them, or had too many in a row without enough updates.
pub(super) fn is_complete(run: &Planned, rounds: &[RoundRecord]) -> bool {
    if run.over {
        return true;
    }
    let config = &run.config;
    let last = stopping::last(rounds, config.spec.rounds, &config.stop);
    let limit = config.policy.simulated_failure_limit(config.spec.rounds);
    let closed = rounds.last().map_or(0, |round| round.round);
    config.spec.work_after(closed, last).is_none() || stopping::void_in_a_row(rounds) >= limit
}

/// The best accuracy measured.
#[must_use]
pub fn peak(rounds: &[RoundRecord]) -> Option<f64> {
    rounds.iter().filter_map(|round| round.accuracy).reduce(f64::max)
}

/// The test losses of a run without accuracies, test by test. A record has none that is not finite, but how long the test took; that of a
/// failed round may have had nothing to test.
pub(super) fn losses(rounds: &[RoundRecord]) -> impl Iterator<Item = f64> {
    let tested =
        rounds.iter().filter(|round| round.loss.is_some() || round.test_seconds.is_some() && !round.void);
    tested.map(|round| round.loss.unwrap_or(f64::INFINITY))
}

/// Where the curve of tested rounds and their accuracies crosses the target: the curve is the best accuracy so far, and a straight
/// line between two tests (`McMahan` et al. 2017, section 3). A first test that reaches it counts as it is.
fn crossing(tests: impl Iterator<Item = (u32, f64)>, target: f64) -> Option<f64> {
    let mut before: Option<(u32, f64)> = None;
    for (round, accuracy) in tests {
        if accuracy < target {
            let best = before.map_or(accuracy, |(_, best)| best.max(accuracy));
            before = Some((round, best));
            continue;
        }
        return Some(before.map_or(f64::from(round), |(last, best)| {
            let share = (target - best) / (accuracy - best);
            f64::from(last) + share * (f64::from(round) - f64::from(last))
        }));
    }
    None
}

fn metrics(rounds: &[RoundRecord]) -> BTreeMap<String, f64> {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for round in rounds {
        for (name, &value) in &round.metrics {
            let values = values.entry(name).or_default();
            if of_a_model(name) || round.clients.values().any(|client| client.contains_key(name)) {
                values.clear();
            }
            values.push(value);
        }
    }
    let mean = |values: &[f64]| Mean::of(values).map(|mean| mean.mean);
    values.into_iter().filter_map(|(name, values)| Some((name.to_owned(), mean(&values)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_crossed_between_two_tests_of_the_best_so_far() {
        let at = |tests: &[(u32, f64)], target| crossing(tests.iter().copied(), target);
        assert_eq!(at(&[(10, 0.5), (20, 0.75)], 0.625), Some(15.0));
        assert_eq!(at(&[(10, 0.5), (20, 0.25), (30, 0.75)], 0.625), Some(25.0), "from the best, a half");
        assert_eq!(at(&[(10, 0.5), (20, 0.75)], 0.75), Some(20.0));
        assert_eq!(at(&[(10, 0.5)], 0.25), Some(10.0), "nothing is known of before");
        assert_eq!((at(&[(10, 0.5)], 0.75), at(&[], 0.5)), (None, None));
    }

    #[test]
    fn a_loss_that_is_not_finite_is_no_earlier_one() {
        let round = |loss, test_seconds| RoundRecord { loss, test_seconds, ..RoundRecord::default() };
        let course =
            [round(Some(0.3), Some(1.0)), round(None, None), round(None, Some(1.0)), round(None, None)];
        assert_eq!(losses(&course).collect::<Vec<_>>(), [0.3, f64::INFINITY]);
        let failed = RoundRecord { void: true, ..round(None, Some(1.0)) };
        assert_eq!(losses(&[failed]).count(), 0);
        assert_eq!(
            Mean::of(&[0.3, f64::INFINITY]),
            Some(Mean { mean: f64::INFINITY, spread: None, seeds: 2 })
        );
        // Records of earlier programs do not say how long a test took.
        assert_eq!(losses(&[round(Some(0.3), None)]).collect::<Vec<_>>(), [0.3]);
    }
}
