//! Failed tasks: what went wrong, and who can fix it.

use std::fmt;

use serde::Serialize;

/// Who can fix a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Blame {
    /// The owner of the device: its data or the program's arguments do not fit the run.
    Owner,
    /// The operator of the server: the run's settings, or what the server sent.
    Server,
    /// The machine: its disk, memory or GPU.
    Machine,
    /// The developers: a bug.
    Program,
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Owner => "because of this device's data or arguments",
            Self::Server => "because of the server or its run",
            Self::Machine => "because of this machine",
            Self::Program => "because of a bug in this program",
        })
    }
}

/// Why a task gave no update.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Failure {
    /// Who can fix it.
    pub blame: Blame,
    /// Whether every further task of the run would fail in the same way, as long as this process lives.
    pub permanent: bool,
    /// What went wrong and what to do, for people.
    pub reason: String,
}

impl Failure {
    /// A failure that the next task may not have.
    pub fn new(blame: Blame, reason: impl fmt::Display) -> Self {
        Self { blame, permanent: false, reason: reason.to_string() }
    }
}
