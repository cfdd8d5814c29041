//! All that lies in a directory of runs. What is no run, or cannot be read, is named with the reason.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use shared::calendar::moment_in;

use super::RunsError;
use super::deletion::is_leftover;
use super::error::disk;
use super::find::{is_run, names_in, within};
use super::overview::Overview;
use super::sizes::bytes_in;
use crate::commands::command;
use crate::config::RunTable;
use crate::page::{Found, PageError};
use crate::run::directory::{RunDirectory, has_rounds, newest_checkpoint};
use crate::storage::Disk;
use crate::storage::held::is_held_alone;

/// All that lies in a directory of runs.
#[derive(Debug, Serialize)]
pub struct Listing {
    /// Where the runs lie.
    pub directory: PathBuf,
    /// The runs, those that were active last at the end.
    pub runs: Vec<Overview>,
    /// The other folders, by name.
    pub folders: Vec<Folder>,
}

/// A folder that holds no run, or one that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Folder {
    /// Its name.
    pub folder: String,
    /// Its path.
    pub path: PathBuf,
    /// What it is.
    pub kind: Kind,
    /// The same in words; of a run that cannot be read, why.
    pub reason: String,
    /// Number of runs in it.
    pub runs: usize,
    /// Size on disk.
    pub bytes: u64,
}

/// What a folder without a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Runs lie in it, as those of an experiment.
    Runs,
    /// The server's key and its devices.
    Identity,
    /// A run that cannot be read.
    Damaged,
    /// The rest of a run whose deletion was cut off.
    Leftover,
    /// Something else.
    Other,
}

impl Listing {
    /// Looks at every folder in `runs`, or in the folder of an experiment's runs in it.
    ///
    /// # Errors
    /// There is no such directory, it is a run itself, or it cannot be listed.
    pub fn of(runs: &Path) -> Result<Self, RunsError> {
        if !runs.is_dir() {
            return Err(RunsError::NoPlace { path: runs.to_owned() });
        }
        if is_run(&RunDirectory::new(runs)) {
            return Err(RunsError::IsRun { path: runs.to_owned() });
        }
        let place = within(runs);
        let (mut found, mut folders) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&place).map_err(disk("list", &place))? {
            let path = entry.map_err(disk("list", &place))?.path();
            if path.is_dir() {
                match look(&path) {
                    Ok(run) => found.push(run),
                    Err(folder) => folders.push(folder),
                }
            }
        }
        found.sort_by_cached_key(|run: &Overview| {
            (run.active.as_deref().and_then(moment_in), run.run.clone())
        });
        folders.sort_by(|a: &Folder, b: &Folder| a.folder.cmp(&b.folder));
        Ok(Self { directory: place, runs: found, folders })
    }
}

fn look(path: &Path) -> Result<Overview, Folder> {
    let directory = RunDirectory::new(path);
    let name = directory.name().into_owned();
    let folder = |kind, reason: String, runs| Folder {
        folder: name.clone(),
        path: path.to_owned(),
        kind,
        reason,
        runs,
        bytes: bytes_in(path),
    };
    if path.is_symlink() {
        return Err(folder(Kind::Other, "a link".to_owned(), 0));
    }
    if is_leftover(path) {
        let prune = command("runs prune");
        let reason = format!("the rest of a deletion that was cut off; `{prune}` removes it");
        return Err(folder(Kind::Leftover, reason, 0));
    }
    if is_run(&directory) {
        return match Found::read(&Disk, &directory, false) {
            Ok(found) => Ok(Overview::of(&directory, &found)),
            Err(PageError::NoRun(_)) => Err(folder(Kind::Damaged, without_manifest(&directory), 0)),
            Err(PageError::Run(error)) => Err(folder(Kind::Damaged, error.to_string(), 0)),
        };
    }
    if name.eq_ignore_ascii_case(RunTable::IDENTITY_FOLDER) {
        return Err(folder(Kind::Identity, "the server's key and devices".to_owned(), 0));
    }
    let inside = names_in(&within(path)).len();
    let (kind, reason) = match inside {
        0 => (Kind::Other, "holds no run"),
        _ => (Kind::Runs, "holds runs"),
    };
    Err(folder(kind, reason.to_owned(), inside))
}

/// What a run without `state/run.json` is.
fn without_manifest(directory: &RunDirectory) -> String {
    let opened =
        has_rounds(&Disk, directory) || newest_checkpoint(&Disk, directory).is_some_and(|round| round > 0);
    if is_held_alone(&directory.lock()) {
        "a process begins a run here"
    } else if opened || directory.rounds().is_file() {
        "state/run.json is missing: restore it from a backup, or delete the run"
    } else {
        "a process died while it began a run here; the next run of this name takes it over"
    }
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_no_run_has_a_line_of_its_own_and_stops_nothing() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = |name: &str| folder.path().join(name);
        for name in [
            "identity",
            "notes",
            "x.deleting",
            "begun/state",
            "lost/state",
            "damaged/state",
            "sweep/runs/a/state",
        ] {
            fs::create_dir_all(path(name)).expect("a folder");
        }
        let files = [
            "begun/state/lock",
            "lost/state/round-000001.json",
            "x.deleting/deleting",
            "damaged/state/run.json",
            "sweep/runs/a/state/run.json",
            "a file",
        ];
        for name in files {
            fs::write(path(name), "12345").expect("a file");
        }
        let listing = Listing::of(folder.path()).expect("it can be listed");
        assert!(listing.runs.is_empty(), "{listing:?}");
        let said: Vec<_> =
            listing.folders.iter().map(|folder| (&*folder.folder, folder.kind, folder.runs)).collect();
        assert_eq!(
            said,
            [
                ("begun", Kind::Damaged, 0),
                ("damaged", Kind::Damaged, 0),
                ("identity", Kind::Identity, 0),
                ("lost", Kind::Damaged, 0),
                ("notes", Kind::Other, 0),
                ("sweep", Kind::Runs, 1),
                ("x.deleting", Kind::Leftover, 0),
            ]
        );
        let reason = |at: usize| &*listing.folders[at].reason;
        assert!(reason(0).contains("died while it began"), "{}", reason(0));
        assert!(reason(1).contains("run.json is damaged"), "{}", reason(1));
        assert!(reason(3).contains("run.json is missing"), "{}", reason(3));
        assert_eq!(listing.folders.iter().map(|folder| folder.bytes).sum::<u64>(), 25);
        assert!(matches!(Listing::of(&path("nowhere")), Err(RunsError::NoPlace { .. })));
        assert!(matches!(Listing::of(&path("damaged")), Err(RunsError::IsRun { .. })));
        let inside = Listing::of(&path("sweep")).expect("an experiment's folder");
        assert_eq!(inside.directory, path("sweep/runs"));
    }
}
