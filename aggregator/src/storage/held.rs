//! Whether another process holds a lock, without keeping it.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

/// Tries to take the lock: other processes that look hold it for a moment.
const TRIES: u32 = 5;

/// Whether a process holds the lock on the file at `path` against `attempt`, the kind of lock that it excludes.
#[must_use]
pub fn is_held(path: &Path, attempt: impl Fn(&File) -> Result<(), TryLockError>) -> bool {
    let Ok(file) = File::open(path) else { return false };
    for _ in 0..TRIES {
        match attempt(&file) {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
            // A file system without locks cannot tell.
            Ok(()) | Err(TryLockError::Error(_)) => return false,
        }
    }
    true
}
