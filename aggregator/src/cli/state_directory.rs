//! Where the server keeps its key and what it knows of devices.
//!
//! Apart from results, so that deleting those locks no device out: `$XDG_STATE_HOME/aggregator`, or `~/.local/state/aggregator`. A
//! folder `identity` among the runs, where earlier programs kept it, is still found; so is one of a server with `--runs`, which is
//! whole by itself.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::exit::Failure;
use super::{LabArgs, RUNS, lab_options};
use crate::commands::command;
use crate::config::RunTable;
use crate::database::{self, Database};
use crate::history::RunLock;
use crate::run::directory::RunDirectory;
use crate::storage::{Disk, FileLayer as _};
use crate::transport::identity;

/// The directory of the server with these options.
pub(super) fn of(runs: &Path, given: Option<&Path>) -> PathBuf {
    let beside = runs.join(RunTable::IDENTITY_FOLDER);
    let variable = |name| std::env::var_os(name);
    match given {
        Some(given) => given.to_owned(),
        None if runs != Path::new(RUNS) || holds_identity(&beside) => beside,
        None => default(variable("XDG_STATE_HOME"), variable("HOME")).unwrap_or(beside),
    }
}

/// Whether a key or a database is there.
fn holds_identity(directory: &Path) -> bool {
    [identity::KEY_FILE, database::FILE].iter().any(|name| directory.join(name).exists())
}

/// The default, by the XDG base directory specification, which ignores relative paths. `None` if no variable names one.
fn default(state: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute(state).or_else(|| Some(absolute(home)?.join(".local/state")));
    Some(state?.join("aggregator"))
}

/// Moves the identity to `to`, or out of the runs to the default place; gives both places.
pub(super) fn relocate(lab: &LabArgs, to: Option<&Path>) -> Result<(PathBuf, PathBuf), Failure> {
    let from = of(&lab.runs, lab.identity.as_deref());
    let variable = |name| std::env::var_os(name);
    let default = || default(variable("XDG_STATE_HOME"), variable("HOME"));
    let to = to.map(Path::to_owned).or_else(default).ok_or_else(|| {
        Failure::Usage(
            "neither XDG_STATE_HOME nor HOME names an absolute path: say where to with --to DIR".to_owned(),
        )
    })?;
    if !holds_identity(&from) {
        return Err(Failure::Environment(format!("there is no server's key in {}", from.display())));
    }
    if let Some(database) = Database::open_existing(&from)? {
        let served = |run: &str| RunLock::in_place(&RunDirectory::new(run));
        if let Some(run) = database.runs()?.iter().find(|run| served(&run.directory)) {
            let run = &run.directory;
            return Err(Failure::Environment(format!(
                "{run} is served: stop its server first (`{}`)",
                command("stop")
            )));
        }
    }
    if to.exists() && (holds_identity(&to) || !Disk.list(&to).unwrap_or_default().is_empty()) {
        return Err(Failure::Environment(format!("{} is not empty: nothing was moved", to.display())));
    }
    let failed = |error| Failure::file("move the identity to", &to, error);
    if let Some(parent) = to.parent() {
        std::fs::create_dir_all(parent).map_err(failed)?;
    }
    // In one step: an identity is never in two halves.
    std::fs::rename(&from, &to).map_err(failed)?;
    Ok((from, to))
}

/// The option that a server with these `runs` needs to find an identity in `directory`; `None` if it looks there by itself.
pub(super) fn option(runs: &Path, directory: &Path) -> Option<String> {
    let full = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let directory = full(directory);
    (full(&of(runs, None)) != directory).then(|| lab_options(runs, Some(&directory)).trim_start().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_apart_from_results_unless_it_was_among_them() {
        let path = |text: &str| Some(OsString::from(text));
        assert_eq!(default(path("/state"), path("/home/lab")), Some("/state/aggregator".into()));
        assert_eq!(
            default(path("state"), path("/home/lab")),
            Some("/home/lab/.local/state/aggregator".into())
        );
        assert_eq!(default(None, None), None);
        let folder = tempfile::tempdir().expect("a temporary folder");
        let beside = folder.path().join("identity");
        assert_eq!(of(folder.path(), None), beside, "--runs was given");
        assert_eq!(of(folder.path(), Some(Path::new("x"))), Path::new("x"));
        assert!(!holds_identity(&beside));
        std::fs::create_dir(&beside).expect("a folder");
        std::fs::write(beside.join(identity::KEY_FILE), "a key").expect("a file");
        assert!(holds_identity(&beside));
    }

    #[test]
    fn an_identity_is_moved_whole_and_over_nothing() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (runs, to) = (folder.path().join("runs"), folder.path().join("state/aggregator"));
        let lab = LabArgs { runs: runs.clone(), identity: None, json: false };
        assert!(relocate(&lab, Some(&to)).is_err(), "there is none");
        let from = runs.join("identity");
        std::fs::create_dir_all(&from).expect("a folder");
        std::fs::write(from.join(identity::KEY_FILE), "a key").expect("a file");
        assert_eq!(relocate(&lab, Some(&to)).expect("it is moved"), (from.clone(), to.clone()));
        assert!(!from.exists() && to.join(identity::KEY_FILE).exists());
        let found = to.canonicalize().expect("it is there");
        let option = |directory: &Path| super::option(&runs, directory);
        assert_eq!(option(&to), Some(format!("--identity {}", found.display())), "no server looks there");
        assert_eq!(option(&from), None, "as a server with --runs does");
        std::fs::create_dir_all(&from).expect("a folder");
        std::fs::write(from.join(identity::KEY_FILE), "another key").expect("a file");
        assert!(relocate(&lab, Some(&to)).is_err(), "the other is not overwritten");
        assert_eq!(std::fs::read_to_string(to.join(identity::KEY_FILE)).expect("it is there"), "a key");
    }
}
