//! The plan of an experiment: all runs with their complete configurations, before the first one begins.

mod candidates;
mod part;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use shared::id::RunId;
use toml::Value;

pub use super::experiment::Target;
use super::experiment::{Candidate, Experiment, ExperimentError, Paper, Point};
use crate::config::changeable::is_among;
use crate::config::excerpt::{self, Excerpt};
use crate::config::{Config, ConfigErrors, Raw, Renamed};
use crate::round::stopping;
use crate::run::directory::{RunDirectory, newest_checkpoint};
use crate::run::reader;
use crate::start::goes_on;
use crate::storage::{FileLayer, create_dir_durably};

/// The longest name of a run, which becomes the name of a folder.
const LONGEST_NAME: usize = 60;

/// An experiment with all its runs.
#[derive(Debug)]
pub struct Plan {
    /// The experiment's file.
    pub experiment: Experiment,
    /// The cells of the grid, in each of which all variants are compared.
    pub cells: Vec<Cell>,
    /// Cell by cell, variant by variant, seed by seed. A variant that is tuned has the candidates with the first seed, and the other
    /// seeds once one is [chosen](Self::choose).
    pub runs: Vec<Planned>,
    /// The other seeds of every candidate.
    later: Vec<Planned>,
    /// The chosen candidates by cell and variant.
    choices: BTreeMap<(usize, usize), usize>,
}

/// One cell of the grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Its points' names, `/` between them; empty without a grid.
    pub name: String,
    /// The target to which rounds and bytes are counted.
    pub target: Option<Target>,
    /// The target of the published numbers: [`Self::target`] without the chosen form.
    pub published: Option<Target>,
}

impl Cell {
    /// The target to which published rounds are counted, if it is another than ours.
    fn published_to(&self) -> Option<&Target> {
        self.published.as_ref().filter(|published| self.target.as_ref() != Some(published))
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Position of its cell.
    pub cell: usize,
    /// Position of its variant.
    pub variant: usize,
    /// Position of its candidate, if the variant is tuned.
    pub candidate: Option<usize>,
    /// Its seed.
    pub seed: u64,
    /// Its configuration. The run's name is that of its directory.
    pub config: Config,
    /// Whether it is over, with however many rounds.
    pub over: bool,
}

/// The state of a planned run on disk.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// It has not begun.
    Absent,
    /// It can be continued after this round.
    Unfinished(u32),
    /// It is complete.
    Done,
    /// Its directory holds a run with another configuration or other data: keys, their stored and their planned values.
    Changed(Vec<(String, String, String)>),
    /// Its directory holds something other than a run.
    Foreign(String),
}

/// The keys, or what they begin with, in which a planned run may differ from the one in its directory and go on: how long it lasts, and
/// what no figure depends on. Of other keys that may change while a run lasts a row would have some rounds with the one value and some
/// with the other.
const FREE: [&str; 3] = ["run.rounds", "early-stopping.", "connection."];

impl Planned {
    /// For people: `iid/fedavg, seed 2`.
    #[must_use]
    pub fn title(&self, plan: &Plan) -> String {
        let candidates = &plan.experiment.variants[self.variant].candidates;
        let values = self.candidate.and_then(|candidate| candidates.get(candidate));
        let values = values.map_or_else(String::new, |candidate| format!(" with {}", candidate.text));
        format!("{}{values}, seed {}", plan.name(self.cell, self.variant), self.seed)
    }

    /// Its directory among the `runs`.
    #[must_use]
    pub fn directory(&self, runs: &Path) -> RunDirectory {
        RunDirectory::new(runs.join(&self.config.spec.name))
    }

