//! A leaf's part of a run: it accepts the updates of its devices, keeps them, and sums them up.
//!
//! Its directory is that of a run without a model: what is sent in the open round, the updates that were accepted in it, and the spool. An
//! update that was accepted is on disk before the root hears of it. What is asked of a process that was killed meanwhile is made again
//! from these files, to the same bits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use shared::aggregation::Mixture;
use shared::differences::{Digest, base_of};
use shared::id::{ClientId, RunId};
use shared::message::{Rejection, UpdateHeader};
use shared::record::Record;

use super::broadcast::{Difference, Part};
use super::directory::{RunDirectory, round_in};
use super::error::{damaged, disk};
use super::leaves::HeldUpdate;
use super::{Broadcast, Run, RunError, Upload};
use crate::config::Config;
use crate::coordinator::{Agreement, Closing, Opening};
use crate::round::Tally;
use crate::storage::checksum::{content_length, read_checked, write_checked};
use crate::storage::{FileLayer, create_dir_durably};

/// The name of the file beside accepted updates that says what they were trained from.
const ORIGIN: &str = "trained-from";

/// What the root sends of a round's broadcast.
pub struct Sent {
    model: Bytes,
    digest: Option<Digest>,
    differences: Vec<Bytes>,
}

impl Sent {
    /// Takes the parts of a payload from each other: the model, and differences of these lengths. `None` if it is too short.
    #[must_use]
    pub fn of(payload: Bytes, digest: Option<Digest>, differences: &[u64]) -> Option<Self> {
        let (mut rest, mut parts) = (payload, Vec::new());
        for &length in differences.iter().rev() {
            let at = rest.len().checked_sub(usize::try_from(length).ok()?)?;
            parts.push(rest.split_off(at));
        }
        parts.reverse();
        Some(Self { model: rest, digest, differences: parts })
    }
}

/// The updates of one leaf.
pub struct LeafRun {
    run: Run,
    /// What the devices of the open round are sent: its digest.
    model: Digest,
    /// What the updates of the open round depend on.
    origin: Option<Digest>,
    /// Who takes part in it, where updates are hidden. The root says so again to a process that begins.
    agreement: Option<Agreement>,
    /// Whether the sums were given away.
    summed: bool,
}

impl LeafRun {
    /// The leaf of the run that `config` describes, with its files in `directory`.
    ///
    /// # Errors
    /// Those of the disk, and of a configuration that this version cannot carry out.
    pub fn new(files: Arc<dyn FileLayer>, directory: RunDirectory, config: Config) -> Result<Self, RunError> {
        let mut config = config;
        // The root alone trains on labelled samples, and tests.
        (config.server.labelled, config.server.mixture) = (None, Mixture::CLIENTS);
        config.data.validation = None;
        for folder in [directory.state(), directory.spool()] {
            create_dir_durably(&*files, &folder).map_err(disk("create", &folder))?;
        }
        let run = Run::assemble(files, directory, config, None)?;
        run.empty_spool()?;
        Ok(Self { run, model: Digest::default(), origin: None, agreement: None, summed: false })
    }

    /// Where updates are received.
    #[must_use]
    pub fn directory(&self) -> &RunDirectory {
        self.run.directory()
    }

