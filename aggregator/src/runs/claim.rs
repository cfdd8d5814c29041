//! Keeping other processes off a run, by the lock of the process that works on it.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;

use super::RunsError;
use super::error::disk;
use crate::run::directory::RunDirectory;
use crate::storage::FileLayer;

/// The lock of a run to be changed, as long as it is kept; `None` of one that no process can work on, for lack of a state directory.
pub fn to_change(files: &dyn FileLayer, directory: &RunDirectory) -> Result<Option<File>, RunsError> {
    let state = directory.state();
    if files.length(&state).map_err(disk("look at", &state))?.is_none() {
        return Ok(None);
    }
    let path = directory.lock();
    files.lock(&path).map(Some).map_err(refusal(directory))
}

/// The lock of a run to be read, which no process may change meanwhile. Writes nothing; `None` of a run that has no lock.
pub fn to_read(directory: &RunDirectory) -> Result<Option<File>, RunsError> {
    let file = match File::open(directory.lock()) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(disk("open", &directory.lock()))?,
    };
    file.try_lock_shared().map_err(refusal(directory))?;
    Ok(Some(file))
}

fn refusal(directory: &RunDirectory) -> impl FnOnce(TryLockError) -> RunsError {
    move |error| match error {
        TryLockError::WouldBlock => RunsError::InUse { path: directory.root().to_owned() },
        TryLockError::Error(error) => disk("lock", &directory.lock())(error),
    }
}
