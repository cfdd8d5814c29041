//! More rounds in a run's own folder, and other settings that may change while a run lasts
//! ([`changeable`](crate::config::changeable)).
//!
//! A run that was over is opened again: the mark of that goes first, and the new configuration is written last. A process that
//! dies between them leaves an unfinished run of the old configuration, to which all of this can be done again.
//!
//! Where clients have tested the last model in a round without training (*closing*), that round is taken back, so that the next
//! round of training has the number, and with it the random choices, that it would have had in a run with more rounds from the
//! first. The closing round has changed nothing but who is known.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::directory::{RunDirectory, newest_checkpoint};
use super::error::disk;
use super::opening::OpeningRecord;
use super::{Run, RunError, RunManifest};
use crate::config::Config;
use crate::coordinator::{Opening, Resume};
use crate::data::TestSet;
use crate::round::stopping;
use crate::storage::{FileLayer, write_durably};

impl Run {
    /// Continues the run in `directory`, which may be over, under `config` from now on.
    pub fn change(
        files: Arc<dyn FileLayer>,
        directory: RunDirectory,
        config: Config,
        tests: Option<TestSet>,
        manifest: RunManifest,
    ) -> Result<(Self, Resume), RunError> {
        let mut run = Self::assemble(files, directory, config, tests)?;
        let finished = run.directory.finished();
        run.files.remove(&finished).map_err(disk("remove", &finished))?;
        run.sync_state()?;
        run.take_tests_back()?;
        manifest.with(&run.config).write(&*run.files, &run.directory)?;
        let (path, text) = (run.directory.config(), run.config.effective.to_toml());
        write_durably(&*run.files, &path, |out| out.write_all(text.as_bytes()))
            .map_err(disk("write", &path))?;
        run.restored()
    }

    /// Takes a closing round back if there is more training to come.
    fn take_tests_back(&mut self) -> Result<(), RunError> {
        let Some(Extent { closed, with_result, closing: true }) = Extent::of(&*self.files, &self.directory)?
        else {
            return Ok(());
        };
        let ended = stopping::ended(&self.written_records()?, &self.config.stop);
        if with_result >= self.config.spec.rounds || ended.is_some() {
            return Ok(());
        }
        let tests = closed + 1;
        if newest_checkpoint(&*self.files, &self.directory) == Some(tests)
            && let Some(record) = self.read_opening(tests)?
        {
            // What is known after the last round of training, which the file of the closing round has replaced.
            let OpeningRecord { opening, failed, .. } = record;
            let roster = self.known_since(tests)?.unwrap_or_else(|| opening.known());
            let work = self.config.spec.work_in(closed);
            let before = Opening { round: closed, work, cohort: BTreeMap::new(), roster, ..opening };
            self.write_record(&before, None, failed)?;
            let (from, to) = (self.directory.checkpoint(tests), self.directory.checkpoint(closed));
            self.files.rename(&from, &to).map_err(disk("rename", &from))?;
            self.sync_state()?;
        }
        self.known_before(closed)?;
        let accepted = self.directory.accepted(tests);
        self.files.remove_dir(&accepted).map_err(disk("remove", &accepted))?;
        let opening = self.directory.opening(tests);
        self.files.remove(&opening).map_err(disk("remove", &opening))?;
        self.sync_state()
    }

    fn sync_state(&self) -> Result<(), RunError> {
        let state = self.directory.state();
        self.files.sync_dir(&state).map_err(disk("sync", &state))
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Closed rounds of training.
    pub closed: u32,
    /// Those of them that had a result.
    pub with_result: u32,
    /// Whether the round after them, which only tests the last model, is open or closed.
    pub closing: bool,
}

impl Extent {
    /// How far the run in `directory` is; `None` if it has no checkpoint.
    pub fn of(files: &dyn FileLayer, directory: &RunDirectory) -> Result<Option<Self>, RunError> {
        let Some(newest) = newest_checkpoint(files, directory) else { return Ok(None) };
        let is_test = |round: u32| -> Result<bool, RunError> {
            let record = OpeningRecord::read(files, directory, round)?;
            Ok(record.is_some_and(|record| !record.opening.work.train))
        };
        let (closed, closing) =
            if is_test(newest)? { (newest.saturating_sub(1), true) } else { (newest, is_test(newest + 1)?) };
        let failed = OpeningRecord::failed_after(files, directory, newest)?;
        Ok(Some(Self { closed, with_result: closed.saturating_sub(failed), closing }))
    }
}