    /// Has something written into its folder that is no part of the run.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn write_beside<T>(&self, write: impl FnOnce(&dyn FileLayer, &Path) -> T) -> T {
        write(&*self.run.files, self.run.directory.root())
    }

    /// The largest payload that an honest client sends.
    #[must_use]
    pub fn max_payload(&self) -> u64 {
        self.run.max_payload()
    }

    /// The run's identity, as the root has it.
    pub fn is_of(&mut self, run: RunId) {
        self.run.config.spec.run = run;
    }

    /// The open round, by its `opening`, what its devices are `sent`, and the rest of what folding depends on. Gives what they are sent as
    /// a file, and the updates that were accepted in it before.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn open(
        &mut self,
        opening: &Opening,
        (failed, clip): (u32, Option<f64>),
        agreement: Option<&Agreement>,
        sent: &Sent,
    ) -> Result<(Broadcast, Vec<HeldUpdate>), RunError> {
        let round = opening.round;
        let model_digest: Digest = Sha256::digest(&sent.model).into();
        let origin = self.origin_of(&model_digest, agreement);
        let same = |open: &super::OpenRound| open.opening.round == round;
        let goes_on = self.origin.as_ref() == Some(&origin) && self.run.open.as_ref().is_some_and(same);
        if goes_on && !self.summed && self.run.clip == clip && self.run.failed == failed {
            if let Some(open) = &mut self.run.open {
                (open.opening, open.clients) = (opening.clone(), opening.known().len());
            }
        } else {
            self.forget(Some(round))?;
            (self.run.failed, self.run.clip) = (failed, clip);
            self.adopt(round, &origin)?;
            self.write(&self.run.directory.broadcast(round), &sent.model)?;
            self.agreement = agreement.cloned();
            self.refold(opening, None)?;
            (self.model, self.origin, self.summed) = (model_digest, Some(origin), false);
        }
        Ok((self.broadcast(opening, sent)?, self.held()?))
    }

    /// What its devices are sent. Another root may have other differences.
    fn broadcast(&self, opening: &Opening, sent: &Sent) -> Result<Broadcast, RunError> {
        let (round, work, failed) = (opening.round, opening.work, self.run.failed);
        let model = Part::of(self.run.directory.broadcast(round), sent.model.clone());
        let mut differences = Vec::new();
        for (number, bytes) in (0..).zip(&sent.differences) {
            let path = self.run.directory.difference(number);
            self.write(&path, bytes)?;
            let from = base_of(bytes).map_err(damaged(&path))?;
            differences.push(Difference { from, part: Part::of(path, bytes.clone()) });
        }
        Ok(Broadcast { round, work, failed, model, digest: sent.digest, differences })
    }

    /// Who takes part in the open round, where updates are hidden: from now on there are updates of it.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn agree(&mut self, round: u32, agreement: &Agreement) -> Result<(), RunError> {
        if self.run.open.as_ref().is_none_or(|open| open.opening.round != round) {
            return Ok(());
        }
        let origin = self.origin_of(&self.model, Some(agreement));
        if self.origin.as_ref() != Some(&origin) {
            self.adopt(round, &origin)?;
            self.origin = Some(origin);
        }
        self.agreement = Some(agreement.clone());
        self.run.resume_hidden(self.agreement.clone());
        Ok(())
    }

    /// Folds what was accepted again: all of it or, with a `closing`, that which counts.
    fn refold(
        &mut self,
        opening: &Opening,
        closing: Option<&Closing>,
    ) -> Result<BTreeSet<ClientId>, RunError> {
        self.run.refold(opening, closing, self.agreement.clone())
    }

    /// What updates of a round depend on: the run, what devices are sent, and the exchange by which they are masked.
    fn origin_of(&self, model: &Digest, agreement: Option<&Agreement>) -> Digest {
        let attempt = agreement.map_or(0, |agreement| u64::from(agreement.attempt) + 1);
        let mut hash = Sha256::new_with_prefix(self.run.config.spec.run.as_bytes());
        hash.update(model);
        hash.update(attempt.to_be_bytes());
        hash.finalize().into()
    }

    /// Keeps those accepted updates of the round that are of this.
    fn adopt(&self, round: u32, origin: &Digest) -> Result<(), RunError> {
        let (files, folder) = (&*self.run.files, self.run.directory.accepted(round));
        let path = folder.join(ORIGIN);
        // A file that is damaged says nothing.
        let found = read_checked(files, &path).ok().flatten();
        if found.as_deref() == Some(origin) {
            return Ok(());
        }
        files.remove_dir(&folder).map_err(disk("remove", &folder))?;
        create_dir_durably(files, &folder).map_err(disk("create", &folder))?;
        write_checked(files, &path, |out| out.write_all(origin)).map_err(disk("write", &path))
    }

    /// Writes what the root can send again.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), RunError> {
        let files = &*self.run.files;
        let write = || {
            let mut file = files.create(path)?;
            file.write_all(bytes)?;
            file.flush()
        };
        crate::storage::retry_full::retry_while_full(files, path, write).map_err(disk("write", path))
    }

    /// All that was accepted in the open round.
    fn held(&self) -> Result<Vec<HeldUpdate>, RunError> {
        let Some(open) = &self.run.open else { return Ok(Vec::new()) };
        open.reports.keys().map(|client| self.held_of(*client)).collect()
    }

    fn held_of(&self, client: ClientId) -> Result<HeldUpdate, RunError> {
        let open = self.run.open.as_ref().expect("updates are of an open round");
        let path = self.run.directory.accepted_update(open.opening.round, client);
        let length = content_length(&*self.run.files, &path).map_err(disk("look at", &path))?;
        let trained = open.late.get(&client).copied().unwrap_or(open.opening.round);
        let header = UpdateHeader { round: trained, report: open.reports[&client] };
        let tested = open.tested.get(&client).cloned().unwrap_or_default();
        Ok(HeldUpdate {
            client,
            header,
            tested,
            bytes: length.map_or(0, |length| self.run.came(&path, length)),
        })
    }

    /// Accepts updates of the open round, durably. One of a client whose update was accepted already is not needed, and gets the
    /// same answer.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn accept(
        &mut self,
        round: u32,
        uploads: &[(ClientId, Upload)],
    ) -> Result<Vec<Result<HeldUpdate, Rejection>>, RunError> {
        let current = self.run.open.as_ref().map_or(0, |open| open.opening.round);
        if current != round {
            let rejection = Rejection::UnknownRound { round, current };
            return Ok(uploads.iter().map(|_| Err(rejection.clone())).collect());
        }
        self.restore()?;
        let has =
            |client: &ClientId| self.run.open.as_ref().is_some_and(|open| open.reports.contains_key(client));
        let mut seen = BTreeSet::new();
        let fresh: Vec<_> =
            uploads.iter().filter(|(client, _)| !has(client) && seen.insert(*client)).cloned().collect();
        for (_, upload) in uploads.iter().filter(|upload| !fresh.contains(upload)) {
            self.remove(upload)?;
        }
        let outcomes = self.run.fold(round, &fresh)?;
        let rejected = |((client, _), outcome): (&(ClientId, Upload), Result<u32, Rejection>)| {
            Some((*client, outcome.err()?))
        };
        let rejected: BTreeMap<_, _> = fresh.iter().zip(outcomes).filter_map(rejected).collect();
        uploads
            .iter()
            .map(|(client, _)| match rejected.get(client) {
                Some(rejection) => Ok(Err(rejection.clone())),
                None => self.held_of(*client).map(Ok),
            })
            .collect()
    }

    /// Removes an update of the spool.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn remove(&self, upload: &Upload) -> Result<(), RunError> {
        let Upload::File(path) = upload else { return Ok(()) };
        self.run.files.remove(path).map_err(disk("remove", path))
    }

    /// The sum of the updates of these clients. `None` if it does not have all of them.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn sum(&mut self, round: u32, clients: &BTreeSet<ClientId>) -> Result<Option<Record>, RunError> {
        let Some(open) = self.run.open.as_ref().filter(|open| open.opening.round == round) else {
            return Ok(None);
        };
        if !clients.iter().all(|client| open.reports.contains_key(client)) {
            return Ok(None);
        }
        if self.summed || open.reports.len() != clients.len() {
            let opening = open.opening.clone();
            let closing =
                Closing { contributors: clients.clone(), late: BTreeMap::new(), tally: Tally::default() };
            self.summed = true;
            if self.refold(&opening, Some(&closing))? != *clients {
                return Ok(None);
            }
        }
        self.summed = true;
        let Run { open, algorithm, .. } = &mut self.run;
        if let Some(hidden) = open.as_mut().and_then(|open| open.hidden.take()) {
            return Ok(Some(hidden.into_record(&**algorithm)));
        }
        let merged = open.as_mut().map(|open| open.merged(&**algorithm)).transpose()?.flatten();
        Ok(merged.map(|partial| algorithm.encode_partial(partial)))
    }

    /// The update of this client, as it came. `None` if it does not have it.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn update(&self, round: u32, client: ClientId) -> Result<Option<Vec<u8>>, RunError> {
        let open = self.run.open.as_ref().filter(|open| open.opening.round == round);
        if open.is_none_or(|open| !open.reports.contains_key(&client)) {
            return Ok(None);
        }
        let path = self.run.directory.accepted_update(round, client);
        let found = read_checked(&*self.run.files, &path).map_err(disk("read", &path))?;
        found.map(Some).ok_or(RunError::Removed { action: "read", path })
    }

    /// Folds all that was accepted again, if the sums were given away.
    fn restore(&mut self) -> Result<(), RunError> {
        if !std::mem::replace(&mut self.summed, false) {
            return Ok(());
        }
        let opening = self.run.open.as_ref().map(|open| open.opening.clone());
        let opening = opening.expect("what was summed up is of an open round");
        self.refold(&opening, None).map(drop)
    }

    /// Rounds up to this one are over for good: their updates count, or never will.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn closed(&mut self, round: u32) -> Result<(), RunError> {
        if self.run.open.as_ref().is_some_and(|open| open.opening.round <= round) {
            self.forget(None)?;
        }
        Ok(())
    }

    /// Removes what belongs to a round, but for this one's updates.
    fn forget(&mut self, but: Option<u32>) -> Result<(), RunError> {
        (self.run.open, self.origin) = (None, None);
        let (files, state) = (&*self.run.files, self.run.directory.state());
        for name in files.list(&state).map_err(disk("list", &state))? {
            let path = state.join(&name);
            let sent = |begins| round_in(&name, begins, ".safetensors").is_some();
            if sent("broadcast-") || sent("difference-") {
                files.remove(&path).map_err(disk("remove", &path))?;
            } else if round_in(&name, "accepted-", "").is_some_and(|round| Some(round) != but) {
                files.remove_dir(&path).map_err(disk("remove", &path))?;
            }
        }
        Ok(())
    }
}
