//! Results of an experiment. Every number is derived from the `rounds.jsonl` of the runs and never stored.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::choice::{Tried, tried};
use super::experiment::Published;
use super::plan::{Plan, Planned, Target};
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
        let spread = (values.len() > 1).then(|| (squares / (count - 1.0)).sqrt());
        Some(Self { mean, spread, seeds: values.len() })
    }
}

/// The results of one variant in one cell, over its seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Position of the cell.
    pub cell: usize,
    /// Position of the variant.
    pub variant: usize,
    /// The variant in its cell: `iid/fedavg`.
    pub name: String,
    /// The last accuracy measured, in `[0, 1]`.
    pub accuracy: Option<Mean>,
    /// The best accuracy measured.
    pub best: Option<Mean>,
    /// The last test loss, where there is no accuracy: numbers are learned.
    pub loss: Option<Mean>,
    /// Its difference to the baseline's, paired by seed.
    pub loss_difference: Option<Mean>,
    /// Difference of the last accuracy to the baseline's, paired by seed.
    pub difference: Option<Mean>,
    /// Rounds to the target, over the seeds that have reached it.
    pub rounds: Option<Mean>,
    /// Bytes until the target.
    pub until: Option<Traffic<Mean>>,
    /// Bytes of all rounds.
    pub traffic: Option<Traffic<Mean>>,
    /// Measurements by name: the mean over the rounds for training, the last one for tests of models.
    pub metrics: BTreeMap<String, Mean>,
    /// The seeds that have begun, one by one.
    pub seeds: Vec<Seed>,
    /// The number of planned seeds.
    pub planned: usize,
    /// The chosen values, if the variant is tuned and they are known: `learning-rate=0.1`.
    pub chosen: Option<String>,
    /// What was tried to choose them.
    pub tried: Vec<Tried>,
    /// What was published of it, by source.
    pub published: BTreeMap<String, Published>,
}

impl Line {
    /// The seeds that count and have a target.
    pub fn aimed(&self) -> impl Iterator<Item = &Seed> {
        self.seeds.iter().filter(|seed| seed.counts() && seed.target.is_some())
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
    pub seed: u32,
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
    /// The last test loss, where there is no accuracy.
    pub loss: Option<f64>,
    /// The accuracy to which rounds and bytes are counted.
    pub target: Option<f64>,
    /// The first round that was tested and reached the target, and the bytes up to it.
    pub reached: Option<(u32, Traffic<u64>)>,
    /// Rounds to the target: where the best accuracy so far crosses it, on a straight line between two tests.
    pub crossing: Option<f64>,
    /// Bytes of all rounds.
    pub traffic: Traffic<u64>,
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
        let last = stopping::last(rounds, config.spec.rounds, &config.stop);
        let limit = config.policy.simulated_failure_limit(config.spec.rounds);
        let closed = rounds.last().map_or(0, |round| round.round);
        Self {
            seed: run.seed,
            run: config.spec.name.clone(),
            rounds: rounds.iter().filter(|round| !round.closing).count(),
            complete: config.spec.work_after(closed, last).is_none()
                || stopping::void_in_a_row(rounds) >= limit,
            accuracy: tested().next_back().map(|(_, accuracy)| accuracy),
            best: tested().map(|(_, accuracy)| accuracy).reduce(f64::max),
            loss: rounds.iter().rev().find_map(|round| round.loss).filter(|_| tested().next().is_none()),
            target,
            reached: first.map(|(round, _)| (round, until(round))),
            crossing: target.and_then(|target| crossing(tested(), target)),
            traffic: until(u32::MAX),
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

/// Suffixes of the measurements of one model: its local test, its global test, and its gate.
pub(super) const FIGURES: [&str; 3] = ["local-test", "global-test", "gate"];
/// The models by their prefixes in the names of measurements, and what tables call them.
pub(super) const MODELS: [(&str, &str); 6] = [
    ("", "as it is"),
    ("ft-", "FT"),
    ("fb-", "FB"),
    ("mf-", "MF"),
    ("mfe-", "MFE"),
    ("fixed-", "fixed gate"),
];

/// Whether a measurement belongs to the tests of personal models, which have a table of their own.
fn is_personal(name: &str) -> bool {
    let of = |figure| name.strip_suffix(figure).is_some_and(|rest| MODELS.iter().any(|(of, _)| *of == rest));
    FIGURES.into_iter().any(of)
}

/// The names of all measurements of these lines but those of personal models.
pub(super) fn measured_globally<'a>(lines: &[&'a Line]) -> Vec<&'a str> {
    measured(lines.iter().copied()).into_iter().filter(|name| !is_personal(name)).collect()
}

/// The names of all measurements of these lines.
pub(super) fn measured<'a>(lines: impl IntoIterator<Item = &'a Line>) -> BTreeSet<&'a str> {
    let seeds = lines.into_iter().flat_map(|line| &line.seeds);
    seeds.flat_map(|seed| seed.metrics.keys().map(String::as_str)).collect()
}

