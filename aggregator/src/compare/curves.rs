//! Curves over rounds: the runs of a line one by one, and their mean, which never changes its meaning.

use std::collections::BTreeMap;

use super::plan::Plan;
use super::results::{Line, Mean, Rounds, chosen};
use crate::round::RoundRecord;

/// The curves of one value of a line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// The mean over all runs, as far as all of them go: the runs behind it are the same at each of its rounds.
    pub mean: Vec<(u32, f64)>,
    /// Every run by itself, to its own end.
    pub runs: Vec<Vec<(u32, f64)>>,
}

impl Curves {
    /// The round with which the first run ends while others go on; `None` if all end together, or there is one alone.
    #[must_use]
    pub fn ends_early(&self) -> Option<u32> {
        let lasts = || self.runs.iter().filter_map(|run| run.last()).map(|&(round, _)| round);
        let (first, last) = (lasts().min()?, lasts().max()?);
        (first < last).then_some(first)
    }

    /// What is drawn of them, for a variant of this name.
    #[must_use]
    pub fn says(&self, variant: &str) -> String {
        match (self.runs.len(), self.mean.last()) {
            (0, _) => format!("{variant} has no run"),
            (1, _) => format!("{variant} is one run"),
            (runs, None) => {
                format!("{variant} is {runs} runs without a mean, since they have no round in common")
            }
            (runs, Some((last, _))) => {
                let why =
                    if self.ends_early().is_some() { ", with which the first of them ends" } else { "" };
                format!(
                    "{variant} is the mean of {runs} runs up to round {last}{why}, with the band from the least to the greatest of them"
                )
            }
        }
    }
}

/// What a curve shows of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The value in each round.
    Each,
    /// The greatest value up to each round, of each run by itself: as `McMahan` et al. 2017 draw and count.
    BestSoFar,
}

/// The curves of a value. The mean has the rounds in which all runs have the value, up to the last round of the run that ends first.
#[must_use]
pub fn curves(
    plan: &Plan,
    rounds: &Rounds,
    line: &Line,
    shown: Shown,
    value: fn(&RoundRecord) -> Option<f64>,
) -> Curves {
    let points = |run: &[RoundRecord]| {
        let values = run.iter().filter_map(|round| Some((round.round, value(round)?)));
        match shown {
            Shown::Each => values.collect(),
            Shown::BestSoFar => best_so_far(values),
        }
    };
    let runs: Vec<Vec<(u32, f64)>> = chosen(plan, rounds, line).into_iter().map(points).collect();
    let mut at: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for &(round, value) in runs.iter().flatten() {
        at.entry(round).or_default().push(value);
    }
    at.retain(|_, values| values.len() == runs.len());
    let mean = |(round, values): (u32, Vec<f64>)| Some((round, Mean::of(&values)?.mean));
    Curves { mean: at.into_iter().filter_map(mean).collect(), runs }
}

fn best_so_far(values: impl Iterator<Item = (u32, f64)>) -> Vec<(u32, f64)> {
    let mut best = f64::NEG_INFINITY;
    values
        .map(|(round, value)| {
            best = best.max(value);
            (round, best)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_so_far_never_falls() {
        let values = [(1, 0.2), (2, 0.5), (4, 0.4), (5, 0.6)];
        let expected = [(1, 0.2), (2, 0.5), (4, 0.5), (5, 0.6)];
        assert_eq!(best_so_far(values.into_iter()), expected);
    }
}
