//! Results of an experiment. Every number is derived from the `rounds.jsonl` of the runs and never stored.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::choice::{Tried, tried};
use super::experiment::Published;
use super::plan::{Plan, Planned, Target};
pub use super::seed::{Mean, Rounds, Seed, Traffic, peak};
use crate::round::RoundRecord;

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
    /// The optimiser's steps that a client takes in a round.
    pub steps: Option<Mean>,
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
        let counted = |variant: usize, target: &dyn Fn(u64, &[RoundRecord]) -> Option<f64>| -> Vec<Seed> {
            begun(plan, rounds, cell, variant)
                .map(|(run, rounds)| Seed::of(run, rounds, target(run.seed, rounds)))
                .collect()
        };
        let example: Vec<Seed> = match &setting.target {
            Some(Target::Of(variant)) => plan.variant(variant).map(|variant| counted(variant, &|_, _| None)),
            _ => None,
        }
        .unwrap_or_default();
        let target = |seed: u64, rounds: &[RoundRecord]| match &setting.target {
            Some(Target::Accuracy(accuracy)) => Some(*accuracy),
            Some(Target::Of(_)) => {
                example.iter().find(|other| other.seed == seed && other.counts())?.accuracy
            }
            Some(Target::Peak) => peak(rounds),
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
                Some(seed.loss? - paired.loss?).filter(|difference| difference.is_finite())
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
                steps: mean(&|seed| seed.steps),
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
    fn measurements_of_personal_models_are_known_by_their_names() {
        for name in ["local-test", "global-test", "mfe-gate", "fb-local-test", "fixed-global-test"] {
            assert!(is_personal(name), "{name}");
        }
        for name in ["own-accuracy", "drift", "a-local-test", "mfe", "mfe-local-tests"] {
            assert!(!is_personal(name), "{name}");
        }
    }
}
