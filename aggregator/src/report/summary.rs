//! The figures of a run: derived from its rounds, never stored.

use models::Measure;

use super::units::counted;
use crate::round::RoundRecord;

/// A run in figures.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Summary {
    /// Rounds of training that closed.
    pub rounds: usize,
    /// Rounds before the last one of which there is no record.
    pub missing: usize,
    /// The best accuracy and the first round that reached it.
    pub best: Option<(f64, u32)>,
    /// The last accuracy measured and its round.
    pub last: Option<(f64, u32)>,
    /// The last test loss.
    pub last_loss: Option<f64>,
    /// The lowest test loss and the first round that had it: what models of numbers are compared by.
    pub best_loss: Option<(f64, u32)>,
    /// What was measured last beside accuracy and loss, if the task is not classification.
    pub measures: Vec<(Measure, f64)>,
    /// The first round whose accuracy reached the target, if there is a target.
    pub target: Option<Reached>,
    /// Updates over all rounds.
    pub arrivals: Arrivals,
    /// Bytes sent to clients.
    pub bytes_down: u64,
    /// Bytes received from clients.
    pub bytes_up: u64,
    /// What the time went to.
    pub times: Times,
    /// Median seconds from one round to the next; `None` without rounds.
    pub median_seconds: Option<f64>,
}

/// Seconds of a run, over all processes that have worked on it. Time in which none did counts nowhere.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Times {
    /// From the beginning to the close of the last round: the other figures together.
    pub wall: f64,
    /// Rounds were open: clients trained.
    pub training: f64,
    /// No round was open: too few clients were there, or the run paused.
    pub waiting: f64,
    /// The model was tested.
    pub test: f64,
    /// Updates were aggregated, and the run waited for the disk.
    pub disk: f64,
    /// Rounds of an older version, which knew how long they were open and nothing else.
    pub training_alone: usize,
}

impl Times {
    fn of(rounds: &[RoundRecord]) -> Self {
        // Not `sum`, whose zero is negative.
        let sum = |part: fn(&RoundRecord) -> f64| rounds.iter().fold(0.0, |sum, round| sum + part(round));
        Self {
            wall: sum(RoundRecord::wall_seconds),
            training: sum(|round| round.seconds),
            waiting: sum(|round| round.waited_seconds.unwrap_or_default()),
            test: sum(|round| round.test_seconds.unwrap_or_default()),
            disk: sum(|round| round.disk_seconds.unwrap_or_default()),
            training_alone: rounds.iter().filter(|round| round.disk_seconds.is_none()).count(),
        }
    }

    /// The parts with their names; those that are nothing are left out.
    #[must_use]
    pub fn parts(&self) -> Vec<(&'static str, f64)> {
        let all = [
            ("training", self.training),
            ("waiting", self.waiting),
            ("test", self.test),
            ("aggregation and disk", self.disk),
        ];
        all.into_iter().filter(|(_, seconds)| *seconds >= 0.0005).collect()
    }

    /// What is not in the figures, if that is so.
    #[must_use]
    pub fn unknown(&self) -> Option<String> {
        (self.training_alone > 0)
            .then(|| format!("of {} only training is known", counted(self.training_alone, "round")))
    }
}

/// How a run fared against its target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// The accuracy aimed for, in `[0, 1]`.
    pub accuracy: f64,
    /// The first round that reached it, if one did.
    pub round: Option<u32>,
}

/// The verdicts on the updates of a set of rounds, and the clients that sent none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Arrivals {
    /// Clients asked.
    pub sampled: usize,
    /// Updates folded.
    pub accepted: usize,
    /// Updates refused.
    pub rejected: usize,
    /// Updates that were not needed.
    pub discarded: usize,
    /// Clients that could not train.
    pub failed: usize,
    /// Clients that were not in a state to train.
    pub not_now: usize,
    /// Clients that disappeared.
    pub lost: usize,
}

impl Arrivals {
    /// The arrivals of all these rounds together.
    #[must_use]
    pub fn of(rounds: &[RoundRecord]) -> Self {
        rounds.iter().fold(Self::default(), |sum, round| Self {
            sampled: sum.sampled.saturating_add(round.sampled),
            accepted: sum.accepted.saturating_add(round.accepted),
            rejected: sum.rejected.saturating_add(round.rejected),
            discarded: sum.discarded.saturating_add(round.discarded),
            failed: sum.failed.saturating_add(round.failed),
            not_now: sum.not_now.saturating_add(round.not_now),
            lost: sum.lost.saturating_add(round.lost),
        })
    }

    /// Counts of everything but accepted updates, with their names; zeros are left out.
    #[must_use]
    pub fn troubles(&self) -> Vec<(usize, &'static str)> {
        let all = [
            (self.rejected, "rejected"),
            (self.discarded, "discarded"),
            (self.failed, "failed"),
            (self.not_now, "not in a state to train"),
            (self.lost, "lost"),
        ];
        all.into_iter().filter(|(count, _)| *count > 0).collect()
    }
}

