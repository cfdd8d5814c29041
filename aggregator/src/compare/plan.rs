//! All runs of an experiment, each with its whole configuration, before the first one begins.

use std::io;
use std::path::{Path, PathBuf};

use shared::id::RunId;
use toml::Value;

pub use super::experiment::Target;
use super::experiment::{Experiment, ExperimentError, Point};
use crate::config::excerpt::{self, Excerpt};
use crate::config::{Config, ConfigErrors, Raw};
use crate::files::{FileLayer, create_dir_durably};
use crate::run::directory::{RunDirectory, newest_checkpoint};

/// Names of runs are names of folders.
const LONGEST_NAME: usize = 60;

/// An experiment with all its runs.
#[derive(Debug)]
pub struct Plan {
    /// What it is about.
    pub experiment: Experiment,
    /// The settings in which all variants are compared.
    pub cells: Vec<Cell>,
    /// Cell by cell, variant by variant, seed by seed.
    pub runs: Vec<Planned>,
}

/// One setting of the grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Its points' names, `/` between them; empty without a grid.
    pub name: String,
    /// What to count rounds and bytes to.
    pub target: Option<Target>,
    /// What published rounds were counted to: the same without the chosen form.
    pub published: Option<Target>,
}

/// One run.
#[derive(Clone, Debug)]
pub struct Planned {
    /// Position of its cell.
    pub cell: usize,
    /// Position of its variant.
    pub variant: usize,
    /// Its seed.
    pub seed: u32,
    /// Everything it runs on. Its name is that of its directory.
    pub config: Config,
}

/// Where a planned run stands on disk.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// It has not begun.
    Absent,
    /// It can be continued after so many rounds.
    Unfinished(u32),
    /// It is complete.
    Done,
    /// Its directory holds a run of another configuration, or of other data: keys, their values there and now.
    Changed(Vec<(String, String, String)>),
    /// Its directory holds something that is no run.
    Foreign(String),
}

impl Planned {
    /// For people: `iid/fedavg, seed 2`.
    #[must_use]
    pub fn title(&self, plan: &Plan) -> String {
        format!("{}, seed {}", plan.name(self.cell, self.variant), self.seed)
    }

    /// Its directory among the `runs`.
    #[must_use]
    pub fn directory(&self, runs: &Path) -> RunDirectory {
        RunDirectory::new(runs.join(&self.config.spec.name))
    }

    /// Looks at its directory. Errors of the disk make it foreign: whoever begins it will hear them in full.
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
        let differences = excerpt::differences(&stored.wherever(), &self.config.effective.wherever());
        if !differences.is_empty() {
            Standing::Changed(differences)
        } else if there(directory.finished()) {
            Standing::Done
        } else {
            Standing::Unfinished(newest_checkpoint(files, &directory).unwrap_or(0))
        }
    }
}

