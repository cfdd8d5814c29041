//! What can be wrong with an ensemble.

use std::io;
use std::path::{Path, PathBuf};

use models::{BatchError, DecodeError, ModelError};

/// Why an ensemble cannot be read, written or used. All but [`EnsembleError::Model`] are the operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum EnsembleError {
    /// The disk refused.
    #[error("cannot {action} {}: {source}", path.display())]
    Disk {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The bytes are not safetensors.
    #[error("{} is not a readable safetensors file ({source}); is it the ensemble.safetensors that a run has left?", path.display())]
    NotSafetensors {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// It is safetensors and no ensemble.
    #[error("{} is no ensemble: {reason}; name the ensemble.safetensors that a run has left", path.display())]
    NotAnEnsemble {
        /// The file.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// The file is shorter or longer than what it holds.
    #[error(
        "{} has {found} bytes and should have {expected}: it was not copied completely; copy it again", path.display()
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Bytes that its header accounts for.
        expected: u64,
        /// Bytes in it.
        found: u64,
    },
    /// A tensor is not what the architecture needs.
    #[error(
        "{}: {reason}: the members do not fit the architecture that the file names; extend ensembles with `aggregator \
         ensemble extend`, which checks them", path.display()
    )]
    Layout {
        /// The file.
        path: PathBuf,
        /// Which tensor, and how.
        reason: String,
    },
    /// A tensor holds NaN or an infinity.
    #[error(
        "{}: tensor `{tensor}` holds a value that is not finite: the file is damaged; restore it, or run again", path.display()
    )]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
    },
    /// A member's features of a sample are not numbers that can be summed up.
    #[error("{}: member {member} ({client}) gives features that are not finite: leave it out with `aggregator ensemble drop {} --client {client}`", path.display(), path.display())]
    Features {
        /// The file.
        path: PathBuf,
        /// Its number.
        member: usize,
        /// Whose it is.
        client: String,
    },
    /// A member's prototypes are numbers that cannot be averaged with those of others.
    #[error(
        "the model of client {client} has prototypes that are too large to be averaged: leave it out with `aggregator ensemble \
         drop ENSEMBLE --client {client}`, of the ensemble that it is in"
    )]
    Prototypes {
        /// Whose they are.
        client: String,
    },
    /// A client is to be left out that has no model in it.
    #[error("{} has no member of client {client}: `aggregator ensemble show` lists them", path.display())]
    NoMember {
        /// The file.
        path: PathBuf,
        /// The client.
        client: String,
    },
    /// Everybody is to be left out.
    #[error("{} would have no members left, and answer nothing: remove the file instead", path.display())]
    NobodyLeft {
        /// The file.
        path: PathBuf,
    },
    /// Two ensembles that have nothing to do with each other.
    #[error("{} cannot be extended with {}: {reason}", into.display(), with.display())]
    Strangers {
        /// The one.
        into: PathBuf,
        /// The other.
        with: PathBuf,
        /// What differs, and what to do.
        reason: String,
    },
    /// An update that was accepted cannot be read again.
    #[error("{}: {reason}", path.display())]
    Update {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A member cannot be run.
    #[error("a member of the ensemble cannot be run: {0}")]
    Model(#[from] ModelError),
    /// The samples do not make a batch.
    #[error("the samples cannot be made into a batch: {0}")]
    Batch(#[from] BatchError),
}

/// For `map_err`: says what was tried on which file.
pub(super) fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> EnsembleError {
    let path = path.to_owned();
    move |source| EnsembleError::Disk { action, path, source }
}
