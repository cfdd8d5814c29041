//! Step *open*, and its file.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};

use serde::{Deserialize, Serialize};
use shared::id::ClientId;

use super::broadcast::Broadcast;
use super::error::{damaged, disk};
use super::{Run, RunError};
use crate::coordinator::Opening;
use crate::files::write_durably;

/// The opening of a round, on disk.
#[derive(Serialize, Deserialize)]
pub(super) struct OpeningRecord {
    pub(super) cohort: BTreeMap<ClientId, u64>,
    pub(super) roster: BTreeMap<ClientId, u64>,
}

impl Run {
    /// Step *open*. Reopening a round with a larger cohort keeps its sums.
    pub fn open(&mut self, opening: &Opening) -> Result<Broadcast, RunError> {
        let path = self.directory.opening(opening.round);
        let record = OpeningRecord { cohort: opening.cohort.clone(), roster: opening.roster.clone() };
        let json = serde_json::to_vec(&record).expect("ids and counts are JSON");
        let accepted = self.directory.accepted(opening.round);
        self.files.create_dir(&accepted).map_err(disk("create", &accepted))?;
        write_durably(&*self.files, &path, |out| out.write_all(&json)).map_err(disk("write", &path))?;
        if self.open.as_ref().is_none_or(|sums| sums.round != opening.round) {
            self.open = Some(self.sums(opening));
        }
        self.broadcast(opening.round)
    }

    pub(super) fn read_opening(&self, round: u32) -> Result<Option<OpeningRecord>, RunError> {
        let path = self.directory.opening(round);
        let mut json = Vec::new();
        match self.files.open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(disk("open", &path)(error)),
            Ok(mut file) => file.read_to_end(&mut json).map_err(disk("read", &path))?,
        };
        serde_json::from_slice(&json).map(Some).map_err(damaged(&path))
    }
}
