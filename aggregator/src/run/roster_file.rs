//! The roster file: the roster, if it has changed since the newest round opened.
//!
//! The opening of a round holds the roster too, so a file that is older than the newest opening is ignored.

use std::collections::BTreeMap;

use shared::id::ClientId;

use super::error::disk;
use super::{Run, RunError};
use crate::coordinator::RosterSnapshot;
use crate::storage::checksum::{ChecksumMismatch, read_checked, write_checked};

impl Run {
    /// Step *save roster*: makes the roster durable.
    pub fn save_roster(&self, known: &RosterSnapshot) -> Result<(), RunError> {
        let path = self.directory.roster();
        let json = serde_json::to_vec(known).expect("ids and counts are JSON");
        write_checked(&*self.files, &path, |out| out.write_all(&json)).map_err(disk("write", &path))
    }

    /// The roster, if it was saved since `round`, the newest, was opened. There may be no file: it is written only when needed,
    /// and older versions did not write it.
    pub(super) fn known_since(&mut self, round: u32) -> Result<Option<BTreeMap<ClientId, u64>>, RunError> {
        let path = self.directory.roster();
        let known = match read_checked(&*self.files, &path) {
            Ok(None) => return Ok(None),
            Ok(Some(json)) => {
                serde_json::from_slice::<RosterSnapshot>(&json).map_err(|error| error.to_string())
            }
            Err(error) if ChecksumMismatch::is(&error) => Err(error.to_string()),
            Err(error) => return Err(disk("read", &path)(error)),
        };
        match known {
            Ok(known) => Ok((known.since >= round).then_some(known.roster)),
            Err(error) => {
                let path = path.display();
                self.warnings.push(format!(
                    "{path} is damaged ({error}): devices that came since the last opening count again once they are back"
                ));
                Ok(None)
            }
        }
    }

    /// Keeps the saved roster when the round after `round` begins again: the next opening supersedes it.
    pub(super) fn known_before(&mut self, round: u32) -> Result<(), RunError> {
        match self.known_since(round + 1)? {
            Some(roster) => self.save_roster(&RosterSnapshot { since: round, roster }),
            None => Ok(()),
        }
    }
}