    /// Inspects its directory. Disk errors make it [`Standing::Foreign`]; starting the run reports them in full.
    #[must_use]
    pub fn standing(&self, files: &dyn FileLayer, runs: &Path) -> Standing {
        let directory = self.directory(runs);
        let there = |path: PathBuf| matches!(files.length(&path), Ok(Some(_)));
        if !there(directory.root().to_owned()) {
            return Standing::Absent;
        }
        if !there(directory.identity()) {
            // A process that dies while it begins a run leaves a directory that the next one takes over.
            let begun =
                there(directory.lock()) || files.list(directory.root()).is_ok_and(|names| names.is_empty());
            return if begun { Standing::Absent } else { Standing::Foreign("it is no run".to_owned()) };
        }
        let stored = match Raw::layered(Some(&directory.config()), &[]) {
            Ok(stored) => stored,
            Err(error) => return Standing::Foreign(format!("its configuration cannot be read: {error}")),
        };
        let mut planned = self.config.effective.clone();
        planned.keep_origin_of(&stored);
        let differences = excerpt::differences(&stored.without_local_paths(), &planned.without_local_paths());
        let goes_on = || {
            differences.iter().all(|(key, ..)| is_among(key, &FREE))
                && !self.is_past_its_end(files, &directory)
                && goes_on(files, &directory, &self.config)
        };
        if !differences.is_empty() && !goes_on() {
            Standing::Changed(differences)
        } else if differences.is_empty() && there(directory.finished()) {
            Standing::Done
        } else {
            Standing::Unfinished(newest_checkpoint(files, &directory).unwrap_or(0))
        }
    }
}

impl Planned {
    /// Whether the run in its directory has gone on after the round with which the planned one ends early.
    fn is_past_its_end(&self, files: &dyn FileLayer, directory: &RunDirectory) -> bool {
        let records =
            reader::rounds(files, directory).ok().flatten().map_or_else(Vec::new, |rounds| rounds.records);
        let end = stopping::ended(&records, &self.config.stop);
        end.is_some_and(|end| records.iter().any(|record| !record.closing && record.round > end))
    }

    /// Moves its directory from `runs` to a free name in the folder `replaced` beside it, and returns that path.
    pub fn set_aside(&self, files: &dyn FileLayer, runs: &Path) -> io::Result<PathBuf> {
        let replaced = runs.with_file_name("replaced");
        create_dir_durably(files, &replaced)?;
        let place = |number: u32| replaced.join(format!("{}-{number}", self.config.spec.name));
        let mut number = 1;
        while files.length(&place(number))?.is_some() {
            number += 1;
        }
        files.rename(self.directory(runs).root(), &place(number))?;
        Ok(place(number))
    }
}

impl Plan {
    /// Plans `experiment` with these overrides. Reports all mistakes in all configurations, each once.
    pub fn of(experiment: Experiment, overrides: &[String]) -> Result<Self, ExperimentError> {
        let points = combinations(&experiment);
        let mut plan = Self::of_runs(experiment, Vec::new(), Vec::new());
        let mut mistakes = Mistakes::default();
        for (cell, points) in points.iter().enumerate() {
            let name = points.iter().map(|point| point.name.as_str()).collect::<Vec<_>>().join("/");
            let own = points.iter().rev().find_map(|point| point.target.clone());
            let target = own.or_else(|| plan.experiment.target.clone());
            let own = points.iter().rev().find_map(|point| point.published.clone());
            let published = own.or_else(|| plan.experiment.published.clone());
            plan.cells.push(Cell { name, target, published });
            for variant in 0..plan.experiment.variants.len() {
                let mut layers: Vec<Excerpt> = plan.experiment.base.clone();
                layers.extend(points.iter().flat_map(|point| point.layers.iter().cloned()));
                layers.extend(plan.experiment.variants[variant].layers.iter().cloned());
                let tuned = plan.experiment.variants[variant].candidates.iter();
                let tuned: Vec<Excerpt> =
                    tuned.flat_map(|candidate| candidate.layers.iter().cloned()).collect();
                not_own(&[&layers[..], &tuned].concat(), overrides)?;
                let candidates = &plan.experiment.variants[variant].candidates;
                not_tuned(candidates, overrides)?;
                let seeds = (0..).zip(&plan.experiment.seeds);
                let choices: Vec<Option<usize>> = if candidates.is_empty() {
                    vec![None]
                } else {
                    (0..candidates.len()).map(Some).collect()
                };
                let each =
                    choices.iter().flat_map(|&candidate| seeds.clone().map(move |seed| (candidate, seed)));
                let (mut first, mut later) = (Vec::new(), Vec::new());
                for (candidate, (position, &seed)) in each {
                    let tuned = candidate.map(|candidate| &candidates[candidate]);
                    let name = plan.run_name(cell, variant, tuned, seed);
                    if name.len() > LONGEST_NAME {
                        let place = "[grid] and [variants]".to_owned();
                        let reason = format!(
                            "the run `{name}` would have a name of more than {LONGEST_NAME} letters: shorten those of its points or its variant"
                        );
                        return Err(ExperimentError::Content { place, reason });
                    }
                    let tuned = tuned.map_or(&[][..], |candidate| &candidate.layers);
                    match configuration(&[&layers, tuned].concat(), overrides, &name, seed) {
                        Ok(config) => {
                            let stage =
                                if candidate.is_none() || position == 0 { &mut first } else { &mut later };
                            stage.push(Planned { cell, variant, candidate, seed, config, over: false });
                        }
                        Err(errors) => mistakes.add(errors),
                    }
                }
                if !candidates.is_empty() {
                    let untuned = configuration(&layers, overrides, "untuned", 0).ok();
                    candidates::check(&first, candidates, untuned.as_ref())?;
                }
                plan.runs.append(&mut first);
                plan.later.append(&mut later);
            }
        }
        mistakes.none_or(plan)
    }

