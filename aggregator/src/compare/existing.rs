//! Runs that exist already, as an experiment: those that differ in the seed alone are one variant.

use std::path::{Path, PathBuf};

use super::experiment::{Experiment, Variant};
use super::plan::{Cell, Plan, Planned};
use super::results::Rounds;
use crate::config::Raw;
use crate::config::excerpt::{Difference, differences_beyond, in_words};
use crate::page::{Found, PageError};
use crate::report::standing::Standing;
use crate::round::stopping;
use crate::run::directory::RunDirectory;
use crate::storage::FileLayer;

/// Keys in which the runs of one variant may differ.
const OWN: [&str; 2] = ["run.seed", "run.name"];
/// The key in which runs of a published data set may differ as well: a copy in another folder is the same set.
const PATH: &str = "data.path";

/// The plan that these runs would have come from, their rounds, and which of them are not over, in words.
///
/// # Errors
/// A directory that holds no run, or one that cannot be read.
pub fn existing(files: &dyn FileLayer, paths: &[PathBuf]) -> Result<(Plan, Rounds, Vec<String>), PageError> {
    let read = |path: &PathBuf| Found::read(files, &RunDirectory::new(path.clone()), false);
    let found = paths.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    Ok(of_found(&paths.iter().map(PathBuf::as_path).zip(&found).collect::<Vec<_>>()))
}

/// The same of runs that were read already, each with its directory.
#[must_use]
pub fn of_found(found: &[(&Path, &Found)]) -> (Plan, Rounds, Vec<String>) {
    let mut groups: Vec<(String, Raw, Vec<u64>)> = Vec::new();
    let (mut runs, mut rounds, mut unfinished) = (Vec::new(), Vec::new(), Vec::new());
    for &(path, Found { config, rounds: closed, standing, .. }) in found {
        let mut config = config.clone();
        let directory = RunDirectory::new(path);
        let over = matches!(standing, Standing::Complete { .. });
        let last = closed.records.last().map_or(0, |round| round.round);
        let planned = stopping::planned(&closed.records, config.spec.rounds);
        let end = stopping::last(&closed.records, config.spec.rounds, &config.stop);
        if !over && config.spec.work_after(last, end).is_some() {
            unfinished.push(format!(
                "{} is {} after round {last} of {planned}: it is drawn, and counts in no mean",
                path.display(),
                standing.name()
            ));
        }
        let seed = config.spec.seed;
        let same = |(_, raw, seeds): &(String, Raw, Vec<u64>)| {
            between(raw, &config.effective).is_empty() && !seeds.contains(&seed)
        };
        let variant = if let Some(group) = groups.iter().position(same) {
            groups[group].2.push(seed);
            group
        } else {
            let name = directory.name().into_owned();
            let taken = groups.iter().any(|(other, ..)| *other == name);
            let name = if taken { path.display().to_string() } else { name };
            groups.push((name, config.effective.clone(), vec![seed]));
            groups.len() - 1
        };
        // The page beside which it is mentioned is elsewhere.
        let place = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        config.spec.name = place.display().to_string();
        runs.push(Planned { cell: 0, variant, candidate: None, seed, config, over });
        rounds.push(Some(closed.records.clone()));
    }
    let mut seeds: Vec<u64> = groups.iter().flat_map(|(.., seeds)| seeds.iter().copied()).collect();
    seeds.sort_unstable();
    seeds.dedup();
    let experiment = Experiment {
        title: groups.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>().join(" and "),
        about: what_differs(&groups),
        form: String::new(),
        seeds,
        target: None,
        published: None,
        baseline: groups.first().filter(|_| groups.len() > 1).map(|(name, ..)| name.clone()),
        base: Vec::new(),
        axes: Vec::new(),
        variants: groups
            .into_iter()
            .map(|(name, ..)| Variant { name, layers: Vec::new(), candidates: Vec::new() })
            .collect(),
        papers: Vec::new(),
        interpolation: None,
        text: String::new(),
    };
    let cells = vec![Cell { name: String::new(), target: None, published: None }];
    (Plan::of_runs(experiment, cells, runs), rounds, unfinished)
}

/// The keys in which the two differ, except those that runs of one variant may differ in.
fn between(first: &Raw, second: &Raw) -> Vec<Difference> {
    let mut found = differences_beyond(first, second, &OWN);
    found.retain(|(key, ..)| key != PATH || first.data.set.is_own());
    found
}

/// In which keys each variant differs from the first.
fn what_differs(groups: &[(String, Raw, Vec<u64>)]) -> String {
    let Some(((first, raw, _), others)) = groups.split_first() else { return String::new() };
    let said = others.iter().map(|(name, other, _)| {
        let differing = between(raw, other);
        let keys = if differing.is_empty() { "no key differs".to_owned() } else { in_words(&differing) };
        format!("{first} -> {name}: {keys}.")
    });
    said.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tells_variants_apart_is_said_and_seeds_do_not() {
        let raw = |overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
            Raw::layered(None, &overrides).expect("overrides that can be read")
        };
        let first = raw(&["run.seed=1", "run.name=a"]);
        assert!(between(&first, &raw(&["run.seed=2", "run.name=b"])).is_empty());
        let at = |set: &str, path: &str| raw(&[&format!("data.set={set}"), &format!("data.path={path}")]);
        assert!(between(&at("mnist", "/a/mnist"), &at("mnist", "/b/raw")).is_empty());
        let two_hospitals = between(&at("images", "/north/photos"), &at("images", "/south/photos"));
        assert_eq!(two_hospitals.len(), 1, "they are no two seeds");
        let other = raw(&["run.seed=1", "training.epochs=5"]);
        let groups = [("a".to_owned(), first, vec![1, 2]), ("b".to_owned(), other, vec![1])];
        let said = what_differs(&groups);
        assert!(said.starts_with("a -> b: training.epochs ") && said.ends_with(" -> 5."), "{said}");
    }
}
