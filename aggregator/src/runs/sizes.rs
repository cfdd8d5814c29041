//! Room that files take.

use std::fs;
use std::path::Path;

/// Bytes of a file, or of all files in a directory; links are not followed. Files of a run that goes on come and go: what has
/// disappeared counts nothing.
#[must_use]
pub fn bytes_in(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    if !metadata.is_dir() {
        return metadata.len();
    }
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    entries.flatten().map(|entry| bytes_in(&entry.path())).sum()
}
