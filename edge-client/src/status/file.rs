//! The status in the state directory: `status.json`, replaced whole.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use shared::chown::chown_like_parent;

use super::record::DeviceStatus;

/// Progress is written once in this time: flash memory wears out.
const INTERVAL: Duration = Duration::from_secs(5);

/// The file. It is not synced: after a power failure the process has ended, and what the device did before matters little.
#[derive(Debug)]
pub struct StatusFile {
    path: PathBuf,
    written: Option<Instant>,
    failed: bool,
}

impl StatusFile {
    /// That of a state directory.
    #[must_use]
    pub fn of(state: &Path) -> Self {
        Self { path: state.join("status.json"), written: None, failed: false }
    }

    /// Writes the status; of mere `progress` only once in a while. A disk without room is warned of once and keeps nothing from
    /// going on.
    pub fn write(&mut self, status: &DeviceStatus, progress: bool) {
        if progress && self.written.is_some_and(|written| written.elapsed() < INTERVAL) {
            return;
        }
        self.written = Some(Instant::now());
        let json = serde_json::to_string(status).expect("a status is text and numbers");
        let partial = self.path.with_extension("json.partial");
        let written = File::create(&partial).and_then(|mut file| {
            chown_like_parent(&file, &partial);
            file.write_all((json + "\n").as_bytes())?;
            fs::rename(&partial, &self.path)
        });
        if let Err(error) = &written
            && !self.failed
        {
            tracing::warn!("the status cannot be written to {}: {error}", self.path.display());
        }
        self.failed = written.is_err();
    }

    /// Reads it; `None` if there is none.
    ///
    /// # Errors
    /// The system's; or it is damaged, as after a power failure, or of another version.
    pub fn read(&self) -> io::Result<Option<DeviceStatus>> {
        match fs::read(&self.path) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::id::ClientId;

    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_progress_is_written_seldom() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = StatusFile::of(folder.path());
        assert_eq!(file.read().unwrap(), None);
        let mut status = DeviceStatus::begin(ClientId::from_bytes([7; 16]), "lab:4433", 1);
        file.write(&status, false);
        status.accepted = 1;
        file.write(&status, true);
        assert_eq!(file.read().unwrap().map(|read| read.accepted), Some(0));
        file.write(&status, false);
        assert_eq!(file.read().unwrap().map(|read| read.accepted), Some(1));
        fs::write(folder.path().join("status.json"), "[]").unwrap();
        assert!(file.read().is_err(), "it is no status");
    }

    #[test]
    fn a_directory_that_cannot_be_written_keeps_nothing_from_going_on() {
        let folder = tempfile::tempdir().unwrap();
        let mut file = StatusFile::of(&folder.path().join("none"));
        let status = DeviceStatus::begin(ClientId::from_bytes([7; 16]), "lab:4433", 1);
        file.write(&status, false);
        file.write(&status, false);
        assert!(file.failed && file.read().unwrap().is_none());
    }
}