/// The results of every variant in every cell. Only [some runs](Seed::counts) count in the means; all are listed.
#[must_use]
pub fn lines(plan: &Plan, rounds: &Rounds) -> Vec<Line> {
    let mut lines = Vec::new();
    for (cell, setting) in plan.cells.iter().enumerate() {
        let counted = |variant: usize, target: &dyn Fn(u32) -> Option<f64>| -> Vec<Seed> {
            begun(plan, rounds, cell, variant)
                .map(|(run, rounds)| Seed::of(run, rounds, target(run.seed)))
                .collect()
        };
        let example: Vec<Seed> = match &setting.target {
            Some(Target::Of(variant)) => plan.variant(variant).map(|variant| counted(variant, &|_| None)),
            _ => None,
        }
        .unwrap_or_default();
        let target = |seed: u32| match &setting.target {
            Some(Target::Accuracy(accuracy)) => Some(*accuracy),
            Some(Target::Of(_)) => {
                example.iter().find(|other| other.seed == seed && other.counts())?.accuracy
            }
            None => None,
        };
        let seeds = |variant: usize| counted(variant, &target);
        let baseline: Vec<Seed> = plan.baseline().map(seeds).unwrap_or_default();
        for variant in 0..plan.experiment.variants.len() {
            let seeds = seeds(variant);
            let name = plan.name(cell, variant);
            let complete: Vec<&Seed> = seeds.iter().filter(|seed| seed.counts()).collect();
            let mean = |value: &dyn Fn(&Seed) -> Option<f64>| {
                Mean::of(&complete.iter().filter_map(|seed| value(seed)).collect::<Vec<_>>())
            };
            let traffic = |value: &dyn Fn(&Seed) -> Option<Traffic<u64>>| {
                let down = mean(&|seed| Some(value(seed)?.down as f64))?;
                Some(Traffic { down, up: mean(&|seed| Some(value(seed)?.up as f64))? })
            };
            let against = |seed: &Seed| {
                let paired = baseline.iter().find(|other| other.seed == seed.seed && other.counts())?;
                Some(seed.accuracy? - paired.accuracy?)
            };
            let against_loss = |seed: &Seed| {
                let paired = baseline.iter().find(|other| other.seed == seed.seed && other.counts())?;
                Some(seed.loss? - paired.loss?)
            };
            let is_baseline = plan.baseline() == Some(variant);
            let names: BTreeSet<&str> =
                complete.iter().flat_map(|seed| seed.metrics.keys().map(String::as_str)).collect();
            let metric = |name: &str| Some((name.to_owned(), mean(&|seed| seed.metrics.get(name).copied())?));
            lines.push(Line {
                cell,
                variant,
                accuracy: mean(&|seed| seed.accuracy),
                best: mean(&|seed| seed.best),
                difference: if is_baseline { None } else { mean(&against) },
                loss: mean(&|seed| seed.loss),
                loss_difference: if is_baseline { None } else { mean(&against_loss) },
                rounds: mean(&|seed| seed.crossing),
                until: traffic(&|seed| seed.reached.map(|(_, traffic)| traffic)),
                traffic: traffic(&|seed| Some(seed.traffic)),
                metrics: names.into_iter().filter_map(metric).collect(),
                published: {
                    let of = plan.experiment.papers.iter().map(|paper| (paper.name.clone(), paper.of(&name)));
                    of.filter(|(_, published)| !published.is_nothing()).collect()
                },
                planned: plan.experiment.seeds.len(),
                chosen: plan.chosen(cell, variant).map(|candidate| candidate.text.clone()),
                tried: tried(plan, rounds, cell, variant),
                name,
                seeds,
            });
        }
    }
    lines
}

/// The runs of a variant in a cell that have begun, with their rounds. Of a variant that is tuned, those of the chosen candidate.
fn begun<'p, 'r>(
    plan: &'p Plan,
    rounds: &'r Rounds,
    cell: usize,
    variant: usize,
) -> impl Iterator<Item = (&'p Planned, &'r [RoundRecord])> {
    let runs = plan
        .runs
        .iter()
        .zip(rounds)
        .filter(move |(run, _)| (run.cell, run.variant) == (cell, variant) && plan.counts(run));
    runs.filter_map(|(run, rounds)| Some((run, rounds.as_deref()?)))
}

/// The last tests of every client of every seed of a line, by the names of the measurements.
pub(super) fn last_tests<'a>(plan: &Plan, rounds: &'a Rounds, line: &Line) -> Vec<&'a BTreeMap<String, f64>> {
    let runs = chosen(plan, rounds, line).into_iter();
    let newest = runs.filter_map(|rounds| rounds.iter().rfind(|round| !round.clients.is_empty()));
    newest.flat_map(|round| round.clients.values()).collect()
}

/// The rounds of the runs of a line that its charts show: those that count in its means or, while there are none, those that have
/// begun.
pub(super) fn chosen<'a>(plan: &Plan, rounds: &'a Rounds, line: &Line) -> Vec<&'a [RoundRecord]> {
    let begun = begun(plan, rounds, line.cell, line.variant).filter(|(_, rounds)| !rounds.is_empty());
    let counts = |run: &Planned| line.seeds.iter().any(|seed| seed.seed == run.seed && seed.counts());
    let begun: Vec<_> = begun.map(|(run, rounds)| (counts(run), rounds)).collect();
    let none = !begun.iter().any(|(counts, _)| *counts);
    begun.into_iter().filter(|(counts, _)| none || *counts).map(|(_, rounds)| rounds).collect()
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
    fn measurements_of_personal_models_are_known_by_their_names() {
        for name in ["local-test", "global-test", "mfe-gate", "fb-local-test", "fixed-global-test"] {
            assert!(is_personal(name), "{name}");
        }
        for name in ["own-accuracy", "drift", "a-local-test", "mfe", "mfe-local-tests"] {
            assert!(!is_personal(name), "{name}");
        }
    }
}
