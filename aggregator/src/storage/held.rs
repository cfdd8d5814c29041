//! Whether another process holds a lock, without keeping it.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

/// Tries to take the lock: other processes that look hold it for a moment.
const TRIES: u32 = 5;

/// Whether a process holds the lock on the file at `path` for itself alone. Those who look share it, and are not in each other's way.
#[must_use]
pub fn is_held_alone(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    // A file system without locks cannot tell.
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Whether processes hold the lock on the file at `path` together.
#[must_use]
pub fn is_held_together(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    for _ in 0..TRIES {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
            Ok(()) | Err(TryLockError::Error(_)) => return false,
        }
    }
    true
}
