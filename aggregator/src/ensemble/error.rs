//! Errors of ensembles.

use std::io;
use std::path::{Path, PathBuf};

use models::{BatchError, DecodeError, ModelError};

/// Why an ensemble cannot be read, written or used. The operator can fix all but [`EnsembleError::Model`].
#[derive(Debug, thiserror::Error)]
pub enum EnsembleError {
    /// The disk failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Disk {
        /// The attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The bytes are not safetensors.
    #[error("{} is not a readable safetensors file ({source}); is it the ensemble.safetensors that a run has left?", path.display())]
    NotSafetensors {
        /// The file.
        path: PathBuf,
        /// The error.
        source: DecodeError,
    },
    /// The file is not as it was written.
    #[error("{} is damaged: its content does not match its checksum; restore it from a backup or copy it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The file is safetensors and not an ensemble.
    #[error("{} is no ensemble: {reason}; name the ensemble.safetensors that a run has left", path.display())]
    NotAnEnsemble {
        /// The file.
        path: PathBuf,
        /// What is missing.
        reason: String,
    },
    /// The length of the file differs from that of its header and tensors.
    #[error(
        "{} has {found} bytes and should have {expected}: it was not copied completely; copy it again", path.display()
    )]
    Length {
        /// The file.
        path: PathBuf,
        /// Bytes that its header declares.
        expected: u64,
        /// Bytes of the file.
        found: u64,
    },
    /// A tensor does not fit the architecture.
    #[error(
        "{}: {reason}: the members do not fit the architecture that the file names; extend ensembles with `aggregator \
         ensemble extend`, which checks them", path.display()
    )]
    Layout {
        /// The file.
        path: PathBuf,
        /// The tensor and the difference.
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
    /// A member's features of a sample, or what it answers, are not finite, or too large to be summed.
    #[error("{}: member {member} ({client}) gives features or answers that are not finite: leave it out with `aggregator ensemble drop {} --client {client}`", path.display(), path.display())]
    Features {
        /// The file.
        path: PathBuf,
        /// Its number.
        member: usize,
        /// Its client.
        client: String,
    },
    /// A member's prototypes are too large to be averaged.
    #[error(
        "the model of client {client} has prototypes that are too large to be averaged: leave it out with `aggregator ensemble \
         drop ENSEMBLE --client {client}`, of the ensemble that it is in"
    )]
    Prototypes {
        /// Its client.
        client: String,
    },
    /// A client to drop has no member.
    #[error("{} has no member of client {client}: `aggregator ensemble show` lists them", path.display())]
    NoMember {
        /// The file.
        path: PathBuf,
        /// The client.
        client: String,
    },
    /// All members would be dropped.
    #[error("{} would have no members left, and answer nothing: remove the file instead", path.display())]
    NoMembersLeft {
        /// The file.
        path: PathBuf,
    },
    /// Two ensembles that cannot be joined.
    #[error("{} cannot be extended with {}: {reason}", into.display(), with.display())]
    Unrelated {
        /// The ensemble to extend.
        into: PathBuf,
        /// The ensemble with new members.
        with: PathBuf,
        /// The difference, and what to do.
        reason: String,
    },
    /// An accepted update cannot be read again.
    #[error("{}: {reason}", path.display())]
    Update {
        /// The file.
        path: PathBuf,
        /// The error.
        reason: String,
    },
    /// A member cannot be run.
    #[error("a member of the ensemble cannot be run: {0}")]
    Model(#[from] ModelError),
    /// The samples do not form a batch.
    #[error("the samples cannot be made into a batch: {0}")]
    Batch(#[from] BatchError),
}

/// For `map_err`: adds the attempted action and the file.
pub(super) fn disk(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> EnsembleError {
    let path = path.to_owned();
    move |source| EnsembleError::Disk { action, path, source }
}
