//! Continuing a run: what a process that went away has left on disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use shared::id::ClientId;
use shared::message::{CountedUpdate, Rejection, TrainReport};

use super::accept::Judged;
use super::directory::{RunDirectory, client_in, newest_checkpoint, uploader_in};
use super::error::disk;
use super::frozen::read_frozen;
use super::opening::{Decision, OpeningRecord};
use super::update_file::outcome;
use super::{Run, RunError};
use crate::config::Config;
use crate::coordinator::{
    Agreement, Closing, MAX_ATTEMPTS, Opening, OutstandingTask, Reopened, Resume, participations_after,
};
use crate::data::TestSet;
use crate::round::stopping;
use crate::storage::FileLayer;
use crate::storage::checksum::content_length;

impl Run {
    /// Continues the run in `directory` and says where it stands.
    pub fn resume(
        files: Arc<dyn FileLayer>,
        directory: RunDirectory,
        config: Config,
        tests: Option<TestSet>,
    ) -> Result<(Self, Resume), RunError> {
        Self::assemble(files, directory, config, tests)?.restored()
    }

    /// The run as its directory has it, and where it stands.
    pub(super) fn restored(self) -> Result<(Self, Resume), RunError> {
        let mut run = self;
        read_frozen(&*run.files, &run.directory, &mut run.config.spec)?;
        let state = run.directory.state();
        let closed = newest_checkpoint(&*run.files, &run.directory).ok_or_else(|| RunError::Damaged {
            path: state.clone(),
            reason: "there is no checkpoint in it".to_owned(),
        })?;
        // What the process before has renamed and not synced is relied upon from here on.
        for folder in [run.directory.root().to_owned(), state] {
            run.files.sync_dir(&folder).map_err(disk("sync", &folder))?;
        }
        run.empty_spool()?;
        (run.closed, run.settled) = (closed, closed);
        run.restore_bases(closed)?;
        run.restore_clip(closed)?;
        run.restore_plateau(closed)?;
        run.restore_records(closed)?;
        if let Some(bundle) = run.bundle()? {
            bundle.verify()?;
        }
        run.records_are_expected = !run.missing_rounds().is_empty();
        run.settle()?;
        run.records_are_expected = false;
        // Broadcasts are never synced: after a power failure one may be there and be empty. It is made again.
        let unsynced = run.directory.broadcast(closed + 1);
        run.files.remove(&unsynced).map_err(disk("remove", &unsynced))?;

        let resume = run.reopen()?;
        let resume = run.close_again(resume)?;
        Ok((run, resume))
    }

    /// Keeps partial uploads of devices: their next connections may resume them.
    pub(super) fn empty_spool(&self) -> Result<(), RunError> {
        let spool = self.directory.spool();
        self.files.create_dir(&spool).map_err(disk("create", &spool))?;
        for name in self.files.list(&spool).map_err(disk("list", &spool))? {
            if uploader_in(&name).is_none() {
                let path = spool.join(name);
                self.files.remove(&path).map_err(disk("remove", &path))?;
            }
        }
        Ok(())
    }

    /// If the round after the open one was open too, the open one had been closed and only its checkpoint is missing: it is
    /// closed again before any client connects, since what the next round's clients hold by now is welcome there alone.
    fn close_again(&mut self, resume: Resume) -> Result<Resume, RunError> {
        let round = resume.closed + 1;
        let next = self.directory.opening(round + 1);
        if self.files.length(&next).map_err(disk("look at", &next))?.is_none() {
            return Ok(resume);
        }
        let foregone = resume.open.as_ref().and_then(|open| Some((open, open.foregone()?)));
        let Some((open, tally)) = foregone else {
            if self.config.promise.is_some() {
                let reason = "an update of the private round is not there any more that its published model was made of, and the \
                              round must not be published again with other noise";
                let path = self.directory.accepted(round);
                return Err(RunError::Damaged { path, reason: reason.to_owned() });
            }
            // The disk has lost an update, and the round may end in another model: nothing that was learned from the one
            // that the next round began with may count there.
            self.files.remove(&next).map_err(disk("remove", &next))?;
            let state = self.directory.state();
            self.files.sync_dir(&state).map_err(disk("sync", &state))?;
            self.known_before(round)?;
            self.warnings
                .push(format!("round {} begins again: the model that it began with is lost", round + 1));
            return Ok(resume);
        };
        let traffic = self.earlier_traffic(&self.broadcast(round, open.opening.work)?);
        self.reclosed = Some(self.close(round, &tally, traffic)?);
        self.settle()?;
        self.reopen()
    }

