//! Why the database cannot be used.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rustix::fs::{Access, access};

use shared::chown::advice;

/// Why the database cannot be used; an error of the operator or the machine.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The file cannot be made or looked at.
    #[error("cannot {action} {}: {source}{}", path.display(), advice(path, source))]
    File {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A newer program has worked on it.
    #[error(
        "{} was made by a newer aggregator (its format is {found}, this program knows those up to {known}): use the newer \
         program, or an identity directory of its own for this one (--identity)",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: i64,
        /// The newest format of this program.
        known: i64,
    },
    /// It holds something else.
    #[error(
        "{} is a database of another program: move it away, or give another identity directory (--identity)",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is not what was written.
    #[error(
        "{} is damaged ({reason}): restore it from a backup, together with the files of its name that end in -wal and -shm, or \
         move all of them away; the runs themselves do not depend on it, the devices that were let in do",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Another program has held it for as long as this one would wait.
    #[error(
        "{} is locked by another program: end the program that has it open (a database browser, a backup), and try again",
        path.display()
    )]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// There is no room on the disk.
    #[error("cannot {action} {}: the disk is full", path.display())]
    Full {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
    },
    /// Anything else that `SQLite` says.
    #[error("cannot {action} {}: {source}", path.display())]
    Query {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What it says.
        source: rusqlite::Error,
    },
}

/// For `map_err`: what `SQLite` says of a file, as what an operator can do about it.
pub(super) fn failed(action: &'static str, path: &Path) -> impl Fn(rusqlite::Error) -> DatabaseError + use<> {
    let path = path.to_owned();
    move |source| {
        let path = path.clone();
        match source.sqlite_error_code() {
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                DatabaseError::Damaged { path, reason: source.to_string() }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => DatabaseError::Locked { path },
            // What SQLite does not say: that the file is not for this user.
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly) => {
                match access(&path, Access::READ_OK | Access::WRITE_OK) {
                    Err(denied) => DatabaseError::File { action, path, source: denied.into() },
                    Ok(()) => DatabaseError::Query { action, path, source },
                }
            }
            Some(ErrorCode::DiskFull) => DatabaseError::Full { action, path },
            _ => DatabaseError::Query { action, path, source },
        }
    }
}
