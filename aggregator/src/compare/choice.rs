//! What is chosen among the candidates of `[tune]`: the one that needs the fewest rounds to the target or, where none reaches it or
//! there is none, the one with the best accuracy (or least loss, where numbers are learned). Candidates run with the first seed; the chosen one runs with the others.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::experiment::Target;
use super::plan::{Plan, Planned};
use super::results::{Rounds, Seed};
use crate::round::RoundRecord;

/// What became known of one candidate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Tried {
    /// Its values: `learning-rate=0.1`.
    pub values: String,
    /// Its directory's name.
    pub run: String,
    /// Rounds that closed.
    pub rounds: usize,
    /// Rounds to the target, if it was reached.
    pub crossing: Option<f64>,
    /// The best accuracy measured.
    pub best: Option<f64>,
    /// The last test loss, where there is no accuracy.
    pub loss: Option<f64>,
    /// Whether it is complete, or cannot win any more.
    pub settled: bool,
}

/// The candidates of a variant in a cell, in the order of the file. Empty if nothing is tuned.
#[must_use]
pub fn tried(plan: &Plan, rounds: &Rounds, cell: usize, variant: usize) -> Vec<Tried> {
    let first = plan.experiment.seeds.first();
    let of = |run: &Planned| (run.cell, run.variant) == (cell, variant) && Some(&run.seed) == first;
    let runs = plan.runs.iter().zip(rounds).filter(|(run, _)| of(run));
    let seeds: Vec<(&str, Seed, u32)> = runs
        .filter_map(|(run, rounds)| {
            let values = &plan.experiment.variants[variant].candidates.get(run.candidate?)?.text;
            let rounds = rounds.as_deref().unwrap_or_default();
            let tested = rounds.iter().rfind(|round| round.accuracy.is_some()).map_or(0, |round| round.round);
            Some((values.as_str(), Seed::of(run, rounds, aim(plan, cell)), tested))
        })
        .collect();
    let least = seeds.iter().filter_map(|(_, seed, _)| seed.crossing).reduce(f64::min);
    let outrun = |seed: &Seed, tested: u32| {
        seed.crossing.is_none() && least.is_some_and(|least| f64::from(tested) >= least)
    };
    let tried = |(values, seed, tested): (&str, Seed, u32)| Tried {
        values: values.to_owned(),
        settled: seed.complete || outrun(&seed, tested),
        run: seed.run,
        rounds: seed.rounds,
        crossing: seed.crossing,
        best: seed.best,
        loss: seed.loss,
    };
    seeds.into_iter().map(tried).collect()
}

/// The position of the best of all candidates, once all are settled. Of equals it is the first.
#[must_use]
pub fn best(tried: &[Tried]) -> Option<usize> {
    if !tried.iter().all(|candidate| candidate.settled) {
        return None;
    }
    let by = |one: &Tried, other: &Tried| {
        let rounds = |candidate: &Tried| candidate.crossing.unwrap_or(f64::INFINITY);
        let accuracy = |candidate: &Tried| candidate.best.unwrap_or(f64::NEG_INFINITY);
        let loss = |candidate: &Tried| candidate.loss.unwrap_or(f64::INFINITY);
        let by_rounds = rounds(one).total_cmp(&rounds(other));
        by_rounds.then(accuracy(other).total_cmp(&accuracy(one))).then(loss(one).total_cmp(&loss(other)))
    };
    (0..tried.len()).min_by(|&one, &other| by(&tried[one], &tried[other]))
}

/// The accuracy to which the rounds of candidates are counted. Another variant's accuracy is no aim: it is tuned as well.
fn aim(plan: &Plan, cell: usize) -> Option<f64> {
    match plan.cells[cell].target {
        Some(Target::Accuracy(accuracy)) => Some(accuracy),
        Some(Target::Of(_)) | None => None,
    }
}

/// Stops candidates that cannot win any more: another one has reached the target in as many rounds, and they have not.
#[derive(Debug)]
pub struct Race {
    /// By cell and variant.
    first: Mutex<HashMap<(usize, usize), u32>>,
}

impl Race {
    /// The race after these rounds.
    #[must_use]
    pub fn after(plan: &Plan, rounds: &Rounds) -> Self {
        let race = Self { first: Mutex::default() };
        for (run, rounds) in plan.runs.iter().zip(rounds) {
            rounds.iter().flatten().for_each(|round| _ = race.is_lost(plan, run, round));
        }
        race
    }

    /// Takes note of a round of `run`; true if the run is a candidate that need not go on.
    pub fn is_lost(&self, plan: &Plan, run: &Planned, round: &RoundRecord) -> bool {
        // One that was chosen has no rivals any more: its runs are the variant's.
        if run.candidate.is_none() || plan.chosen(run.cell, run.variant).is_some() {
            return false;
        }
        let Some(target) = aim(plan, run.cell) else { return false };
        let Some(accuracy) = round.accuracy else { return false };
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let first = first.entry((run.cell, run.variant)).or_insert(u32::MAX);
        if accuracy >= target {
            *first = round.round.min(*first);
            return false;
        }
        // A crossing lies before the round that was tested, so whoever has not crossed by then comes later.
        round.round >= *first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(crossing: Option<f64>, best: Option<f64>, settled: bool) -> Tried {
        Tried { values: String::new(), run: String::new(), rounds: 4, crossing, best, loss: None, settled }
    }

    #[test]
    fn fewer_rounds_win_then_the_better_accuracy_then_the_first() {
        let of = |values: &[(Option<f64>, Option<f64>)]| {
            best(&values.iter().map(|&(crossing, best)| candidate(crossing, best, true)).collect::<Vec<_>>())
        };
        assert_eq!(of(&[(Some(9.0), Some(0.9)), (Some(7.5), Some(0.8)), (None, Some(0.99))]), Some(1));
        assert_eq!(of(&[(None, Some(0.8)), (None, None), (None, Some(0.9))]), Some(2));
        assert_eq!(of(&[(Some(7.0), Some(0.9)), (Some(7.0), Some(0.9))]), Some(0));
        assert_eq!(of(&[(None, None), (None, None)]), Some(0));
        assert_eq!(of(&[]), None);
        let open = [candidate(Some(3.0), Some(0.9), true), candidate(None, Some(0.5), false)];
        assert_eq!(best(&open), None, "the other may still win");
    }
}
