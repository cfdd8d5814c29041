//! Continuing a run: what a process that went away has left on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read as _};
use std::sync::Arc;

use shared::id::ClientId;

use super::directory::{RunDirectory, client_in, newest_checkpoint};
use super::error::{damaged, disk};
use super::{Run, RunError, TestSet};
use crate::config::Config;
use crate::coordinator::{Closing, Opening, Reopened, Resume};
use crate::files::{FileLayer, write_durably};
use crate::report::jsonl;

impl Run {
    /// Continues the run in `directory` and says where it stands.
    pub fn resume(
        files: Arc<dyn FileLayer>,
        directory: RunDirectory,
        config: Config,
        tests: Option<TestSet>,
    ) -> Result<(Self, Resume), RunError> {
        let mut run = Self::assemble(files, directory, config, tests)?;
        let state = run.directory.state();
        let closed = newest_checkpoint(&*run.files, &run.directory).ok_or_else(|| RunError::Damaged {
            path: state.clone(),
            reason: "there is no checkpoint in it".to_owned(),
        })?;
        let spool = run.directory.spool();
        run.files.remove_dir(&spool).map_err(disk("empty", &spool))?;
        run.files.create_dir(&spool).map_err(disk("create", &spool))?;
        run.closed = closed;
        run.restore_records(closed)?;
        run.tidy()?;
        // Broadcasts are never synced: after a power failure one may be there and be empty. It is made again.
        let unsynced = run.directory.broadcast(closed + 1);
        run.files.remove(&unsynced).map_err(disk("remove", &unsynced))?;

        let roster = match run.read_opening(closed)? {
            Some(record) => record.roster,
            None => BTreeMap::new(),
        };
        let Some(record) = run.read_opening(closed + 1)? else {
            return Ok((run, Resume { closed, roster, open: None }));
        };
        let opening = Opening { round: closed + 1, cohort: record.cohort, roster: record.roster };
        let roster = opening.roster.clone();
        let accepted = run.refold(&opening, record.decision.as_ref().map(|decision| &decision.closing))?;
        let closing = record.decision.as_ref().map(|decision| decision.closing.clone());
        let reopened = Reopened { opening, accepted, closing };
        if reopened.decided().is_some()
            && let Some(sums) = &mut run.open
        {
            sums.decision = record.decision;
        }
        Ok((run, Resume { closed, roster, open: Some(reopened) }))
    }

    /// Folds the accepted updates of a round that was open when the process went away: all of them or, once it was
    /// decided which ones make the new model, those.
    fn refold(
        &mut self,
        opening: &Opening,
        closing: Option<&Closing>,
    ) -> Result<BTreeSet<ClientId>, RunError> {
        let round = opening.round;
        self.open = Some(self.sums(opening));
        let folder = self.directory.accepted(round);
        let names = self.files.list(&folder).map_err(disk("list", &folder))?;
        let counts = |client: &ClientId| closing.is_none_or(|closing| closing.contributors.contains(client));
        let clients: BTreeSet<ClientId> =
            names.iter().filter_map(|name| client_in(name)).filter(counts).collect();
        for &client in &clients {
            let path = self.directory.accepted_update(round, client);
            let (header, parcel) = self.read_update(round, &path).map_err(damaged(&path))?;
            let scale = self.open.as_ref().expect("set above").scale;
            let update = self.algorithm.check(&self.round(round, scale), parcel).map_err(damaged(&path))?;
            self.add(client, header, update);
        }
        Ok(clients)
    }

    /// Lines of rounds that the checkpoint does not know are taken back: those rounds will be closed again.
    fn restore_records(&mut self, closed: u32) -> Result<(), RunError> {
        let path = self.directory.rounds();
        let mut text = String::new();
        match self.files.open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(disk("open", &path)(error)),
            Ok(mut file) => {
                file.read_to_string(&mut text).map_err(disk("read", &path))?;
            }
        }
        let read = jsonl::read(&text).map_err(damaged(&path))?;
        let written = read.records.len();
        let records: Vec<_> = read.records.into_iter().filter(|record| record.round <= closed).collect();
        if records.len() != written || read.torn.is_some() {
            let kept: String = records.iter().map(jsonl::line).collect();
            write_durably(&*self.files, &path, |out| out.write_all(kept.as_bytes()))
                .map_err(disk("write", &path))?;
        }
        self.records = records;
        Ok(())
    }
}
