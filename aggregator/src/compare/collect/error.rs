//! What is in the way of collecting shards.

use std::io;
use std::path::{Path, PathBuf};

use crate::compare::shard::Shard;
use crate::compare::shard::record::RecordError;
use crate::report::units::counted;
use crate::run::RunError;
use crate::runs::RunsError;

/// Why shards cannot be collected. The caller can correct all but what the disk fails at.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// There is no such folder.
    #[error("there is no folder {}: --collect takes the folders that shards had as --out", .0.display())]
    Absent(PathBuf),
    /// A file is no folder.
    #[error("{} is a file: --collect takes the folders that shards had as --out", .0.display())]
    File(PathBuf),
    /// No shard has worked there.
    #[error("{} holds no runs of a shard: --collect takes the folders that shards had as --out", .0.display())]
    Empty(PathBuf),
    /// The runs were named in place of the folder around them.
    #[error("{} holds runs themselves: give --collect the folder that `runs` lies in, as shards had it as --out", .0.display())]
    Runs(PathBuf),
    /// A shard of another experiment, or of another state of it.
    #[error(
        "{} holds shard {shard} of another experiment: {why}. Give the EXPERIMENT, --form and --set that the shards had, or run them again \
         as the experiment is now", path.display()
    )]
    Shard {
        /// The folder.
        path: PathBuf,
        /// The shard.
        shard: Shard,
        /// In what it differs.
        why: String,
    },
    /// Runs that the experiment does not have.
    #[error(
        "{} not of this experiment with {with}:\n{}\nGive the EXPERIMENT, --form and --set that the shards had, or move these \
         runs away", runs_are(runs.len()), shown(runs)
    )]
    Unknown {
        /// The form and the seeds.
        with: String,
        /// Their directories.
        runs: Vec<String>,
    },
    /// Runs with another configuration, other data or an unreadable configuration.
    #[error(
        "{} of another state of the experiment:\n{}\nGive the EXPERIMENT, --form and --set that the shards had, or run these \
         shards again with --replace", runs_are(.0.len()), shown(.0)
    )]
    Changed(Vec<String>),
    /// Runs of another version of the program, whose results may differ.
    #[error(
        "{} of another version of the program than this one, {}, and their results may differ:\n{}\nCollect them with that \
         version, or make them again with this one in another --out", runs_are(.0.len()), env!("CARGO_PKG_VERSION"), shown(.0)
    )]
    Version(Vec<String>),
    /// Two copies of a run.
    #[error(
        "{} and {} are the same run with other results: {why}. Remove the one that is not to count", one.display(), other.display()
    )]
    Different {
        /// A copy.
        one: PathBuf,
        /// Another one.
        other: PathBuf,
        /// In what they differ.
        why: String,
    },
    /// A shard's record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The rounds of a run.
    #[error("{}: {source}", path.display())]
    Rounds {
        /// The run's directory.
        path: PathBuf,
        /// Why they cannot be read.
        source: RunError,
    },
    /// The files of a run.
    #[error(transparent)]
    Contents(#[from] RunsError),
    /// The disk.
    #[error("cannot {action} {}: {source}; the same command goes on", path.display())]
    Disk {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

impl CollectError {
    /// Whether the machine is in the way, and not what was asked for.
    #[must_use]
    pub fn is_of_this_machine(&self) -> bool {
        matches!(
            self,
            Self::Disk { .. }
                | Self::Contents(_)
                | Self::Rounds { .. }
                | Self::Record(RecordError::Disk { .. })
        )
    }
}

/// `1 run is`, `2 runs are`.
pub(super) fn runs_are(count: usize) -> String {
    format!("{} {}", counted(count, "run"), if count == 1 { "is" } else { "are" })
}

/// The first lines of a list, and how many more there are.
pub(super) fn shown(lines: &[String]) -> String {
    /// Lines that are shown.
    const MOST: usize = 10;
    let mut text: Vec<String> = lines.iter().take(MOST).map(|line| format!("  {line}")).collect();
    if lines.len() > MOST {
        text.push(format!("  and {} more", lines.len() - MOST));
    }
    text.join("\n")
}

/// For `map_err`: what was tried on which file.
pub(super) fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CollectError {
    let path = path.to_owned();
    move |source| CollectError::Disk { action, path, source }
}
