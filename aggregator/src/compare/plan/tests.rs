//! Plans of small experiments.

use std::sync::Arc;

use super::*;
use crate::run::Run;
use crate::storage::Disk;

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
training.optimizer.sgd.learning-rate = 0.01

[variants.fast]
training.optimizer.sgd.learning-rate = 0.1

[forms.reduced]
data.max-samples = 600
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
source = "Doe, 2020"
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
    assert!(plan.runs.iter().all(|run| run.config.effective.data.max_samples == Some(600)));
    assert_eq!(plan.cells[0].target, Some(Target::Accuracy(0.5)), "the skewed cell's own");
    let plan = super::tests::plan(WHOLE, "one").expect("a plan");
    assert!(
        plan.cells.iter().all(|cell| cell.target == Some(Target::Accuracy(0.8))),
        "the form's, regardless of the cells"
    );
    assert_eq!(plan.experiment.variants.len(), 1);
    let published = plan.published(&plan.experiment.papers[0], 0, 0);
    assert_eq!(published.as_deref(), Some("12 rounds to 90.0 %"), "the form counts to 80 %");
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
        ("seeds = 3\n[interpolate]\n[variants.x]", &["letters.toml:1", "two seeds at a time", "there are 3"]),
        ("[variants.\"a b\"]", &["letters.toml:1", "no name for a folder"]),
        ("[variants.x]\ntraining.epoch = 1\n[variants.y]", &["letters.toml:2", "`training.epoch`", "epochs"]),
        ("[base]\nrun.seed = 7\n[variants.x]", &["letters.toml:2", "`run.seed`", "`seeds = [7]`"]),
        (
            "[variants.x]\n[forms.full]\nrun = { name = 'y' }",
            &["letters.toml:3", "`run.name`", "named after"],
        ),
        ("[variants.x]\n[grid]\n'run.seed' = [1, 2]", &["letters.toml:3", "`run.seed`"]),
        ("[variants.x]\n[grid]\nbeta = 1", &["letters.toml:3", "`grid.beta`", "named points"]),
        ("[variants.x]\n[grid]\nbeta = []", &["no points"]),
        ("[variants.x]\n[paper]\nrounds = { 'a/x' = 1 }", &["letters.toml:3", "`a/x`", "such as `x`"]),
        ("[variants.x]\n[paper]\naccuracy = { z = 1 }", &["letters.toml:3", "no variant `z`", "there is x"]),
        ("[variants.x]\n[paper]\nrounds = { x = -5 }", &["letters.toml:3", "`x` is -5"]),
        ("[variants.x]\n[paper]\nmetrics.x = { a = 101 }", &["letters.toml:3", "`x` is 101", "per cent"]),
        (
            "[variants.x]\n[grid.b]\np = {}\nq = {}\n[paper]\naccuracy = { 'r/x' = 1 }",
            &["letters.toml:6", "no `r` in [grid.b]", "there are p, q"],
        ),
        ("[variants.x]\n[paper]\nround = { 'x' = 1 }", &["letters.toml:2", "round"]),
        ("[variants.x]\n[paper]\nfrom = 'hearsay'", &["letters.toml:2", "hearsay", "third-party"]),
        ("[variants.x]\n[paper]\nform = 'half'\n[forms.full]", &["letters.toml:3", "no form `half`", "full"]),
        ("[variants.x]\n[papers.a]\naccuracy = { z = 1 }", &["letters.toml:3", "no variant `z`"]),
        ("[variants.x]\n[paper]\n[papers.a]", &["letters.toml:2", "[papers.paper]"]),
        (
            "[variants.x]\n[forms.full]\nvariants = ['z']",
            &["letters.toml:3", "`z` is none of them", "there are x"],
        ),
        ("[variants.x]\ndata.clients = 0\n[variants.y]\nrun.rounds = 0", &["2 configurations", ":2", ":4"]),
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
fn keys_by_their_former_names_are_named_once() {
    let former = WHOLE.replace("learning-rate", "rate");
    let plan = plan(&former, "full").expect("former names are read");
    let said: Vec<_> = plan.renamed().iter().map(ToString::to_string).collect();
    assert_eq!(said.len(), 2, "one of each variant: {said:?}");
    assert_ne!(said[0], said[1], "each with its place");
    let now = "is called `training.optimizer.sgd.learning-rate` now";
    assert!(said.iter().all(|said| said.contains(now)), "{said:?}");
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

/// A row whose first rounds had other settings than the rest would be of neither.
#[test]
fn a_run_goes_on_with_more_rounds_and_not_with_other_cohorts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let planned = plan(WHOLE, "reduced").expect("a plan").runs.remove(0);
    let begun = Run::begin(Arc::new(Disk), planned.directory(folder.path()), planned.config.clone(), None);
    drop(begun.expect("a run"));
    let standing = |planned: &Planned| planned.standing(&Disk, folder.path());
    assert_eq!(standing(&planned), Standing::Unfinished(0));
    let changed = |change: &dyn Fn(&mut Raw)| {
        let mut raw = planned.config.effective.clone();
        change(&mut raw);
        let config = Config::validate(&raw, planned.config.spec.run).expect("valid");
        standing(&Planned { config, ..planned.clone() })
    };
    assert_eq!(changed(&|raw| raw.run.rounds = Some(40)), Standing::Unfinished(0));
    assert_eq!(changed(&|raw| raw.early_stopping.target = Some(0.9)), Standing::Unfinished(0));
    for change in [
        (&|raw: &mut Raw| raw.round.fraction = 0.5) as &dyn Fn(&mut Raw),
        &|raw| raw.round.min_updates = 3,
        &|raw| raw.evaluate.every = 7,
    ] {
        assert!(matches!(changed(change), Standing::Changed(_)));
    }
}
