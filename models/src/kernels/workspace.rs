//! Scratch memory that the operators of one network share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::aligned::Aligned;

/// Scratch memory that the convolutions of one network share. They run one after the other, and a convolution of 512 channels
/// in the largest network would otherwise have 75 MB of its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workspace(Arc<Mutex<[Aligned; 4]>>);

impl Workspace {
    /// Its memory, until it is dropped.
    pub(super) fn take(&self) -> MutexGuard<'_, [Aligned; 4]> {
        // The memory has no invariants that a panic could have broken.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
