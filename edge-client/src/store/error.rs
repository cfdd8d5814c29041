//! Errors of the state directory. Each message says what was tried, where, and what to do.

use std::io;
use std::path::{Path, PathBuf};

use shared::chown;
use thiserror::Error;

use crate::failure::{Blame, Failure};
use shared::personalisation::PersonalError;

/// Why something cannot be stored or read back. All but [`NothingHeld`](Self::NothingHeld) are for the device's owner.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The operating system refused: no such directory, no permission, no space.
    #[error("cannot {action} {}: {error}; {}", path.display(), advice(path, error))]
    Io {
        /// What was tried, such as `write`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Another process uses this state directory.
    #[error(
        "the state directory {} is in use by another process: stop that client, or give this one a state directory of its own",
        directory.display()
    )]
    Locked {
        /// The state directory.
        directory: PathBuf,
    },
    /// The identity, the server or the client state of a run cannot be read, and nothing can stand in for it.
    #[error("{} is damaged ({problem}): {remedy}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
        /// What to do, and what that costs.
        remedy: &'static str,
    },
    /// The directory was used by a newer version of this program.
    #[error(
        "the state directory {} was made by a newer version of this program (format {found}, this one knows {known}): \
         update this program, or give it a state directory of its own with --state",
        directory.display()
    )]
    NewerDirectory {
        /// The state directory.
        directory: PathBuf,
        /// Its recorded format.
        found: String,
        /// The format that this program writes.
        known: u32,
    },
    /// There is no personal model.
    #[error(
        "there is no such personal model in {}: take part in a run that personalises (edge-client join), name the state \
         directory with --state, or use a global model with --model",
        directory.display()
    )]
    NoPersonal {
        /// The directory that would contain it.
        directory: PathBuf,
    },
    /// The personal model cannot be used.
    #[error(
        "the personal model {} cannot be used: {problem}; restore it from a backup, or take part in a run that \
         personalises to have it made anew",
        path.display()
    )]
    Personal {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        problem: Box<PersonalError>,
    },
    /// The pending update was complete when the store was opened and no longer is. It was removed, so the next start trains
    /// again.
    #[error(
        "the unsent update {} {problem}; it was complete before, so another program changes this directory or the \
         disk fails. Start the client again: it trains again",
        path.display()
    )]
    Lost {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A newer program wrote this file.
    #[error(
        "{} has format version {found}, this program knows versions up to {known}: run the newer program again, \
         or remove the file to go on without what it holds",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u8,
        /// The newest version that this build reads.
        known: u8,
    },
    /// The system has no random bytes for a new identity.
    #[error("the system gives no random numbers for a new identity: {0}; is this a sandbox without them?")]
    Random(getrandom::Error),
    /// The thread that syncs an update has panicked: a bug.
    #[error("internal error: syncing the update panicked ({0}); please report this")]
    Unsynced(String),
    /// A store of a simulation was to keep a secret: a bug.
    #[error("internal error: this store keeps no secrets of secure aggregation; please report this")]
    KeepsNoSecrets,
    /// A payload was requested while no update is pending: a bug.
    #[error("internal error: no update is held, so there is no payload; please report this")]
    NothingHeld,
}

impl StoreError {
    /// Whether the disk is full. Retry: its user may free some space.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let full = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded];
        matches!(self, Self::Io { error, .. } if full.contains(&error.kind()))
    }

    /// Who can fix it, as a failure of the round that met it.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let blame = if matches!(self, Self::NothingHeld | Self::KeepsNoSecrets | Self::Unsynced(_)) {
            Blame::Program
        } else {
            Blame::Machine
        };
        Failure::new(blame, self)
    }

    /// For `map_err`: adds what was tried, and the path.
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |error| Self::Io { action, path: path.to_path_buf(), error }
    }
}

fn advice(path: &Path, error: &io::Error) -> String {
    // Advice about the directory does not help with a file that belongs to another user, such as root.
    let whose = chown::advice(path, error);
    if let Some(whose) = whose.strip_prefix("; ") {
        return whose.to_owned();
    }
    let general = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make some space there, or choose a state directory on another disk"
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "make the state directory writable for this user, or choose another one"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "a file is in the way: remove it, or choose another state directory"
        }
        io::ErrorKind::Unsupported => {
            "this file system cannot do that: choose a state directory on another disk"
        }
        _ => "check the state directory, or choose another one",
    };
    general.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_follows_the_cause() {
        let message =
            |kind: io::ErrorKind| StoreError::io("write", Path::new("state/outbox"))(kind.into()).to_string();
        assert!(message(io::ErrorKind::StorageFull).contains("make some space"));
        assert!(message(io::ErrorKind::ReadOnlyFilesystem).contains("writable"));
        assert!(message(io::ErrorKind::PermissionDenied).contains("writable"));
        assert!(message(io::ErrorKind::NotADirectory).contains("in the way"));
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::Other] {
            assert!(message(kind).starts_with("cannot write state/outbox: "), "{}", message(kind));
        }
    }
}
