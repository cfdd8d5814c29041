//! What is chosen among the candidates of `[tune]`: the one that needs the fewest rounds to the target or, where none reaches it or
//! there is none, the one with the best accuracy (or least loss, where numbers are learned): on the validation samples, if runs keep some
//! (`data.validation`). Rounds are counted on the test samples, as they are in the tables. Candidates run with the first seed; the chosen
//! one runs with the others.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;

use super::experiment::Target;
use super::plan::{Plan, Planned, Standing};
use super::seed::{Rounds, Seed, is_complete, losses};
use crate::round::{Criterion, RoundRecord};

/// The results of one candidate, up to the round in which the first of all reached the target.
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
    /// The least test loss, where there is no accuracy.
    pub loss: Option<f64>,
    /// Whether all is known that the choice needs of it.
    pub settled: bool,
    /// Whether another candidate needs fewer rounds to the target, so that it need not go on.
    pub outrun: bool,
}

/// The candidates of a variant in a cell, in the order of the file. Empty if nothing is tuned.
#[must_use]
pub fn tried(plan: &Plan, rounds: &Rounds, cell: usize, variant: usize) -> Vec<Tried> {
    let first = plan.experiment.seeds.first();
    let of = |run: &Planned| (run.cell, run.variant) == (cell, variant) && Some(&run.seed) == first;
    let runs: Vec<(&Planned, &[RoundRecord])> = plan
        .runs
        .iter()
        .zip(rounds)
        .filter(|(run, _)| run.candidate.is_some() && of(run))
        .map(|(run, rounds)| (run, rounds.as_deref().unwrap_or_default()))
        .collect();
    let aim = aim(plan, cell);
    let reached = |rounds: &[RoundRecord]| {
        let reaches = |round: &&RoundRecord| round.accuracy >= aim && round.accuracy.is_some();
        aim.and_then(|_| rounds.iter().find(reaches).map(|round| round.round))
    };
    // What a candidate does after this round depends on when the others were run, and decides nothing.
    let decided = runs.iter().filter_map(|(_, rounds)| reached(rounds)).min();
    let found = runs.into_iter().filter_map(|(run, rounds)| {
        let values = &plan.experiment.variants[variant].candidates.get(run.candidate?)?.text;
        let until = rounds.partition_point(|round| decided.is_none_or(|decided| round.round <= decided));
        let counted = &rounds[..until];
        let tested = rounds.iter().rfind(|round| round.accuracy.is_some()).map_or(0, |round| round.round);
        let seed = Seed::of(run, counted, aim);
        Some(Tried {
            values: values.clone(),
            settled: is_complete(run, rounds) || decided.is_some_and(|decided| tested >= decided),
            run: seed.run,
            rounds: seed.rounds,
            crossing: seed.crossing,
            best: validated(counted, Criterion::ValidationAccuracy).reduce(f64::max).or(seed.best),
            loss: validated(counted, Criterion::ValidationLoss)
                .reduce(f64::min)
                .or_else(|| losses(counted).reduce(f64::min))
                .filter(|_| seed.best.is_none()),
            outrun: false,
        })
    });
    let mut found: Vec<Tried> = found.collect();
    let least = found.iter().filter_map(|candidate| candidate.crossing).reduce(f64::min);
    for candidate in &mut found {
        let later = least.is_some_and(|least| candidate.crossing.is_none_or(|crossing| crossing > least));
        candidate.outrun = candidate.settled && later;
    }
    found
}

/// What was measured on the training samples that the server keeps to choose by, test by test.
fn validated(rounds: &[RoundRecord], criterion: Criterion) -> impl Iterator<Item = f64> {
    rounds.iter().filter_map(move |round| round.metrics.get(criterion.name()).copied())
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

/// The candidates of every variant in every cell.
pub fn all_tried<'a>(
    plan: &'a Plan,
    rounds: &'a Rounds,
) -> impl Iterator<Item = ((usize, usize), Vec<Tried>)> + 'a {
    let groups = (0..plan.cells.len())
        .flat_map(|cell| (0..plan.experiment.variants.len()).map(move |variant| (cell, variant)));
    groups.map(|(cell, variant)| ((cell, variant), tried(plan, rounds, cell, variant)))
}

/// The best candidates by cell and variant, where they are known.
#[must_use]
pub fn decided(plan: &Plan, rounds: &Rounds) -> BTreeMap<(usize, usize), usize> {
    all_tried(plan, rounds).filter_map(|(group, tried)| Some((group, best(&tried)?))).collect()
}

/// The runs that have rounds to go, or are not wound up yet. A candidate that another one has outrun is not among them.
#[must_use]
pub fn left(plan: &Plan, standing: &[Standing], rounds: &Rounds) -> Vec<usize> {
    let tried = all_tried(plan, rounds).flat_map(|(_, tried)| tried);
    let outrun: HashSet<String> = tried.filter(|tried| tried.outrun).map(|tried| tried.run).collect();
    let over = |run: usize| {
        standing[run] == Standing::Done || outrun.contains(plan.runs[run].config.spec.name.as_str())
    };
    (0..plan.runs.len()).filter(|&run| !over(run)).collect()
}

/// The accuracy to which the rounds of candidates are counted. Another variant's accuracy is no aim: it is tuned as well.
pub(super) fn aim(plan: &Plan, cell: usize) -> Option<f64> {
    match plan.cells[cell].target {
        Some(Target::Accuracy(accuracy)) => Some(accuracy),
        Some(Target::Of(_) | Target::Peak) | None => None,
    }
}

/// Stops candidates that cannot win any more: another one has reached the target in as many rounds, and they have not.
#[derive(Debug, Default)]
pub struct Race {
    reached: Mutex<Reached>,
}

/// The rounds in which the target was reached.
#[derive(Debug, Default)]
struct Reached {
    /// The first of all candidates, by cell and variant.
    first: HashMap<(usize, usize), u32>,
    /// Those of every candidate, by the run's name.
    each: HashMap<String, u32>,
}

impl Race {
    /// The race after these rounds.
    #[must_use]
    pub fn after(plan: &Plan, rounds: &Rounds) -> Self {
        let race = Self::default();
        for (run, rounds) in plan.runs.iter().zip(rounds) {
            rounds.iter().flatten().for_each(|round| _ = race.is_lost(plan, run, round));
        }
        race
    }

    /// Takes note of a round of `run`; true if the run is a candidate that need not go on.
    pub fn is_lost(&self, plan: &Plan, run: &Planned, round: &RoundRecord) -> bool {
        // One that was chosen has no rivals any more: its runs are the variant's.
        if !plan.is_open(run) {
            return false;
        }
        let (Some(target), Some(accuracy)) = (aim(plan, run.cell), round.accuracy) else { return false };
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        let Reached { first, each } = &mut *reached;
        let first = first.entry((run.cell, run.variant)).or_insert(u32::MAX);
        let own = each.entry(run.config.spec.name.clone()).or_insert(u32::MAX);
        if accuracy >= target {
            *first = round.round.min(*first);
            *own = round.round.min(*own);
        }
        // A crossing lies before the round that was tested, so a candidate that has not crossed by then comes later.
        *own > *first && round.round >= *first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(crossing: Option<f64>, best: Option<f64>, settled: bool) -> Tried {
        Tried {
            values: String::new(),
            run: String::new(),
            rounds: 4,
            crossing,
            best,
            loss: None,
            settled,
            outrun: false,
        }
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
