//! A folder per thread for readers that read files.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

thread_local! {
    static FOLDER: RefCell<Option<tempfile::TempDir>> = const { RefCell::new(None) };
}

/// An empty folder, in memory where the system has a place there.
///
/// # Panics
/// If there is no place for temporary files.
#[must_use]
pub fn folder() -> PathBuf {
    FOLDER.with_borrow_mut(|kept| {
        let folder = kept.get_or_insert_with(|| {
            let memory = Path::new("/dev/shm");
            let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
            made.or_else(|_| tempfile::tempdir()).expect("the system has a place for temporary files")
        });
        for entry in fs::read_dir(folder.path()).expect("an own folder") {
            let path = entry.expect("an own folder").path();
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.expect("what was put there can be removed");
        }
        folder.path().to_owned()
    })
}

/// A file of these bytes in an empty folder.
///
/// # Panics
/// If it cannot be written.
#[must_use]
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder().join(name);
    write(&path, bytes);
    path
}

/// Writes a file and the folders that it is in.
///
/// # Panics
/// If it cannot be written.
pub fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().expect("it is in a folder")).expect("an own folder");
    fs::write(path, bytes).expect("an own folder");
}

/// The files in a folder and in those within it, by their paths.
///
/// # Panics
/// If they cannot be read.
#[must_use]
pub fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut entries: Vec<_> =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable").path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            let bytes = fs::read(&path).expect("readable");
            found.push((path, bytes));
        }
    }
    found
}
