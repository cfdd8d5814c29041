//! The server's state on disk, and what it supersedes.

use models::params::codec::TensorStream;
use models::{Limits, Precision};
use shared::algorithm::Global;
use shared::record::Record;

use super::directory::round_in;
use super::error::{damaged, disk};
use super::{Run, RunError, SMALL, clip, plateau};
use crate::round::jsonl;
use crate::storage::checksum::write_checked;
use crate::storage::{Reading, append_durably};

/// What the page's thread writes beside the rounds.
const OF_PAGE: [&str; 2] = ["about.json.partial", "devices.json.partial"];

impl Run {
    pub(super) fn load(&self, round: u32) -> Result<Global, RunError> {
        let path = self.directory.checkpoint(round);
        let mut input = Reading::open(&*self.files, &path).map_err(disk("open", &path))?;
        let record = Record::read_from(&mut input, Limits { max_bytes: u64::MAX, ..Limits::default() });
        let record = input.judge(record).map_err(disk("read", &path))?.map_err(damaged(&path))?;
        Ok(self.algorithm.restore(record)?)
    }

    pub(super) fn write_checkpoint(&self, round: u32, state: &Record) -> Result<(), RunError> {
        self.sync_base(round + 1)?;
        let path = self.directory.checkpoint(round);
        let clip = self.clip.map(|clip| (clip::KEY, clip.to_string()));
        let plateau = self.plateau.map(|state| (plateau::KEY, state.to_string()));
        let notes: Vec<_> = clip.into_iter().chain(plateau).collect();
        write_checked(&*self.files, &path, |out| state.write_noted(&notes, out)).map_err(disk("write", &path))
    }

    /// What a checkpoint's metadata has under `key`, for the round after it; `what` it says is for the error if it does not.
    pub(super) fn noted<T>(
        &self,
        round: u32,
        key: &str,
        read: impl Fn(&str) -> Option<T>,
        what: &str,
    ) -> Result<T, RunError> {
        let path = self.directory.checkpoint(round);
        let mut input = Reading::open(&*self.files, &path).map_err(disk("open", &path))?;
        let limits = Limits { max_bytes: u64::MAX, ..Limits::default() };
        let (_, metadata) = TensorStream::open_described(&mut input, limits).map_err(damaged(&path))?;
        let noted = metadata.get(key).and_then(|text| read(text));
        noted.ok_or_else(|| RunError::Damaged { path, reason: format!("it does not say {what}") })
    }

    /// Writes the line and then the checkpoint of the round that was closed last, unless that is done, and hands the round on.
    /// A failure is not retried: only resuming the run repairs a half-written line.
    pub(super) fn checkpoint(&mut self) -> Result<(), RunError> {
        let Some(round) = self.unsettled.take() else { return Ok(()) };
        let path = self.directory.rounds();
        let line = jsonl::line(&round.record);
        append_durably(&*self.files, &path, line.as_bytes()).map_err(disk("append to", &path))?;
        self.copy_line(&line)?;
        let state = self.resident.as_ref().expect("a closed round's state is at hand until it is written");
        self.write_checkpoint(round.record.round, state)?;
        self.settled = round.record.round;
        if state.encoded_len(Precision::F32) > SMALL {
            self.resident = None;
        }
        // Before anything is removed that says whose updates they were.
        if let Some(on_closed) = &mut self.on_closed {
            on_closed(*round);
        }
        Ok(())
    }

    /// Step *settle*: writes the checkpoint of the round that was closed last and removes what it supersedes. Nothing
    /// waits for it: the driver does it while clients train.
    pub fn settle(&mut self) -> Result<(), RunError> {
        self.checkpoint()?;
        let closed = self.settled;
        // The state behind the best model stays, to be published beside the last. Where records are missing, any may be the best.
        let best = self.best().map(|best| best.round);
        let all_stay = self.records_are_expected;
        let state = self.directory.state();
        for name in self.files.list(&state).map_err(disk("list", &state))? {
            let path = state.join(&name);
            let superseded = round_in(&name, "checkpoint-", ".safetensors")
                .is_some_and(|round| round < closed && Some(round) != best && !all_stay)
                || round_in(&name, "broadcast-", ".safetensors").is_some_and(|round| round <= closed)
                || round_in(&name, "round-", ".json").is_some_and(|round| round < closed)
                || self.bases.supersede(&name, closed)
                || name.ends_with(".partial") && !OF_PAGE.contains(&&*name);
            if superseded {
                self.files.remove(&path).map_err(disk("remove", &path))?;
            } else if round_in(&name, "accepted-", "").is_some_and(|round| round <= closed) {
                self.files.remove_dir(&path).map_err(disk("remove", &path))?;
            }
        }
        Ok(())
    }
}
