//! What can end a run from the inside.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use models::ModelError;
use models::model_file::ModelFileError;
use shared::algorithm::registry::RegistryError;
use shared::algorithm::{AggregateError, TrainError};
use shared::data::DataError;
use shared::record::RecordError;

use super::initial_model_error::InitialModelError;
use super::leaves_error::LeavesError;
use crate::config::ConfigErrors;
use crate::data::{EvaluateError, PlanError};
use crate::ensemble::EnsembleError;
use crate::storage::checksum::ChecksumMismatch;

/// Why a run cannot go on. No accepted update is lost: the same command resumes the run once the cause is removed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The disk refused: full, read-only, removed. The operator has to act.
    #[error("cannot {action} {}: {source}; what is on disk is safe, and the same command goes on from it once this is repaired", path.display())]
    Disk {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file or a folder of the run's directory was removed.
    #[error(
        "cannot {action} {}: it was removed, or its folder was; restore the run's directory from a backup or start a new run with \
         --fresh", path.display()
    )]
    Removed {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
    },
    /// A file of the run directory is not what this program wrote.
    #[error("{} is damaged ({reason}); restore it from a backup or start a new run with --fresh", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// `rounds.jsonl` is not what this program wrote. The model does not depend on it; which round is the best does, and whether `[early-stopping]` was met.
    #[error(
        "{} is damaged: {reason}; move this file away, and the same command continues the run: its rounds come \
         back from their copy in state/ or from the database; without either the report lacks them, and [early-stopping] and the \
         best model begin anew",
        path.display()
    )]
    Rounds {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Its configuration is not one of this version.
    #[error("the configuration of {} is not one that this version reads: {source}", path.display())]
    Config {
        /// The run's directory.
        path: PathBuf,
        /// What is wrong with it.
        source: ConfigErrors,
    },
    /// The checkpoint does not hold this algorithm's state.
    #[error("the checkpoint does not hold this algorithm's state: {0}")]
    Checkpoint(#[from] RecordError),
    /// The round's updates do not make a new model.
    #[error(transparent)]
    Aggregate(#[from] AggregateError),
    /// The model cannot be built or evaluated.
    #[error("the model cannot be evaluated: {0}")]
    Model(#[from] ModelError),
    /// The model file cannot be written.
    #[error(transparent)]
    ModelFile(#[from] ModelFileError),
    /// The server's own training failed.
    #[error("the server's own training failed: {0}")]
    Supervised(#[source] TrainError),
    /// The system gives no threads for it.
    #[error("cannot start another thread: {0}; close other programs, or raise the limit of threads")]
    Threads(String),
    /// The training samples, or those of them that the server has, cannot be read or divided as configured.
    #[error(transparent)]
    Labelled(#[from] PlanError),
    /// The ensemble cannot be read, written or used.
    #[error(transparent)]
    Ensemble(#[from] EnsembleError),
    /// The model that the run is to begin with cannot be taken.
    #[error(transparent)]
    Initial(#[from] InitialModelError),
    /// The test data cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The system gives no random bytes for the secret of a private run.
    #[error("the system gives no random bytes for the run's secret: {0}")]
    Random(getrandom::Error),
    /// The servers that have the run's updates.
    #[error(transparent)]
    Leaves(LeavesError),
    /// The algorithm is not of this build.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl From<EvaluateError> for RunError {
    fn from(error: EvaluateError) -> Self {
        match error {
            EvaluateError::Samples(error) => {
                Self::Damaged { path: "the test set".into(), reason: error.to_string() }
            }
            EvaluateError::Model(error) => Self::Model(error),
        }
    }
}

impl RunError {
    /// What is damaged, if that is the cause. A run that can be repeated from its configuration needs no repair.
    #[must_use]
    pub fn damage(&self) -> Option<String> {
        match self {
            Self::Damaged { path, reason } | Self::Rounds { path, reason } => {
                Some(format!("{} is damaged ({reason})", path.display()))
            }
            Self::Ensemble(error @ EnsembleError::Damaged { .. }) => Some(error.to_string()),
            Self::Checkpoint(error) => Some(format!("the checkpoint is damaged ({error})")),
            _ => None,
        }
    }
}

/// For `map_err`: says what was tried on which file, and tells a disk that refuses from a file that is damaged or was removed.
pub(crate) fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> RunError {
    let path = path.to_owned();
    move |source| {
        if ChecksumMismatch::is(&source) {
            RunError::Damaged { path, reason: ChecksumMismatch.to_string() }
        } else if source.kind() == ErrorKind::NotFound {
            RunError::Removed { action, path }
        } else {
            RunError::Disk { action, path, source }
        }
    }
}

/// For `map_err`: the file is not what this program wrote.
pub(crate) fn damaged<E: std::fmt::Display>(path: &Path) -> impl FnOnce(E) -> RunError {
    let path = path.to_owned();
    move |reason| RunError::Damaged { path, reason: reason.to_string() }
}