    /// A plan of these runs, without anything that is tuned.
    #[must_use]
    pub fn of_runs(experiment: Experiment, cells: Vec<Cell>, runs: Vec<Planned>) -> Self {
        Self { experiment, cells, runs, later: Vec::new(), choices: BTreeMap::new() }
    }

    /// Chooses these candidates, by cell and variant, and plans their runs with the other seeds. The positions of runs change. Returns
    /// whether anything was chosen that was open before.
    pub fn choose(&mut self, best: &BTreeMap<(usize, usize), usize>) -> bool {
        let open: Vec<_> = best.iter().filter(|(group, _)| !self.choices.contains_key(group)).collect();
        for &(&group, &best) in &open {
            self.choices.insert(group, best);
            let chosen = |run: &mut Planned| (run.cell, run.variant) == group && run.candidate == Some(best);
            let chosen: Vec<Planned> = self.later.extract_if(.., chosen).collect();
            self.runs.extend(chosen);
        }
        // The sort is stable: the candidates keep their order, and so do the seeds.
        self.runs.sort_by_key(|run| (run.cell, run.variant));
        !open.is_empty()
    }

    /// Takes in which runs are over on disk: some end before all of their rounds, by rules that their records do not tell.
    pub fn take_in(&mut self, standing: &[Standing]) {
        for (run, standing) in self.runs.iter_mut().zip(standing) {
            run.over = *standing == Standing::Done;
        }
    }

    /// The candidate that was chosen for a variant in a cell.
    #[must_use]
    pub fn chosen(&self, cell: usize, variant: usize) -> Option<&Candidate> {
        let choice = self.choices.get(&(cell, variant))?;
        self.experiment.variants[variant].candidates.get(*choice)
    }

    /// Whether a run is a candidate among which nothing is chosen yet.
    #[must_use]
    pub fn is_open(&self, run: &Planned) -> bool {
        run.candidate.is_some() && self.chosen(run.cell, run.variant).is_none()
    }

    /// Whether a run's results are those of its variant: nothing was tuned, or it is of the chosen candidate.
    #[must_use]
    pub fn counts(&self, run: &Planned) -> bool {
        run.candidate.is_none() || run.candidate == self.choices.get(&(run.cell, run.variant)).copied()
    }

    /// The number of variants in cells whose candidate is not chosen yet.
    #[must_use]
    pub fn undecided(&self) -> usize {
        let tuned = self.runs.iter().filter(|run| run.candidate.is_some());
        tuned.map(|run| (run.cell, run.variant)).collect::<BTreeSet<_>>().len() - self.choices.len()
    }

    /// The keys that the experiment gives by a former name, each once.
    #[must_use]
    pub fn renamed(&self) -> Vec<&Renamed> {
        let mut renamed = Vec::new();
        for key in self.runs.iter().flat_map(|run| &run.config.renamed) {
            if !renamed.contains(&key) {
                renamed.push(key);
            }
        }
        renamed
    }

    /// A variant in its cell: `iid/fedavg`.
    #[must_use]
    pub fn name(&self, cell: usize, variant: usize) -> String {
        let variant = &self.experiment.variants[variant].name;
        match self.cells[cell].name.as_str() {
            "" => variant.clone(),
            cell => format!("{cell}/{variant}"),
        }
    }

    /// The position of the baseline among the variants.
    #[must_use]
    pub fn baseline(&self) -> Option<usize> {
        self.variant(self.experiment.baseline.as_ref()?)
    }

    /// The position of this variant.
    #[must_use]
    pub fn variant(&self, name: &str) -> Option<usize> {
        self.experiment.variants.iter().position(|variant| variant.name == name)
    }

