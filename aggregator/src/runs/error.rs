//! What is in the way of a command about runs.

use std::io;
use std::path::{Path, PathBuf};

use crate::commands::command;

/// Why a run cannot be deleted, stripped or archived.
#[derive(Debug, thiserror::Error)]
pub enum RunsError {
    /// A process works on it.
    #[error(
        "{} is in use: a process works on the run. Stop that one first, with Ctrl-C or, where it is served, `{}`",
        path.display(),
        command("stop")
    )]
    InUse {
        /// The run's directory.
        path: PathBuf,
    },
    /// It lies elsewhere.
    #[error("{} is a link: name the directory that it leads to, and remove the link yourself", path.display())]
    Link {
        /// The link.
        path: PathBuf,
    },
    /// It was continued since it was looked at.
    #[error("{} went on since it was looked at, and stays as it is: give the command again", path.display())]
    WentOn {
        /// The run's directory.
        path: PathBuf,
    },
    /// The file to write is there.
    #[error("{} is there already, and is not replaced: name another file", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A name that an archive cannot hold.
    #[error("the name of {} is not UTF-8, which one in an archive has to be: rename it", path.display())]
    Name {
        /// The file or directory.
        path: PathBuf,
    },
    /// There is no such directory of runs.
    #[error(
        "there is no directory {}: runs lie in `runs` where `aggregator simulate` or `serve` was started; --runs DIR names another \
         directory", path.display()
    )]
    NoPlace {
        /// The directory.
        path: PathBuf,
    },
    /// A run was named where a directory of runs is wanted.
    #[error("{0} is a run: `aggregator runs show {0}` shows it; --runs names a directory of runs", path.display())]
    IsRun {
        /// The run's directory.
        path: PathBuf,
    },
    /// The disk.
    #[error("cannot {action} {}: {source}", path.display())]
    Disk {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// For `map_err`: what was tried on which file.
pub(super) fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RunsError {
    let path = path.to_owned();
    move |source| RunsError::Disk { action, path, source }
}
