//! Whether a process serves a run, told by a lock that ends with the process, however it ends.

use std::fs::{File, TryLockError};
use std::io;
use std::time::Duration;

use crate::run::directory::RunDirectory;
use shared::chown::chown_like_parent;

/// Several may ask at the same time, and each holds the lock for a moment.
const TRIES: u32 = 5;

/// Held by the process that serves a run.
#[derive(Debug)]
pub struct Presence(#[expect(dead_code, reason = "it is held")] File);

impl Presence {
    /// This process serves the run. Whoever just asks is waited for, which takes a moment.
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