    fn run_name(&self, cell: usize, variant: usize, tuned: Option<&Candidate>, seed: u64) -> String {
        let tuned = tuned.map_or_else(String::new, |candidate| format!("--{}", candidate.name));
        format!("{}{tuned}--{seed}", self.name(cell, variant).replace('/', "--"))
    }

    /// The seeds, for people: `1, 2, 3`.
    #[must_use]
    pub fn seeds(&self) -> String {
        self.experiment.seeds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// What a source has published of a variant's runs as text, with the target of the rounds if it differs from ours.
    #[must_use]
    pub fn published(&self, paper: &Paper, cell: usize, variant: usize) -> Option<String> {
        let found = paper.of(&self.name(cell, variant));
        let to = self.cells[cell].published_to().map_or_else(String::new, |target| format!(" to {target}"));
        let accuracy = found.accuracy.map(|accuracy| format!("{accuracy} %"));
        let rounds = found.rounds.map(|rounds| format!("{rounds} rounds{to}"));
        let both: Vec<String> = accuracy.into_iter().chain(rounds).collect();
        (!both.is_empty()).then(|| both.join(", "))
    }

    /// The rounds that a variant's runs took to the target of the cell, as the first source that has such a number tells.
    #[must_use]
    pub fn published_rounds(&self, cell: usize, variant: usize) -> Option<f64> {
        if self.cells[cell].published_to().is_some() {
            return None;
        }
        let name = self.name(cell, variant);
        self.experiment.papers.iter().find_map(|paper| paper.of(&name).rounds)
    }
}

fn combinations(experiment: &Experiment) -> Vec<Vec<Point>> {
    experiment.axes.iter().fold(vec![Vec::new()], |so_far, axis| {
        let longer = |points: &Vec<Point>, point: &Point| [&points[..], std::slice::from_ref(point)].concat();
        so_far.iter().flat_map(|points| axis.points.iter().map(move |point| longer(points, point))).collect()
    })
}

/// Refuses keys that the experiment sets for each run.
fn not_own(layers: &[Excerpt], overrides: &[String]) -> Result<(), ExperimentError> {
    let keys = [
        (
            "run.seed",
            "`seeds` at the top of the file, or of a form, says with which seeds all is run, such as `seeds = [7]`",
        ),
        ("run.name", "a run is named after its cell, its variant and its seed"),
    ];
    for (key, instead) in keys {
        if let Some(place) = excerpt::origin(layers, overrides, key) {
            let reason = format!("`{key}` is the experiment's to set: {instead}");
            return Err(ExperimentError::Content { place: place.to_string(), reason });
        }
    }
    Ok(())
}

/// Refuses overrides of keys that are tuned.
fn not_tuned(candidates: &[Candidate], overrides: &[String]) -> Result<(), ExperimentError> {
    for (key, _) in candidates.iter().flat_map(|candidate| &candidate.values) {
        if let Some(place) = excerpt::origin(&[], overrides, key) {
            let reason =
                format!("`{key}` is chosen by [tune]: leave it out here, or choose a form without [tune]");
            return Err(ExperimentError::Content { place: place.to_string(), reason });
        }
    }
    Ok(())
}

fn configuration(
    layers: &[Excerpt],
    overrides: &[String],
    name: &str,
    seed: u64,
) -> Result<Config, ConfigErrors> {
    let own = [format!("run.name={}", Value::String(name.to_owned())), format!("run.seed={seed}")];
    let overrides = [overrides, &own].concat();
    Config::of_excerpts(layers, &overrides, RunId::from_bytes([0; 8]))
}

/// The distinct mistakes of all configurations.
#[derive(Default)]
struct Mistakes(Vec<String>, Option<ConfigErrors>);

impl Mistakes {
    fn add(&mut self, errors: ConfigErrors) {
        let text = errors.to_string();
        if !self.0.contains(&text) {
            self.0.push(text);
            self.1.get_or_insert(errors);
        }
    }

    fn none_or<T>(self, value: T) -> Result<T, ExperimentError> {
        match (self.0.len(), self.1) {
            (0, _) | (_, None) => Ok(value),
            (1, Some(errors)) => Err(errors.into()),
            (many, Some(_)) => Err(ExperimentError::Content {
                place: format!("{many} configurations are wrong"),
                reason: format!("\n{}", self.0.join("\n")),
            }),
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