impl Planned {
    /// Moves its directory among the `runs` to a free name in `replaced` beside them, and says where.
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
    /// The whole of `experiment`, its configurations under these overrides. All mistakes of all of them are told, each
    /// once.
    pub fn of(experiment: Experiment, overrides: &[String]) -> Result<Self, ExperimentError> {
        let points = combinations(&experiment);
        let mut plan = Self { cells: Vec::new(), runs: Vec::new(), experiment };
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
                not_own(&layers, overrides)?;
                for &seed in &plan.experiment.seeds {
                    let name = plan.run_name(cell, variant, seed);
                    if name.len() > LONGEST_NAME {
                        let place = "[grid] and [variants]".to_owned();
                        let reason = format!(
                            "the run `{name}` would have a name of more than {LONGEST_NAME} letters: shorten those of its points or its variant"
                        );
                        return Err(ExperimentError::Content { place, reason });
                    }
                    match configuration(&layers, overrides, &name, seed) {
                        Ok(config) => plan.runs.push(Planned { cell, variant, seed, config }),
                        Err(errors) => mistakes.add(errors),
                    }
                }
            }
        }
        mistakes.none_or(plan)
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

    fn run_name(&self, cell: usize, variant: usize, seed: u32) -> String {
        format!("{}--{seed}", self.name(cell, variant).replace('/', "--"))
    }

    /// The seeds, for people: `1, 2, 3`.
    #[must_use]
    pub fn seeds(&self) -> String {
        self.experiment.seeds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    /// What stands above numbers that were published.
    #[must_use]
    pub fn paper_head(&self) -> &'static str {
        if self.experiment.full { "paper" } else { "paper (full setup)" }
    }

    /// What was published, in words, with what its rounds were counted to if ours are counted to something else.
    #[must_use]
    pub fn published(&self, cell: usize, variant: usize) -> Option<String> {
        let (name, paper) = (self.name(cell, variant), &self.experiment.paper);
        let Cell { target, published, .. } = &self.cells[cell];
        let other = published.as_ref().filter(|published| target.as_ref() != Some(published));
        let to = other.map_or_else(String::new, |target| format!(" to {target}"));
        let accuracy = paper.accuracy.get(&name).map(|accuracy| format!("{accuracy} %"));
        let rounds = paper.rounds.get(&name).map(|rounds| format!("{rounds} rounds{to}"));
        let both: Vec<String> = accuracy.into_iter().chain(rounds).collect();
        (!both.is_empty()).then(|| both.join(", "))
    }
}

fn combinations(experiment: &Experiment) -> Vec<Vec<Point>> {
    experiment.axes.iter().fold(vec![Vec::new()], |so_far, axis| {
        let longer = |points: &Vec<Point>, point: &Point| [&points[..], std::slice::from_ref(point)].concat();
        so_far.iter().flat_map(|points| axis.points.iter().map(move |point| longer(points, point))).collect()
    })
}

/// Refuses configurations with what the experiment tells each run itself.
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

fn configuration(
    layers: &[Excerpt],
    overrides: &[String],
    name: &str,
    seed: u32,
) -> Result<Config, ConfigErrors> {
    let own = [format!("run.name={}", Value::String(name.to_owned())), format!("run.seed={seed}")];
    let overrides = [overrides, &own].concat();
    Config::of_excerpts(layers, &overrides, RunId::from_bytes([0; 8]))
}

/// What is wrong with any of the configurations; what they share is wrong in all of them and told once.
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
pub(super) mod tests {
    use super::*;
    use crate::files::Disk;

    pub(in crate::compare) fn plan(text: &str, form: &str) -> Result<Plan, ExperimentError> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("letters.toml");
        std::fs::write(&path, text).expect("a file in it");
        Plan::of(Experiment::read(&path, form)?, &[])
    }

    const WHOLE: &str = r#"
about = "Which letters are learned fastest."
seeds = 2
target = 0.9
baseline = "slow"

[base]
model.name = "linear"
run.rounds = 4

[grid.partition]
iid = { data.partition.iid = {} }
skewed = { data.partition.shards.per-client = 2, target = 0.5 }

[grid]
"training.batch" = [8, 16]

[variants.slow]
training.optimizer.sgd.rate = 0.01

[variants.fast]
training.optimizer.sgd.rate = 0.1

[forms.reduced]
data.limit = 600
grid.partition = ["skewed"]

[forms.full]
seeds = [7, 3, 9]

[forms.small.grid.partition.skewed]
data.clients = 5
target = "fast"

[forms.one]
target = 0.8

[forms.one.variants.slow]
run.rounds = 2

