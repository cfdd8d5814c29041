//! Durable files: the steps that atomic and durable writes consist of.
//!
//! A write is durable once the bytes of the file and the entry in its directory are synced. Files and directories that root
//! creates are given to the owner of their directory ([`chown`](crate::chown)).

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::chown::chown_directory_like_parent;

pub use crate::chown::parent;

/// Attempts to lock a file, 2 ms apart.
const LOCK_ATTEMPTS: u32 = 100;

/// Locks a file for this process alone, for as long as it is open.
///
/// A child process shares the open files of its parent until it runs its own program. A lock can outlive its owner by that moment, so
/// one that is held is tried again for 200 ms.
pub fn lock(file: &File) -> Result<(), TryLockError> {
    attempt(|| file.try_lock())
}

/// Locks the file against processes that [lock] it, and for others that share it.
pub fn lock_shared(file: &File) -> Result<(), TryLockError> {
    attempt(|| file.try_lock_shared())
}

fn attempt(lock: impl Fn() -> Result<(), TryLockError>) -> Result<(), TryLockError> {
    for _ in 1..LOCK_ATTEMPTS {
        match lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
            other => return other,
        }
    }
    lock()
}

/// The name under which a file is written before it is complete.
#[must_use]
pub fn partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".partial");
    PathBuf::from(name)
}

/// Options that create a file which only its owner can read.
#[must_use]
pub fn private() -> OpenOptions {
    let mut options = File::options();
    options.write(true).create(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options
}

/// A directory builder whose directories only their owner can read.
#[must_use]
pub fn private_dir() -> DirBuilder {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "there are no modes to set"))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

/// Creates a directory and its missing ancestors with `builder`. Returns those that were missing, the innermost first; their
/// entries are not synced.
pub fn create_dir(path: &Path, mut builder: DirBuilder) -> io::Result<Vec<&Path>> {
    let mut missing = Vec::new();
    for folder in path.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
        if folder.try_exists()? {
            break;
        }
        missing.push(folder);
    }
    builder.recursive(true).create(path)?;
    missing.iter().rev().for_each(|folder| chown_directory_like_parent(folder));
    Ok(missing)
}

/// Takes the absence of a file as success, for a step that makes or needs it absent.
pub fn absent_is_ok(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Syncs the bytes of a file.
pub fn sync_file(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
