//! What root makes among another user's files goes to that one ([`shared::ownership`]); where it cannot, that is logged.

use std::fs::File;
use std::path::Path;

use shared::ownership::StaysRoots;
pub use shared::ownership::advice;
use tracing::warn;

/// See [`shared::ownership::hand_over`].
pub(crate) fn hand_over(file: &File, path: &Path) {
    tell(shared::ownership::hand_over(file, path));
}

/// See [`shared::ownership::hand_over_directory`].
pub(super) fn hand_over_directory(path: &Path) {
    tell(shared::ownership::hand_over_directory(path));
}

fn tell(handed: Result<(), StaysRoots>) {
    if let Err(kept) = handed {
        warn!("{kept}");
    }
}
