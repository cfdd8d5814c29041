//! What a run that is over can do without: the part of `state/` that would continue it with more rounds.
//!
//! Models, rounds, report and configuration stay, and so does what the report says beside. Where the models of simulated clients
//! are the result, they stay as well.

use std::collections::BTreeSet;
use std::path::PathBuf;

use shared::algorithm::registry;

use super::error::disk;
use super::sizes::bytes_in;
use super::{RunsError, claim};
use crate::config::Config;
use crate::run::directory::{RunDirectory, round_in};
use crate::storage::{FileLayer, parent, write_durably};

/// Files and folders that can be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surplus {
    paths: Vec<PathBuf>,
    /// Their size on disk.
    pub bytes: u64,
}

/// Why nothing of a run can be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Needed {
    /// It would be continued.
    #[error("it is not over: state/ continues it")]
    NotOver,
    /// The model is nowhere else.
    #[error("it has left no model: state/ holds the only one")]
    NoModel,
}

impl Surplus {
    /// What the run in `directory` can do without; nothing if it was pruned already.
    ///
    /// # Errors
    /// The run needs all that it has, or its folder cannot be listed.
    pub fn of(
        files: &dyn FileLayer,
        directory: &RunDirectory,
        config: &Config,
    ) -> Result<Result<Self, Needed>, RunsError> {
        let there = |path: PathBuf| -> Result<bool, RunsError> {
            Ok(files.length(&path).map_err(disk("look at", &path))?.is_some())
        };
        if !there(directory.finished())? {
            return Ok(Err(Needed::NotOver));
        }
        if !there(directory.model())? && !there(directory.ensemble())? {
            return Ok(Err(Needed::NoModel));
        }
        let state = directory.state();
        let mut paths = Vec::new();
        for name in files.list(&state).map_err(disk("list", &state))? {
            if continues(&name) {
                paths.push(state.join(name));
            }
        }
        paths.extend(of_clients(files, directory, config)?);
        let bytes = paths.iter().map(|path| bytes_in(path)).sum();
        Ok(Ok(Self { paths, bytes }))
    }

    /// Whether there is nothing to remove.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// Removes it. A mark comes first, by which no process continues a run that lacks a part of its state.
    ///
    /// # Errors
    /// A process works on the run, it went on since it was looked at, or the disk fails.
    pub fn remove(&self, files: &dyn FileLayer, directory: &RunDirectory) -> Result<(), RunsError> {
        let _lock = claim::to_change(files, directory)?;
        let finished = directory.finished();
        if files.length(&finished).map_err(disk("look at", &finished))?.is_none() {
            return Err(RunsError::WentOn { path: directory.root().to_owned() });
        }
        let mark = directory.pruned();
        write_durably(files, &mark, |_| Ok(())).map_err(disk("write", &mark))?;
        for path in &self.paths {
            let removed = if path.is_dir() { files.remove_dir(path) } else { files.remove(path) };
            removed.map_err(disk("remove", path))?;
        }
        let folders: BTreeSet<PathBuf> = self.paths.iter().map(|path| parent(path).to_owned()).collect();
        for folder in folders {
            files.sync_dir(&folder).map_err(disk("sync", &folder))?;
        }
        Ok(())
    }
}

/// Whether an entry of `state/` of this name only continues the run.
fn continues(name: &str) -> bool {
    let of_round = |prefix, suffix| round_in(name, prefix, suffix).is_some();
    of_round("checkpoint-", ".safetensors")
        || of_round("round-", ".json")
        || of_round("accepted-", "")
        || ["broadcast-", "base-", "difference-"].iter().any(|begins| of_round(begins, ".safetensors"))
        || ["spool", "roster.json", "rounds.jsonl", "secret"].contains(&name)
        || name.ends_with(".partial")
}

/// What simulated clients have kept from round to round; not their own models, where those are what was learned.
fn of_clients(
    files: &dyn FileLayer,
    directory: &RunDirectory,
    config: &Config,
) -> Result<Vec<PathBuf>, RunsError> {
    let clients = directory.clients();
    let local = registry::build(&config.spec.algorithm).is_ok_and(|algorithm| algorithm.personal().is_some());
    if local || files.length(&clients).map_err(disk("look at", &clients))?.is_none() {
        return Ok(Vec::new());
    }
    let names = files.list(&clients).map_err(disk("list", &clients))?;
    let state = names.into_iter().filter(|name| !name.ends_with(".personal.safetensors"));
    Ok(state.map(|name| clients.join(name)).collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use shared::id::RunId;

    use super::*;
    use crate::config::Raw;
    use crate::storage::Disk;

    fn config(overrides: &[&str]) -> Config {
        let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
        let raw = Raw::layered(None, &overrides).expect("overrides that can be read");
        Config::validate(&raw, RunId::from_bytes([1; 8])).expect("a valid configuration")
    }

    #[test]
    fn what_continues_a_run_goes_and_its_results_stay() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let directory = RunDirectory::new(folder.path());
        let kept = [
            "config.toml",
            "rounds.jsonl",
            "model.safetensors",
            "report.html",
            "state/run.json",
            "state/finished",
            "state/about.json",
            "state/ended.json",
            "state/served",
            "state/clients/ab.personal.safetensors",
        ];
        let gone = [
            "state/checkpoint-000007.safetensors",
            "state/round-000007.json",
            "state/accepted-000007/ab.update",
            "state/broadcast-000008.safetensors",
            "state/base-000008.safetensors",
            "state/difference-000008.safetensors",
            "state/spool/x",
            "state/roster.json",
            "state/clients/ab.a",
            "state/checkpoint-000008.safetensors.partial",
        ];
        for name in kept.iter().chain(&gone) {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, "1234").expect("a file");
        }
        let of = |config: &Config| Surplus::of(&Disk, &directory, config).expect("it can be listed");
        let local = of(&config(&["algorithm.local={}"])).expect("it is over");
        assert_eq!(local.bytes, 4 * (gone.len() as u64 - 1), "the clients' own models are the result");
        let surplus = of(&config(&[])).expect("it is over");
        assert_eq!(surplus.bytes, 4 * gone.len() as u64);
        surplus.remove(&Disk, &directory).expect("no process works on it");
        assert!(directory.pruned().is_file());
        assert!(kept.iter().all(|name| folder.path().join(name).is_file()));
        assert!(!gone.iter().any(|name| folder.path().join(name).exists()));
        assert!(of(&config(&[])).expect("it is over").is_empty());

        fs::remove_file(directory.model()).expect("it was there");
        assert_eq!(of(&config(&[])), Err(Needed::NoModel));
        fs::remove_file(directory.finished()).expect("it was there");
        assert_eq!(of(&config(&[])), Err(Needed::NotOver));
    }
}
