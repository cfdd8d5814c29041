//! What is in the way of using a store.

use std::io;
use std::path::{Path, PathBuf};

use super::advice::{meaning, told};
use crate::runs::RunsError;

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The address is none. The caller can correct it.
    #[error(
        "{reason}: give the store as postgres://USER@HOST:PORT/DATABASE, its password in PGPASSWORD, and the authority of its certificate \
         in PGSSLROOTCERT"
    )]
    Address {
        /// What is wrong with it.
        reason: String,
    },
    /// The certificates that the store's is checked with cannot be read.
    #[error("cannot read certificates from {} (PGSSLROOTCERT): {reason}", path.display())]
    Certificates {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The store does not answer, or lets this program not in.
    #[error("cannot use the store at {store}: {}", told(source))]
    Refused {
        /// Where it is, without a password.
        store: String,
        /// What the database or the system says.
        source: postgres::Error,
    },
    /// A newer program has worked on it.
    #[error(
        "the store at {store} was made by a newer aggregator (its format is {found}, this program knows those up to {known}): use the \
         newer program, or give another database or search_path"
    )]
    Newer {
        /// Where it is, without a password.
        store: String,
        /// Its format.
        found: i64,
        /// The newest format of this program.
        known: i64,
    },
    /// Another run is in the way.
    #[error("{} holds something else than the run that the store has by that name: move it away, or give another --runs", path.display())]
    Occupied {
        /// The folder.
        path: PathBuf,
    },
    /// The secret of a private run is another one than its servers derive.
    #[error(
        "{} is not the secret that the servers derive for this run: its configuration or the servers' key was changed, or the store was lost or put back. Give \
         the configuration that the run began with and restore the database, or move the run's folder away to begin another run",
        path.display()
    )]
    OtherSecret {
        /// The file.
        path: PathBuf,
    },
    /// A run that another process has begun learns from other data than this one has.
    #[error(
        "the run {run}, which another worker has begun, learns from other data than this worker has: {why}. Give this worker the data that \
         the others have; what it had of the experiment is in its --out"
    )]
    OtherData {
        /// The run.
        run: String,
        /// In what they differ.
        why: String,
    },
    /// What it holds of a run is not what was put there.
    #[error(
        "what the store holds of the run {run} is damaged ({reason}): remove it from the store (an experiment with `compare --forget`, a run \
         that was served with DELETE FROM experiments, as the manual has it), and run it again"
    )]
    Damaged {
        /// The run.
        run: String,
        /// What is wrong.
        reason: String,
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

impl StoreError {
    /// Whether it may pass by itself: the database is away, restarts, fails over, has no room for a connection, or had two transactions
    /// that could not both be.
    #[must_use]
    pub fn is_outage(&self) -> bool {
        matches!(self, Self::Refused { source, .. } if meaning(source).passes)
    }

    /// Whether what was asked for is wrong, and not the machine or the database.
    #[must_use]
    pub fn is_of_the_caller(&self) -> bool {
        matches!(
            self,
            Self::Address { .. } | Self::Occupied { .. } | Self::OtherSecret { .. } | Self::OtherData { .. }
        )
    }
}

/// For `map_err`: what was tried on which file.
pub fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Disk { action, path, source }
}
