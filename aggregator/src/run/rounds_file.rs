//! `rounds.jsonl` when a run is resumed. The model does not depend on it, nor how many rounds the run has: which round is the best
//! does, early stopping, and the report.
//!
//! Where no database has the rounds as well, as in a simulation, `state/rounds.jsonl` is a copy that lost rounds come back from.

use std::collections::BTreeSet;

use super::error::disk;
use super::{Run, RunError, client_metrics, reader};
use crate::round::jsonl::{self, Rounds};
use crate::round::{RoundRecord, stopping};
use crate::storage::{append_durably, read_if_there, write_durably};
use shared::cli::counted;

impl Run {
    /// The closed rounds as they are written down, with what each client measured.
    pub(crate) fn written_records(&self) -> Result<Vec<RoundRecord>, RunError> {
        let rounds = reader::rounds(&*self.files, &self.directory)?;
        Ok(rounds.map_or(Vec::new(), |rounds| rounds.records))
    }

    /// Reads `rounds.jsonl`. Lines of rounds that the checkpoint does not know are taken back: those rounds will be
    /// closed again.
    pub(super) fn restore_records(&mut self, closed: u32) -> Result<(), RunError> {
        let Rounds { records: read, torn } =
            reader::rounds(&*self.files, &self.directory)?.unwrap_or_default();
        let written = read.len();
        let records: Vec<_> = read.into_iter().filter(|record| record.round <= closed).collect();
        if records.len() != written || torn {
            self.write_rounds(&records)?;
        }
        let path = self.directory.rounds();
        if torn {
            self.warnings.push(format!("the half-written last line of {} is taken back", path.display()));
        }
        self.records = records;
        client_metrics::keep_newest(&mut self.records);
        let lost = self.missing_rounds().len();
        let restored = if lost > 0 { self.restore_rounds(self.copied_records())? } else { 0 };
        if restored > 0 {
            self.warnings.push(format!(
                "{} lacked {lost} of {}: {restored} written again from the copy in {}",
                path.display(),
                counted(closed as usize, "closed round"),
                self.directory.rounds_copy().display()
            ));
        }
        let missing = lost - restored;
        if missing > 0 {
            self.warnings.push(format!(
                "{} lacks {missing} of {closed} closed rounds. The model does not depend on them. Unless the server's database has \
                 them, the report begins anew without them, and so do early stopping and the best model",
                path.display()
            ));
        }
        Ok(())
    }

    /// The rounds of the copy. It may lack some, and one that cannot be read is as good as none: it is made anew.
    fn copied_records(&self) -> Vec<RoundRecord> {
        let copy = read_if_there(&*self.files, &self.directory.rounds_copy());
        let bytes = copy.unwrap_or_default().unwrap_or_default();
        jsonl::read(&bytes).map_or(Vec::new(), |rounds| rounds.records)
    }

    /// Adds the line of a closed round to the copy; this process's first one makes the copy anew.
    pub(super) fn copy_line(&mut self, line: &str) -> Result<(), RunError> {
        if self.on_closed.is_some() {
            return Ok(());
        }
        let path = self.directory.rounds_copy();
        if self.rounds_are_copied {
            return append_durably(&*self.files, &path, line.as_bytes()).map_err(disk("append to", &path));
        }
        let text = jsonl::write(&self.written_records()?);
        write_durably(&*self.files, &path, |out| out.write_all(text.as_bytes()))
            .map_err(disk("write", &path))?;
        self.rounds_are_copied = true;
        Ok(())
    }

    fn write_rounds(&self, records: &[RoundRecord]) -> Result<(), RunError> {
        let (path, text) = (self.directory.rounds(), jsonl::write(records));
        write_durably(&*self.files, &path, |out| out.write_all(text.as_bytes())).map_err(disk("write", &path))
    }

    /// The closed rounds that have no record: the file was cut off, emptied or removed.
    #[must_use]
    pub fn missing_rounds(&self) -> BTreeSet<u32> {
        let mut missing: BTreeSet<u32> = (1..=self.closed).collect();
        for record in &self.records {
            missing.remove(&record.round);
        }
        missing
    }

    /// The round that training ended with, if it did, the void rounds until now, and those in a row up to now.
    #[must_use]
    pub fn progress(&self) -> (Option<u32>, u32, u32) {
        let ended = self.ended().or_else(|| stopping::before_closing(&self.records));
        (ended, self.failed, stopping::void_in_a_row(&self.records))
    }

    /// Writes [missing rounds](Self::missing_rounds) again, from records of another place; other records are left out. Gives how
    /// many were written.
    pub fn restore_rounds(&mut self, from: Vec<RoundRecord>) -> Result<usize, RunError> {
        let missing = self.missing_rounds();
        let mut records = self.written_records()?;
        let before = records.len();
        records.extend(from.into_iter().filter(|record| missing.contains(&record.round)));
        records.sort_by_key(|record| record.round);
        records.dedup_by_key(|record| record.round);
        let restored = records.len() - before;
        if restored > 0 {
            self.write_rounds(&records)?;
            self.records = records;
            client_metrics::keep_newest(&mut self.records);
            self.failed = self.failed.max(stopping::failed(&self.records));
        }
        Ok(restored)
    }
}