impl Summary {
    /// The figures of these rounds; `target` is an accuracy aimed for, in `[0, 1]`.
    #[must_use]
    pub fn of(rounds: &[RoundRecord], target: Option<f64>) -> Self {
        let tested = || rounds.iter().filter_map(|round| Some((round.accuracy?, round.round)));
        let best = tested().fold(None, |best: Option<(f64, u32)>, (accuracy, round)| match best {
            Some((so_far, _)) if so_far >= accuracy => best,
            _ => Some((accuracy, round)),
        });
        let losses = rounds.iter().filter_map(|round| Some((round.loss?, round.round)));
        let lowest = losses.reduce(|best, next| if next.0 < best.0 { next } else { best });
        let measured = rounds.iter().rev().map(RoundRecord::measures).find(|found| !found.is_empty());
        let reached = |goal: f64| Reached {
            accuracy: goal,
            round: tested().find(|&(accuracy, _)| accuracy >= goal).map(|(_, round)| round),
        };
        Self {
            rounds: rounds.iter().filter(|round| !round.closing).count(),
            missing: rounds.last().map_or(0, |last| (last.round as usize).saturating_sub(rounds.len())),
            best,
            last: tested().next_back(),
            last_loss: rounds.iter().rev().find_map(|round| round.loss),
            best_loss: lowest,
            measures: measured.unwrap_or_default(),
            target: target.map(reached),
            arrivals: Arrivals::of(rounds),
            bytes_down: rounds.iter().fold(0, |sum, round| sum.saturating_add(round.bytes_down)),
            bytes_up: rounds.iter().fold(0, |sum, round| sum.saturating_add(round.bytes_up)),
            times: Times::of(rounds),
            median_seconds: median(rounds.iter().map(RoundRecord::wall_seconds).collect()),
        }
    }
}

/// The middle value, or the mean of the two in the middle.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    if values.len() % 2 == 1 { Some(upper) } else { Some(f64::midpoint(values[middle - 1], upper)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round::WaitedFor;

    fn round(round: u32, accuracy: Option<f64>, seconds: f64) -> RoundRecord {
        RoundRecord {
            round,
            accuracy,
            loss: None,
            train_loss: None,
            metrics: std::collections::BTreeMap::new(),
            closing: false,
            clients: std::collections::BTreeMap::new(),
            sampled: 4,
            accepted: 3,
            rejected: 0,
            discarded: round as usize,
            failed: 0,
            late: 0,
            not_now: 0,
            lost: 1,
            bytes_down: 100,
            bytes_up: 10,
            seconds,
            waited_for: WaitedFor::Cohort,
            collapsed: false,
            diverged: false,
            dominance: None,
            void: false,
            ..RoundRecord::default()
        }
    }

    #[test]
    fn figures_of_a_small_run() {
        let rounds = [
            round(1, Some(0.5), 3.0),
            round(2, Some(0.9), 1.0),
            round(3, None, 2.0),
            round(4, Some(0.9), 10.0),
            round(5, Some(0.8), 4.0),
        ];
        let summary = Summary::of(&rounds, Some(0.85));
        assert_eq!(summary.best, Some((0.9, 2)), "the first of equals");
        assert_eq!(summary.last, Some((0.8, 5)));
        assert_eq!(summary.target, Some(Reached { accuracy: 0.85, round: Some(2) }));
        assert_eq!((summary.bytes_down, summary.bytes_up, summary.rounds), (500, 50, 5));
        assert_eq!(
            (summary.times.wall, summary.times.training, summary.median_seconds),
            (20.0, 20.0, Some(3.0))
        );
        assert_eq!(summary.times.unknown().as_deref(), Some("of 5 rounds only training is known"));
        assert_eq!(Summary::of(&rounds[..4], None).median_seconds, Some(2.5));
        assert_eq!(summary.arrivals.troubles(), [(15, "discarded"), (5, "lost")]);
        assert_eq!((summary.arrivals.sampled, summary.arrivals.accepted), (20, 15));
        assert_eq!(Summary::of(&rounds, Some(0.95)).target, Some(Reached { accuracy: 0.95, round: None }));
    }

    #[test]
    fn the_time_of_a_run_is_the_sum_of_its_parts() {
        let timed = |number: u32| RoundRecord {
            waited_seconds: Some(1.0),
            test_seconds: (number == 2).then_some(4.0),
            disk_seconds: Some(0.5),
            ..round(number, None, 2.0)
        };
        let summary = Summary::of(&[timed(1), timed(2)], None);
        assert_eq!(
            summary.times.parts(),
            [("training", 4.0), ("waiting", 2.0), ("test", 4.0), ("aggregation and disk", 1.0)]
        );
        assert_eq!((summary.times.wall, summary.times.unknown()), (11.0, None));
        assert_eq!(summary.median_seconds, Some(5.5));
    }

    #[test]
    fn no_rounds_have_no_figures() {
        assert_eq!(Summary::of(&[], None), Summary::default());
    }
}