[paper]
source = "Nobody, 2020"
rounds = { "iid/batch=8/slow" = 12 }
"#;

    #[test]
    fn every_combination_is_run_with_every_seed() {
        let plan = plan(WHOLE, "full").expect("a plan");
        assert_eq!(plan.experiment.title, "letters");
        assert_eq!((plan.cells.len(), plan.runs.len()), (4, 4 * 2 * 3));
        let names: Vec<&str> = plan.cells.iter().map(|cell| cell.name.as_str()).collect();
        assert_eq!(names, ["iid/batch=8", "iid/batch=16", "skewed/batch=8", "skewed/batch=16"]);
        assert_eq!(
            plan.cells.iter().map(|cell| cell.target.clone()).collect::<Vec<_>>(),
            [0.9, 0.9, 0.5, 0.5].map(|target| Some(Target::Accuracy(target)))
        );
        let run = &plan.runs[13];
        assert_eq!(run.title(&plan), "skewed/batch=8/slow, seed 3");
        assert_eq!((run.config.spec.name.as_str(), run.config.spec.seed), ("skewed--batch=8--slow--3", 3));
        assert_eq!(run.config.spec.training.batch, 8);
        assert_eq!(plan.baseline(), Some(0));
    }

    #[test]
    fn a_form_changes_and_leaves_out() {
        let plan = plan(WHOLE, "reduced").expect("a plan");
        assert_eq!((plan.cells.len(), plan.runs.len()), (2, 2 * 2 * 2));
        assert!(plan.runs.iter().all(|run| run.config.effective.data.limit == Some(600)));
        assert_eq!(plan.cells[0].target, Some(Target::Accuracy(0.5)), "the skewed cell's own");
        let plan = super::tests::plan(WHOLE, "one").expect("a plan");
        assert!(
            plan.cells.iter().all(|cell| cell.target == Some(Target::Accuracy(0.8))),
            "the form's, whatever the cells say"
        );
        assert_eq!(plan.experiment.variants.len(), 1);
        assert_eq!(plan.published(0, 0).as_deref(), Some("12 rounds to 90.0 %"), "the form counts to 80 %");
        assert!(plan.runs.iter().all(|run| run.config.spec.rounds == 2));
        let plan = super::tests::plan(WHOLE, "small").expect("a plan");
        assert_eq!(plan.cells.len(), 2, "the skewed ones");
        assert!(plan.cells.iter().all(|cell| cell.target == Some(Target::Of("fast".to_owned()))));
        assert!(plan.runs.iter().all(|run| run.config.effective.data.clients == 5));
        let error = super::tests::plan(WHOLE, "tiny").expect_err("no such form").to_string();
        assert!(error.contains("`tiny`") && error.contains("reduced, full, small, one"), "{error}");
        let error = super::tests::plan("[variants.x]", "tiny").expect_err("no forms").to_string();
        assert!(error.contains("`tiny`") && error.contains("no [forms]"), "{error}");
    }

    #[test]
    fn mistakes_name_their_place_and_what_is_possible() {
        for (text, parts) in [
            ("[variant.x]", &["letters.toml:1", "`variant`", "variants"][..]),
            ("[run]\nrounds = 3", &["letters.toml:1", "`run`", "simulate FILE", "[base]"]),
            ("[base]", &["nothing to compare", "[variants.NAME]"]),
            ("seeds = 0\n[variants.x]", &["letters.toml:1", "1 to 1000"]),
            ("seeds = [1, 1]\n[variants.x]", &["different seeds"]),
            ("target = 97\n[variants.x]", &["0.97"]),
            ("target = 'y'\n[variants.x]", &["letters.toml:1", "the target `y`", "none of the variants x"]),
            ("[variants.x]\n[grid]\n'run.rounds' = [2, 2]", &["letters.toml:3", "`rounds=2`", "twice"]),
            ("baseline = 'y'\n[variants.x]", &["`y`", "none of the variants x"]),
            ("[variants.\"a b\"]", &["letters.toml:1", "no name for a folder"]),
            (
                "[variants.x]\ntraining.epoch = 1\n[variants.y]",
                &["letters.toml:2", "`training.epoch`", "epochs"],
            ),
            ("[base]\nrun.seed = 7\n[variants.x]", &["letters.toml:2", "`run.seed`", "`seeds = [7]`"]),
            (
                "[variants.x]\n[forms.full]\nrun = { name = 'y' }",
                &["letters.toml:3", "`run.name`", "named after"],
            ),
            ("[variants.x]\n[grid]\n'run.seed' = [1, 2]", &["letters.toml:3", "`run.seed`"]),
            ("[variants.x]\n[grid]\nbeta = 1", &["letters.toml:3", "`grid.beta`", "named points"]),
            ("[variants.x]\n[grid]\nbeta = []", &["no points"]),
            ("[variants.x]\n[paper]\nrounds = { 'a/x' = 1 }", &["letters.toml:3", "`a/x`", "such as `x`"]),
            (
                "[variants.x]\n[paper]\naccuracy = { z = 1 }",
                &["letters.toml:3", "no variant `z`", "there is x"],
            ),
            ("[variants.x]\n[paper]\nrounds = { x = -5 }", &["letters.toml:3", "`x` is -5"]),
            ("[variants.x]\n[paper]\nmetrics.x = { a = 101 }", &["letters.toml:3", "`x` is 101", "per cent"]),
            (
                "[variants.x]\n[grid.b]\np = {}\nq = {}\n[paper]\naccuracy = { 'r/x' = 1 }",
                &["letters.toml:6", "no `r` in [grid.b]", "there are p, q"],
            ),
            ("[variants.x]\n[paper]\nround = { 'x' = 1 }", &["letters.toml:2", "round"]),
            (
                "[variants.x]\n[forms.full]\nvariants = ['z']",
                &["letters.toml:3", "`z` is none of them", "there are x"],
            ),
            (
                "[variants.x]\ndata.clients = 0\n[variants.y]\nrun.rounds = 0",
                &["2 configurations", ":2", ":4"],
            ),
        ] {
            let error = plan(text, "full").expect_err(text).to_string();
            for part in parts {
                assert!(error.contains(part), "{part:?} is not in: {error}");
            }
        }
    }

    #[test]
    fn seeds_are_not_set_from_the_command_line() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("letters.toml");
        std::fs::write(&path, WHOLE).expect("a file in it");
        let of = |given: &str| {
            let overrides = ["training.epochs=2".to_owned(), given.to_owned()];
            Plan::of(Experiment::read(&path, "full").expect("an experiment"), &overrides)
        };
        for given in ["run.seed=7", "run={ seed = 7 }"] {
            let error = of(given).expect_err(given).to_string();
            assert!(error.starts_with(&format!("--set {given}: `run.seed` is the experiment's")), "{error}");
        }
        assert!(of("run.rounds=7").is_ok());
    }

    #[test]
    fn a_run_on_disk_is_compared_with_the_plan() {
        let planned = plan(WHOLE, "reduced").expect("a plan").runs.remove(0);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let standing = |planned: &Planned| planned.standing(&Disk, folder.path());
        assert_eq!(standing(&planned), Standing::Absent);
        let directory = planned.directory(folder.path());
        std::fs::create_dir_all(directory.state()).expect("a folder");
        assert_eq!(standing(&planned), Standing::Foreign("it is no run".to_owned()));
        std::fs::write(directory.lock(), "").expect("a file");
        assert_eq!(standing(&planned), Standing::Absent);
        std::fs::write(directory.config(), planned.config.effective.to_toml()).expect("a file");
        std::fs::write(directory.identity(), "{}").expect("a file");
        assert_eq!(standing(&planned), Standing::Unfinished(0));
        std::fs::write(directory.checkpoint(3), "").expect("a file");
        assert_eq!(standing(&planned), Standing::Unfinished(3));
        std::fs::write(directory.finished(), "").expect("a file");
        assert_eq!(standing(&planned), Standing::Done);
        let mut changed = planned.clone();
        changed.config.effective.training.epochs = 7;
        let expected = vec![("training.epochs".to_owned(), "1".to_owned(), "7".to_owned())];
        assert_eq!(standing(&changed), Standing::Changed(expected));
    }
}
