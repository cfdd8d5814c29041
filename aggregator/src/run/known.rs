//! Who is known, on disk: what has changed of the roster since the newest opening, which holds it as well.
//!
//! The file counts only beside the opening that it was written after. An older one says nothing: the opening that came since
//! holds all of it.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};

use shared::id::ClientId;

use super::error::disk;
use super::{Run, RunError};
use crate::coordinator::Known;
use crate::storage::write_durably;

impl Run {
    /// Step *remember*: makes durable who is known.
    pub fn remember(&self, known: &Known) -> Result<(), RunError> {
        let path = self.directory.roster();
        let json = serde_json::to_vec(known).expect("ids and counts are JSON");
        write_durably(&*self.files, &path, |out| out.write_all(&json)).map_err(disk("write", &path))
    }

    /// Who is known, if that is written down anew since `round` was opened, the newest. An older program writes nothing of the
    /// kind, and none is missed of one that was not needed.
    pub(super) fn known_since(&mut self, round: u32) -> Result<Option<BTreeMap<ClientId, u64>>, RunError> {
        let path = self.directory.roster();
        let mut json = Vec::new();
        match self.files.open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(disk("open", &path)(error)),
            Ok(mut file) => file.read_to_end(&mut json).map_err(disk("read", &path))?,
        };
        match serde_json::from_slice::<Known>(&json) {
            Ok(known) => Ok((known.since >= round).then_some(known.roster)),
            Err(error) => {
                let path = path.display();
                self.mended.push(format!(
                    "{path} is damaged ({error}): devices that came since the last opening count again once they are back"
                ));
                Ok(None)
            }
        }
    }

    /// The round after `round` begins again: whoever came while it was open is known all the same, and what is opened next knows
    /// better.
    pub(super) fn known_before(&mut self, round: u32) -> Result<(), RunError> {
        match self.known_since(round + 1)? {
            Some(roster) => self.remember(&Known { since: round, roster }),
            None => Ok(()),
        }
    }
}
