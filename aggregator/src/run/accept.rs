//! Step *accept*: updates become durable and part of the sums.

use std::path::Path;

use models::params::codec::TensorStream;
use shared::algorithm::{Checked, Contribution};
use shared::id::ClientId;
use shared::message::{Rejection, UpdateHeader};
use shared::record::Record;

use super::error::disk;
use super::{Run, RunError, Upload, update_file};
use crate::storage::Reading;
use crate::storage::patient::patiently;

impl Run {
    /// Step *accept* for updates that wait in the spool together: each that is believable is then part of the sums, and
    /// one sync makes all of them durable. Their bytes have been synced by whoever received them. Outcomes are in the
    /// order of `uploads`, and nobody may hear of one before this returns.
    pub fn fold(
        &mut self,
        round: u32,
        uploads: &[(ClientId, Upload)],
    ) -> Result<Vec<Result<(), Rejection>>, RunError> {
        self.checkpoint()?;
        let mut outcomes = Vec::with_capacity(uploads.len());
        let mut files = 0;
        for (client, upload) in uploads {
            let sums = self.open.as_mut().expect("updates are folded between open and close");
            sums.fleeting |= matches!(upload, Upload::Memory { .. });
            outcomes.push(match upload {
                Upload::File(file) => {
                    let outcome = self.take_in(round, *client, file)?;
                    files += usize::from(outcome.is_ok());
                    outcome
                }
                Upload::Memory { frame, payload } if self.keeps_files() => {
                    let file = self.spooled(*client, frame, payload)?;
                    self.take_in(round, *client, &file)?
                }
                Upload::Memory { frame, payload } => self.take_in_memory(round, *client, (frame, payload))?,
            });
        }
        if files > 0 {
            let accepted = self.directory.accepted(round);
            patiently(&*self.files, &accepted, || self.files.sync_dir(&accepted))
                .map_err(disk("sync", &accepted))?;
        }
        Ok(outcomes)
    }

    /// Step *accept* of one update, but for the sync of its name.
    fn take_in(
        &mut self,
        round: u32,
        client: ClientId,
        upload: &Path,
    ) -> Result<Result<(), Rejection>, RunError> {
        let (header, update) = match self.read_update(round, upload)? {
            Ok(checked) => checked,
            Err(rejection) => {
                self.files.remove(upload).map_err(disk("remove", upload))?;
                return Ok(Err(rejection));
            }
        };
        let path = self.directory.accepted_update(round, client);
        patiently(&*self.files, &path, || self.files.rename(upload, &path))
            .map_err(disk("move an update to", &path))?;
        self.add(client, header, update)?;
        Ok(Ok(()))
    }

    pub(super) fn add(
        &mut self,
        client: ClientId,
        header: UpdateHeader,
        update: Option<Checked>,
    ) -> Result<(), RunError> {
        let mut sums = self.open.take().expect("updates are folded between open and close");
        if let Some(update) = update.filter(|_| !self.stores_updates()) {
            let round = self.round(&sums);
            let mut partial = match sums.partial.take() {
                Some(partial) => partial,
                None => self.algorithm.begin(&round)?,
            };
            let weight = self.config.spec.aggregation.weights.of(header.report.samples);
            let contribution = Contribution { client, weight, report: header.report, update };
            self.algorithm.fold(&mut partial, contribution, &round);
            sums.partial = Some(partial);
        }
        let mut report = header.report;
        if header.round < sums.opening.round {
            sums.late.insert(client, header.round);
            // What it found of a model is not of the one that this round's clients were sent.
            report.metrics = report.metrics.map(|metric| metric.filter(|metric| !metric.is_of_model()));
        }
        sums.reports.insert(client, report);
        self.open = Some(sums);
        Ok(())
    }

    /// Reads and checks an update. The outer error is this machine's, the inner one the update's.
    pub(super) fn read_update(
        &self,
        round: u32,
        path: &Path,
    ) -> Result<Result<(UpdateHeader, Option<Checked>), Rejection>, RunError> {
        let read = self.read_file(path)?;
        if self.reads_in_order() && read.is_ok() && !self.is_in_order(path)? {
            // Updates that wait for each other are read in step, so none may have an order of its own.
            let reason = "its tensors are not in the order of their names".to_owned();
            return Ok(Err(Rejection::Malformed { reason }));
        }
        let joins = self.algorithm.ensemble().is_some();
        let learned = read.as_ref().ok().filter(|_| joins).map(|(_, record)| record.tensors.clone());
        let judged = self.judge(round, read);
        if let (Ok((_, Some(_))), Some(learned)) = (&judged, learned)
            && !self.would_be_member(learned)?
        {
            let reason = "its model computes features that are not finite, or too large to be fused: training diverged on the \
                          device";
            return Ok(Err(Rejection::Malformed { reason: reason.to_owned() }));
        }
        Ok(judged)
    }

    /// Reads an update as it is written. The outer error is this machine's, the inner one the update's.
    pub(super) fn read_file(
        &self,
        path: &Path,
    ) -> Result<Result<(UpdateHeader, Record), Rejection>, RunError> {
        let mut input = Reading::open(&*self.files, path).map_err(disk("open", path))?;
        let read = update_file::read(&mut input, self.max_payload());
        input.judge(read).map_err(disk("read", path))
    }

    /// Whether what was read is an update of this round, and one to believe. There is nothing in it of a round without
    /// training.
    pub(super) fn judge(
        &self,
        round: u32,
        read: Result<(UpdateHeader, Record), Rejection>,
    ) -> Result<(UpdateHeader, Option<Checked>), Rejection> {
        let sums = self.open.as_ref().expect("updates are read between open and close");
        let (header, mut record) = read?;
        if header.round != round {
            let lateness =
                self.config.policy.late.filter(|_| sums.opening.work.train && header.round < round);
            let late =
                lateness.and_then(|lateness| Some((lateness, lateness.staleness(header.round, round)?)));
            let Some((lateness, staleness)) = late else {
                return Err(Rejection::UnknownRound { round: header.round, current: round });
            };
            record.tensors.scale(lateness.discount(staleness));
        }
        if !sums.opening.work.train {
            let nothing = record == Record::default();
            let reason = || "nothing was to be learned in this round, and something was sent".to_owned();
            return if nothing { Ok((header, None)) } else { Err(Rejection::Layout { reason: reason() }) };
        }
        Ok((header, Some(self.algorithm.check(&self.round(sums), record)?)))
    }

    /// Whether a closing round reads the files of its updates: to make something of all of them, or to test each client's
    /// own model.
    fn keeps_files(&self) -> bool {
        self.reads_in_order() || self.algorithm.personal().is_some()
    }

    /// Whether it does so a few values at a time.
    fn reads_in_order(&self) -> bool {
        self.stores_updates() || self.algorithm.ensemble().is_some()
    }

    /// Whether updates wait on disk for the round to close instead of being folded.
    pub(super) fn stores_updates(&self) -> bool {
        self.config.spec.aggregation.rule.needs_every_update()
    }

    /// Whether the tensors of an update that was read before stand in the order of their names.
    fn is_in_order(&self, path: &Path) -> Result<bool, RunError> {
        let mut input = Reading::open(&*self.files, path).map_err(disk("open", path))?;
        let stream = update_file::read_header(&mut input, self.max_payload())
            .ok()
            .and_then(|(_, limits)| TensorStream::open(&mut input, limits).ok());
        let in_order = stream.is_some_and(|stream| stream.is_in_order());
        input.judge(in_order).map_err(disk("read", path))
    }
}
