//! What is in the way of using a store.

use std::io;
use std::path::{Path, PathBuf};

use shared::cli::causes;

use crate::runs::RunsError;

/// Why a store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The address is none. The caller can correct it.
    #[error("{reason}: give the store as postgres://USER@HOST:PORT/DATABASE, and its password in PGPASSWORD")]
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
    #[error("{} holds another run than the store has by that name: move it away, or give another --runs", path.display())]
    Occupied {
        /// The folder.
        path: PathBuf,
    },
    /// What it holds of a run is not what was put there.
    #[error(
        "what the store holds of the run {run} is damaged ({reason}): remove the experiment from the store, and run it again"
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
        let Self::Refused { source, .. } = self else { return false };
        source.code().is_none_or(|code| {
            // Connection, transaction rollback, resources, intervention of the operator, a server that was made one that only reads, and a
            // transaction in which this process stood still for too long.
            ["08", "25006", "25P03", "40", "53", "57"].iter().any(|class| code.code().starts_with(class))
        })
    }

    /// Whether what was asked for is wrong, and not the machine or the database.
    #[must_use]
    pub fn is_of_the_caller(&self) -> bool {
        matches!(self, Self::Address { .. } | Self::Occupied { .. })
    }
}

/// What the database says, with what to do where that is known.
fn told(error: &postgres::Error) -> String {
    let text = causes(error);
    let advice = match error.code().map(postgres::error::SqlState::code) {
        Some("28000" | "28P01") => ": set PGPASSWORD, or name another user",
        Some("3D000") => ": make it with `createdb`, or name another database",
        Some("42501") => {
            ": the user needs the right to make tables in the first schema of its search_path, or to use those that are there"
        }
        Some(_) => "",
        None => ": see whether it runs, and whether host and port are right",
    };
    format!("{text}{advice}")
}

/// For `map_err`: what was tried on which file.
pub fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Disk { action, path, source }
}
