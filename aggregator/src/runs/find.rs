//! The run that a person names: by its path, or by its name in the directory of runs.

use std::path::{Component, Path, PathBuf};

use super::deletion::is_leftover;
use crate::config::nearest_name;
use crate::run::directory::{RunDirectory, has_rounds, newest_checkpoint};
use crate::storage::Disk;

/// No run has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} holds no run, and none in {} has this name{}", given.display(), runs.display(), hint(nearest.as_deref()))]
pub struct NoSuchRun {
    /// What was given.
    pub given: PathBuf,
    /// The directory of runs.
    pub runs: PathBuf,
    /// The name of a run that could be meant.
    pub nearest: Option<String>,
}

fn hint(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!(": did you mean {name}? `aggregator runs` lists all"),
        None => ": `aggregator runs` lists all, and --runs DIR names another directory".to_owned(),
    }
}

/// The run that `given` names: a path, or else a path from the directory `runs`.
pub fn find(runs: &Path, given: &Path) -> Result<RunDirectory, NoSuchRun> {
    let given = tidy(given);
    let mut places = vec![given.clone()];
    if given.is_relative() {
        places.extend([runs.join(&given), within(runs).join(&given)]);
    }
    if given.components().count() == 1 {
        // A bare name is that of a run among the others, also where the working directory has something of that name.
        places.rotate_left(1);
    }
    let found = places.into_iter().map(RunDirectory::new).find(is_run);
    found.ok_or_else(|| {
        let names = names_in(&within(runs));
        let nearest = given.to_str().and_then(|name| nearest_name(name, names.iter().map(String::as_str)));
        NoSuchRun { given, runs: runs.to_owned(), nearest }
    })
}

/// Without a slash at the end, and with a name.
fn tidy(given: &Path) -> PathBuf {
    let tidy: PathBuf = given.components().collect();
    match tidy.components().next_back() {
        Some(Component::CurDir | Component::ParentDir) => given.canonicalize().unwrap_or(tidy),
        _ => tidy,
    }
}

/// Where the runs in this directory lie: those of an experiment are in a folder of its folder.
#[must_use]
pub fn within(runs: &Path) -> PathBuf {
    let inner = runs.join("runs");
    let of_experiment = names_in(runs).is_empty() && !names_in(&inner).is_empty();
    if of_experiment { inner } else { runs.to_owned() }
}

/// Whether a run lies in this directory, sound or damaged; the rest of one that was being deleted is none.
#[must_use]
pub fn is_run(directory: &RunDirectory) -> bool {
    if is_leftover(directory.root()) {
        return false;
    }
    let left = directory.config().is_file() && directory.rounds().is_file();
    left || directory.identity().is_file()
        || is_beginning(directory)
        || newest_checkpoint(&Disk, directory).is_some()
        || has_rounds(&Disk, directory)
}

/// Whether a process begins a run here, or has died while it did: a lock, and nothing but what comes first beside it. A lock alone says
/// little, since other programs keep their state under the same name.
fn is_beginning(directory: &RunDirectory) -> bool {
    let names = |path: &Path| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    let first = |name: &String| {
        ["lock", "spool"].contains(&&**name)
            || name.ends_with(".partial")
            || ["broadcast-", "base-", "checkpoint-"].iter().any(|begins| name.starts_with(begins))
    };
    directory.lock().is_file()
        && names(directory.root()).iter().all(|name| name == "state" || name.starts_with("config.toml"))
        && names(&directory.state()).iter().all(first)
}

/// The names of the runs in a directory, sorted; none if it cannot be read.
pub(super) fn names_in(runs: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(runs) else { return Vec::new() };
    let runs = entries.flatten().filter(|entry| is_run(&RunDirectory::new(entry.path())));
    let mut names: Vec<String> = runs.map(|run| run.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make(path: &Path) {
        std::fs::create_dir_all(path.join("state")).expect("a folder");
        std::fs::write(path.join("state/run.json"), "").expect("a file in it");
    }

    #[test]
    fn a_run_is_named_by_its_path_or_by_its_name_among_the_runs() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let runs = folder.path().join("runs");
        make(&runs.join("glyphs-fedavg"));
        make(&runs.join("sweep/a--1"));
        let found = |given: &Path| find(&runs, given).map(|run| run.root().to_owned());
        let name = runs.join("glyphs-fedavg");
        assert_eq!(found(Path::new("glyphs-fedavg")).as_deref(), Ok(&*name));
        assert_eq!(found(Path::new("glyphs-fedavg/")).as_deref(), Ok(&*name), "a shell completes so");
        assert_eq!(found(&name).as_deref(), Ok(&*name));
        assert_eq!(found(Path::new("sweep/a--1")).as_deref(), Ok(&*runs.join("sweep/a--1")));
        let wrong = found(Path::new("glyph-fedavg")).expect_err("there is none").to_string();
        assert!(wrong.contains("holds no run") && wrong.contains("did you mean glyphs-fedavg?"), "{wrong}");
        let wrong = found(Path::new("entirely-else")).expect_err("there is none").to_string();
        assert!(wrong.contains("`aggregator runs` lists all") && !wrong.contains("mean"), "{wrong}");
        assert!(find(&runs, &runs).is_err(), "the directory of runs is none");
    }

    #[test]
    fn the_runs_of_an_experiment_lie_in_a_folder_of_its_folder() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        make(&folder.path().join("runs/a--1"));
        assert_eq!(within(folder.path()), folder.path().join("runs"));
        let found = find(folder.path(), Path::new("a--1")).expect("by its name");
        assert_eq!(found.root(), folder.path().join("runs/a--1"));
        make(&folder.path().join("b"));
        assert_eq!(within(folder.path()), folder.path(), "one that has runs itself is no experiment's");
    }
}
