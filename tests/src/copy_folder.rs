//! Copies of folders, to begin many trials from one state.

use std::fs;
use std::path::Path;

/// Copies a folder with all that is in it.
///
/// # Panics
/// If it cannot be read, or the copy not be written.
pub fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder for the copy");
    for entry in fs::read_dir(from).expect("a folder that can be read") {
        let path = entry.expect("an entry of it").path();
        let target = to.join(path.file_name().expect("an entry has a name"));
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            fs::copy(&path, &target).expect("a file that can be copied");
        }
    }
}
