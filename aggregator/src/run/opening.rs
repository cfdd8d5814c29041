//! Step *open*, and its file, which also holds the decision to close.

use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::broadcast::Broadcast;
use super::directory::RunDirectory;
use super::error::{damaged, disk};
use super::{Run, RunError, Traffic};
use crate::coordinator::{Closing, Opening};
use crate::storage::FileLayer;
use crate::storage::checksum::{read_checked, write_checked};
use crate::storage::retry_full::retry_while_full;

/// The opening of a round, on disk.
#[derive(Serialize, Deserialize)]
pub(super) struct OpeningRecord {
    /// Its round is in the name of the file.
    #[serde(flatten)]
    pub(super) opening: Opening,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) decision: Option<Decision>,
    /// Rounds of training before it without a result: should `rounds.jsonl` be lost, the run is as long as it was.
    #[serde(default, skip_serializing_if = "none_failed")]
    pub(super) failed: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn none_failed(failed: &u32) -> bool {
    *failed == 0
}

/// The decision to close a round, and what only the process that made it knew.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Decision {
    pub(super) closing: Closing,
    pub(super) traffic: Traffic,
    pub(super) seconds: f64,
}

impl Run {
    /// Step *open*. Reopening a round with a larger cohort keeps its sums.
    pub fn open(&mut self, opening: &Opening) -> Result<Broadcast, RunError> {
        let begun = Instant::now();
        let accepted = self.directory.accepted(opening.round);
        retry_while_full(&*self.files, &accepted, || self.files.create_dir(&accepted))
            .map_err(disk("create", &accepted))?;
        self.write_opening(opening, None)?;
        match &mut self.open {
            Some(open) if open.opening.round == opening.round => {
                (open.opening, open.clients) = (opening.clone(), opening.known().len());
            }
            _ => {
                self.clock.stepped(begun);
                self.open = Some(self.open_round(opening)?);
            }
        }
        let broadcast = self.broadcast(opening.round, opening.work)?;
        // What has no leaves has nothing to keep there.
        self.keep()?;
        self.open_at_leaves(opening, &broadcast, (None, false))?;
        Ok(broadcast)
    }

    pub(super) fn write_opening(
        &self,
        opening: &Opening,
        decision: Option<&Decision>,
    ) -> Result<(), RunError> {
        self.write_record(opening, decision, self.failed)
    }

    /// Writes the file of a round; `failed` rounds of training before it had no result.
    pub(super) fn write_record(
        &self,
        opening: &Opening,
        decision: Option<&Decision>,
        failed: u32,
    ) -> Result<(), RunError> {
        let path = self.directory.opening(opening.round);
        let record = OpeningRecord { opening: opening.clone(), decision: decision.cloned(), failed };
        let json = serde_json::to_vec(&record).expect("ids, counts and names are JSON");
        write_checked(&*self.files, &path, |out| out.write_all(&json)).map_err(disk("write", &path))
    }

    pub(super) fn read_opening(&self, round: u32) -> Result<Option<OpeningRecord>, RunError> {
        OpeningRecord::read(&*self.files, &self.directory, round)
    }
}

impl OpeningRecord {
    /// Reads the file of `round`; `None` if there is none.
    pub(super) fn read(
        files: &dyn FileLayer,
        directory: &RunDirectory,
        round: u32,
    ) -> Result<Option<Self>, RunError> {
        let path = directory.opening(round);
        let Some(json) = read_checked(files, &path).map_err(disk("read", &path))? else {
            return Ok(None);
        };
        let mut record: Self = serde_json::from_slice(&json).map_err(damaged(&path))?;
        record.opening.round = round;
        Ok(Some(record))
    }

    /// Rounds of training up to the `closed` one without a result, as the newest opening and its decision tell. Those of earlier
    /// programs do not.
    pub(super) fn failed_after(
        files: &dyn FileLayer,
        directory: &RunDirectory,
        closed: u32,
    ) -> Result<u32, RunError> {
        if let Some(open) = Self::read(files, directory, closed + 1)? {
            return Ok(open.failed);
        }
        let Some(Self { opening, decision, failed }) = Self::read(files, directory, closed)? else {
            return Ok(0);
        };
        let void = decision.is_some_and(|decision| decision.closing.tally.void) && opening.work.train;
        Ok(failed + u32::from(void))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round::{SampleCap, WeightBounds};

    #[test]
    fn a_cap_is_kept_and_a_record_without_one_is_read() {
        let work = shared::message::TaskKind::TRAIN;
        let plain = serde_json::to_value(work).expect("it is JSON");
        let record = serde_json::json!({ "work": plain, "cohort": {}, "roster": {} });
        let read: OpeningRecord = serde_json::from_value(record.clone()).expect("of the version before");
        assert_eq!(read.opening.sample_cap, SampleCap::NONE);
        assert_eq!(serde_json::to_value(&read).expect("it is JSON"), record);
        let cap = WeightBounds { ratio: 1, share: 1.0 }.cap([1, 2, 9]);
        let opening = Opening { sample_cap: cap, ..read.opening };
        let written =
            serde_json::to_string(&OpeningRecord { opening, decision: None, failed: 0 }).expect("it is JSON");
        assert!(written.contains("\"sample_cap\":2"), "{written}");
        let again: OpeningRecord = serde_json::from_str(&written).expect("its own record");
        assert_eq!(again.opening.sample_cap, cap);
    }
}
