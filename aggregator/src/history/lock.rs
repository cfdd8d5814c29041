//! The lock of a run that is being served. It ends with the process, however that ends.

use std::fs::{File, TryLockError};
use std::io;
use std::time::Duration;

use crate::run::directory::RunDirectory;
use shared::chown::chown_like_parent;

/// Tries to take the lock: other processes that look hold it for a moment.
const TRIES: u32 = 5;

/// Held by the process that serves a run.
#[derive(Debug)]
pub struct RunLock(#[expect(dead_code, reason = "it is held")] File);

impl RunLock {
    /// Takes the lock. A process that only looks holds it for a moment, which is waited for.
    pub fn of(directory: &RunDirectory) -> io::Result<Self> {
        let file = File::options().create(true).append(true).open(directory.presence())?;
        chown_like_parent(&file, &directory.presence());
        file.lock_shared()?;
        Ok(Self(file))
    }

    /// Whether some process serves the run.
    #[must_use]
    pub fn in_place(directory: &RunDirectory) -> bool {
        let Ok(file) = File::open(directory.presence()) else { return false };
        for _ in 0..TRIES {
            match file.try_lock() {
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(2)),
                // A file system without locks cannot tell.
                Ok(()) | Err(TryLockError::Error(_)) => return false,
            }
        }
        true
    }
}
