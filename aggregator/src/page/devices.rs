//! The devices of a served run. They are stored in the run's folder with each page, so that the page can be written again without the
//! server's database, also on another machine.

use std::path::PathBuf;
use std::time::SystemTime;

use shared::calendar::moment;
use shared::id::RunId;
use tracing::warn;

use crate::database::{Database, DatabaseError};
use crate::report::devices::Devices;
use crate::run::directory::RunDirectory;
use crate::run::{RunError, disk};
use crate::storage::FileLayer;
use crate::storage::checksum::write_checked;

/// Where the devices of a run that is served are known.
#[derive(Clone, Debug)]
pub struct KnownDevices {
    /// The directory of the database.
    pub directory: PathBuf,
    /// The run.
    pub run: RunId,
}

/// Why the devices cannot be written down.
#[derive(Debug, thiserror::Error)]
pub enum NoteError {
    /// The database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The run's files.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl KnownDevices {
    /// Writes down what the devices have done by now. The database is read by a connection of its own, which stops no writer.
    pub fn note(&self, files: &dyn FileLayer, directory: &RunDirectory) -> Result<(), NoteError> {
        let devices = Database::open_to_read(&self.directory)?.devices_of(self.run)?;
        let devices = Devices { at: moment(SystemTime::now()), devices };
        let path = directory.devices();
        let json = serde_json::to_vec(&devices).expect("names and numbers are JSON");
        Ok(write_checked(files, &path, |out| out.write_all(&json)).map_err(disk("write", &path))?)
    }
}

/// The devices as they were written down; `None` of simulations. What is damaged is reported, and does without.
pub(super) fn read(files: &dyn FileLayer, directory: &RunDirectory) -> Option<Devices> {
    super::read_json(files, &directory.devices()).unwrap_or_else(|error| {
        warn!("the report does without the devices: {error}");
        None
    })
}