    /// Where the run stands, and the sums of the round that was open.
    fn reopen(&mut self) -> Result<Resume, RunError> {
        let closed = self.closed;
        let ended = self.ended().or_else(|| stopping::before_closing(&self.records));
        self.failed = stopping::failed(&self.records).max(OpeningRecord::failed_after(
            &*self.files,
            &self.directory,
            closed,
        )?);
        let failed = self.failed;
        let mut counted = self.counted()?;
        let void = stopping::void_in_a_row(&self.records);
        let Some(OpeningRecord { mut opening, decision, .. }) = self.read_opening(closed + 1)? else {
            let Some(OpeningRecord { opening: last, decision, .. }) = self.read_opening(closed)? else {
                if closed > 0 && self.config.promise.is_some_and(|promise| promise.participations.is_some()) {
                    // Without it devices might be asked more often than the account says.
                    return Err(RunError::Removed { action: "read", path: self.directory.opening(closed) });
                }
                let roster = self.known_since(closed)?.unwrap_or_default();
                return Ok(Resume { closed, ended, failed, void, roster, ..Resume::default() });
            };
            // Where nothing had to be decided, the whole cohort has contributed, and no other client.
            let closing = decision.map(|decision| decision.closing);
            let late = closing.as_ref().map_or(BTreeMap::new(), |closing| closing.late.clone());
            let owed = self.still_owed(&last, &late, closing.as_ref());
            let whole = || last.cohort.keys().copied().collect();
            let contributors = closing.map_or_else(whole, |closing| closing.contributors);
            // The updates are deleted, and so are their reports.
            let ledger = ledger_after(&last, &contributors, &late, &BTreeMap::new());
            let roster = self.known_since(closed)?.unwrap_or_else(|| last.known());
            let participations = participations_after(&last);
            return Ok(Resume {
                closed,
                ended,
                failed,
                void,
                roster,
                owed,
                counted,
                ledger,
                participations,
                open: None,
            });
        };
        // In a round without training, training is over: rounds without a result that an earlier program counted do not reopen it.
        let ended = ended.or_else(|| (!opening.work.train).then(|| opening.round - 1));
        counted.extend(&opening.counted);
        let roster = self.known_since(closed + 1)?.unwrap_or_else(|| opening.known());
        let hides = self.config.spec.secure.of(opening.work).is_some();
        let decision = if hides && self.give_up_damaged(&opening)? {
            self.read_opening(closed + 1)?.and_then(|record| record.decision)
        } else {
            decision
        };
        let closing = decision.as_ref().map(|decision| decision.closing.clone());
        let agreement = if hides { self.read_agreement(closed + 1)? } else { None };
        if hides && agreement.is_none() && decision.is_none() {
            // Devices may know another list of neighbours of the exchange that the earlier process had begun.
            opening.exchange = opening.exchange.saturating_add(MAX_ATTEMPTS);
            self.write_opening(&opening, None)?;
        }
        let accepted = self.refold(&opening, closing.as_ref(), agreement.clone())?;
        let (late, reports) = self
            .open
            .as_ref()
            .map_or((BTreeMap::new(), BTreeMap::new()), |sums| (sums.late.clone(), sums.reports.clone()));
        // Hidden updates count when the round has closed, and so do those that may be lost until then.
        let waits = hides || self.config.policy.receipts_at_close;
        let count = if waits { &BTreeSet::new() } else { &accepted };
        counted.extend(trained_in(closed + 1, count, &late));
        let ledger = ledger_after(&opening, count, &late, &reports);
        let fingerprints = reports.iter().filter(|_| waits);
        let fingerprints = fingerprints.map(|(client, report)| (*client, report.fingerprint())).collect();
        let reopened = Reopened { opening, accepted, late, closing, agreement, fingerprints };
        let owed = self.still_owed(&reopened.opening, &reopened.late, reopened.decided());
        if reopened.decided().is_some()
            && let Some(sums) = &mut self.open
        {
            sums.decision = decision;
        }
        let participations = participations_after(&reopened.opening);
        let open = Some(reopened);
        Ok(Resume { closed, ended, failed, void, roster, owed, counted, ledger, participations, open })
    }

    /// What clients owe of what they owed when a round was opened, now that these `late` updates are in; with what the round does
    /// without, if it is decided. Those that could not train are among them: what they hold, they say when they come back.
    pub(super) fn still_owed(
        &self,
        opening: &Opening,
        late: &BTreeMap<ClientId, u32>,
        decided: Option<&Closing>,
    ) -> BTreeMap<ClientId, OutstandingTask> {
        let Opening { round, cohort, .. } = opening;
        let mut owed = opening.owed.clone();
        owed.retain(|client, _| !late.contains_key(client) && !cohort.contains_key(client));
        if let Some(closing) = decided.filter(|_| self.config.policy.late.is_some()) {
            let missing = cohort.iter().filter(|(client, _)| !closing.contributors.contains(client));
            owed.extend(
                missing.map(|(client, &samples)| (*client, OutstandingTask { round: *round, samples })),
            );
        }
        owed
    }

