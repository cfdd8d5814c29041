//! What root makes among another user's files goes to that one ([`shared::chown`]); where it cannot, that is logged.

use std::fs::File;
use std::path::Path;

use shared::chown::NotChowned;
pub use shared::chown::advice;
use tracing::warn;

/// See [`shared::chown::chown_like_parent`].
pub(crate) fn chown_like_parent(file: &File, path: &Path) {
    tell(shared::chown::chown_like_parent(file, path));
}

/// See [`shared::chown::chown_directory_like_parent`].
pub(super) fn chown_directory_like_parent(path: &Path) {
    tell(shared::chown::chown_directory_like_parent(path));
}

fn tell(handed: Result<(), NotChowned>) {
    if let Err(kept) = handed {
        warn!("{kept}");
    }
}