    /// Folds the accepted updates of a round that was open when the process went away: all of them or, once it was
    /// decided which ones make the new model, those.
    pub(super) fn refold(
        &mut self,
        opening: &Opening,
        closing: Option<&Closing>,
        agreement: Option<Agreement>,
    ) -> Result<BTreeSet<ClientId>, RunError> {
        let round = opening.round;
        self.open = Some(self.open_round(opening)?);
        let hides = self.open.as_ref().is_some_and(|open| open.hidden.is_some());
        self.resume_hidden(agreement);
        let folder = self.directory.accepted(round);
        self.files.sync_dir(&folder).map_err(disk("sync", &folder))?;
        let names = self.files.list(&folder).map_err(disk("list", &folder))?;
        let keeps_late = self.config.policy.late.is_some();
        let counts = |client: &ClientId| match closing {
            Some(closing) => closing.contributors.contains(client),
            None => opening.cohort.contains_key(client) || keeps_late,
        };
        let clients: BTreeSet<ClientId> =
            names.iter().filter_map(|name| client_in(name)).filter(counts).collect();
        let mut accepted = BTreeSet::new();
        for client in clients {
            let path = self.directory.accepted_update(round, client);
            let length = content_length(&*self.files, &path).map_err(disk("look at", &path))?;
            let came = length.map_or(0, |length| self.came(&path, length));
            let again = if hides {
                self.refold_masked(&path, client)?.map(drop)
            } else {
                self.refold_one(&path, opening, client)?
            };
            match again {
                Ok(()) => {
                    self.open.as_mut().expect("it is open").received += came;
                    accepted.insert(client);
                }
                // It was believed once, so the disk has lost it. Trained again from the same broadcast and the same
                // data, the client's update has the same bytes.
                Err(rejection) => {
                    self.files.remove(&path).map_err(disk("remove", &path))?;
                    let again = if opening.cohort.contains_key(&client) {
                        "the client is asked for it again"
                    } else {
                        "it was late, and is lost"
                    };
                    let path = path.display();
                    self.warnings
                        .push(format!("the accepted update {path} is damaged ({rejection}): {again}"));
                }
            }
        }
        Ok(accepted)
    }

    /// Folds an accepted update again.
    fn refold_one(
        &mut self,
        path: &Path,
        opening: &Opening,
        client: ClientId,
    ) -> Result<Result<(), Rejection>, RunError> {
        let (acceptance, open) = self.acceptance()?;
        let read = acceptance.read(path).and_then(|read| {
            acceptance.is_as_declared(opening, client, read.header)?;
            Ok(read)
        });
        let Judged { header, update, tested } = match outcome(read)? {
            Ok(judged) => judged,
            Err(rejection) => return Ok(Err(rejection)),
        };
        open.partials.resize_with(1, || None);
        acceptance.fold(&mut open.partials[0], client, header, update)?;
        open.note(client, header, tested);
        Ok(Ok(()))
    }

    /// Whose updates the last closed round is made of, as far as the disk still says so.
    pub(crate) fn contributors_of_last(&self) -> Result<BTreeSet<ClientId>, RunError> {
        Ok(self.read_opening(self.closed)?.map_or(BTreeSet::new(), |record| record.contributors().0))
    }

    /// Whose updates count that the last closed round is made of, or an earlier one, as far as they may not know it; with the
    /// rounds that these were trained in.
    fn counted(&self) -> Result<BTreeMap<ClientId, u32>, RunError> {
        let Some(mut record) = self.read_opening(self.closed)? else { return Ok(BTreeMap::new()) };
        let mut counted = std::mem::take(&mut record.opening.counted);
        let (contributors, late) = record.contributors();
        counted.extend(trained_in(self.closed, &contributors, &late));
        Ok(counted)
    }
}

impl OpeningRecord {
    /// Whose updates its round was closed with, and the rounds of those that were late.
    fn contributors(self) -> (BTreeSet<ClientId>, BTreeMap<ClientId, u32>) {
        match self.decision {
            Some(Decision { closing, .. }) => (closing.contributors, closing.late),
            // Nothing had to be decided where the whole cohort has contributed.
            None => (self.opening.cohort.into_keys().collect(), BTreeMap::new()),
        }
    }
}

/// The ledger of an opening with what was accepted in its round.
fn ledger_after(
    opening: &Opening,
    accepted: &BTreeSet<ClientId>,
    late: &BTreeMap<ClientId, u32>,
    reports: &BTreeMap<ClientId, TrainReport>,
) -> Option<BTreeMap<ClientId, CountedUpdate>> {
    let mut ledger = opening.ledger.clone()?;
    if opening.work.train {
        let counted = |(client, round)| {
            let fingerprint = reports.get(&client).map(TrainReport::fingerprint);
            (client, CountedUpdate { round, fingerprint })
        };
        ledger.extend(trained_in(opening.round, accepted, late).map(counted));
    }
    Some(ledger)
}

/// Whose updates are part of a round, with the rounds that these were trained in: this one, unless they were late.
fn trained_in<'a>(
    round: u32,
    contributors: &'a BTreeSet<ClientId>,
    late: &'a BTreeMap<ClientId, u32>,
) -> impl Iterator<Item = (ClientId, u32)> + 'a {
    contributors.iter().map(move |client| (*client, late.get(client).copied().unwrap_or(round)))
}
