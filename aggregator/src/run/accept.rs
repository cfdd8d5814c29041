//! Step *accept*: updates become durable and part of the sums.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use models::{Limits, ParamSet};
use shared::algorithm::{Checked, Contribution, ErasedAlgorithm, Partial, Round};
use shared::by_class::ByClass;
use shared::frame;
use shared::id::ClientId;
use shared::message::{Rejection, ToServer, TrainReport, UpdateHeader};
use shared::payload::Payload;
use shared::record::Record;
use shared::secret::Secret;

use super::directory::RunDirectory;
use super::error::disk;
use super::update_file::{NotAccepted, outcome};
use super::{OpenRound, Run, RunError, Upload, fold, update_file};
use crate::config::Config;
use crate::coordinator::Opening;
use crate::data::TestSet;
use crate::ensemble::is_sound;
use crate::round::SampleCap;
use crate::storage::FileLayer;
use crate::storage::checksum::{Checksum, content_length, write_checked};
use crate::storage::retry_full::retry_while_full;

/// An update that is believed.
pub(super) struct Judged {
    pub(super) header: UpdateHeader,
    /// There is nothing in it of a round without training.
    pub(super) update: Option<Checked>,
    /// The results by class of a test, if the run asks for them.
    pub(super) tested: ByClass,
}

/// What the threads that accept updates of the open round share.
pub(super) struct Acceptance<'a> {
    pub(super) files: &'a dyn FileLayer,
    pub(super) directory: &'a RunDirectory,
    config: &'a Config,
    pub(super) algorithm: &'a dyn ErasedAlgorithm,
    pub(super) round: Round<'a>,
    pub(super) sample_cap: SampleCap,
    /// What noise is drawn from, if the run is private.
    pub(super) secret: Option<&'a Secret>,
    /// Whether anything is to be learned in it.
    train: bool,
    pub(super) accepted: Limits,
    /// Whether updates are read a few values at a time when the round closes.
    in_step: bool,
    /// Whether compressed ones are kept as what they stand for.
    expands: bool,
    tests: Option<&'a TestSet>,
    /// The model that members of an ensemble start from, if the clients' models become one.
    start: Option<ParamSet>,
}

impl Run {
    /// Step *accept* for updates that wait in the spool together: each that is believable is then part of the sums, and
    /// one sync makes all of them durable, but for those that are expanded, each of which has its own. Their bytes have been synced by the receiver. Outcomes are in the order of
    /// `uploads`, and none may be announced before this returns.
    pub fn fold(
        &mut self,
        round: u32,
        uploads: &[(ClientId, Upload)],
    ) -> Result<Vec<Result<u32, Rejection>>, RunError> {
        self.checkpoint()?;
        if self.open.as_ref().is_some_and(|open| open.hidden.is_some()) {
            let outcomes = self.fold_masked(uploads)?;
            self.sync_accepted(round)?;
            return Ok(outcomes);
        }
        let (acceptance, open) = self.acceptance()?;
        let threads = fold::threads(acceptance.round.template.parameters(), uploads.len());
        if open.partials.len() < threads {
            open.partials.resize_with(threads, || None);
        }
        let accepted =
            fold::on_threads(uploads, &mut open.partials[..threads], |partial, (client, upload)| {
                acceptance.accept(partial, *client, upload)
            });
        let mut outcomes = Vec::with_capacity(uploads.len());
        let mut durable = false;
        for ((client, upload), accepted) in uploads.iter().zip(accepted) {
            open.fleeting |= matches!(upload, Upload::Memory { .. });
            let accepted = outcome(accepted)?;
            durable |= accepted.is_ok() && matches!(upload, Upload::File(_));
            outcomes.push(accepted.map(|(header, tested)| open.note(*client, header, tested)));
        }
        if durable {
            self.sync_accepted(round)?;
        }
        Ok(outcomes)
    }

    /// Makes the places of accepted updates durable.
    fn sync_accepted(&self, round: u32) -> Result<(), RunError> {
        let accepted = self.directory.accepted(round);
        retry_while_full(&*self.files, &accepted, || self.files.sync_dir(&accepted))
            .map_err(disk("sync", &accepted))
    }

    /// The two halves of a run that accepts updates: what its threads share, and what they change.
    pub(super) fn acceptance(&mut self) -> Result<(Acceptance<'_>, &mut OpenRound), RunError> {
        let start = self.algorithm.ensemble().map(|_| self.current_model()).transpose()?;
        let accepted = self.accepted();
        let (in_step, expands) = (self.reads_in_step(), self.expands());
        let Self { files, directory, config, algorithm, template, secret, clip, tests, open, failed, .. } =
            self;
        let open = open.as_mut().expect("updates are accepted between open and close");
        let acceptance = Acceptance {
            files: &**files,
            directory,
            config,
            algorithm: &**algorithm,
            round: open.round(
                &config.spec,
                template,
                *failed,
                super::secret::private(config, secret.as_ref(), *clip),
            ),
            sample_cap: open.opening.sample_cap,
            secret: secret.as_ref(),
            train: open.opening.work.train,
            accepted,
            in_step,
            expands,
            tests: tests.as_ref(),
            start,
        };
        Ok((acceptance, open))
    }
}

/// The answer to an update that is at a leaf, and not here.
pub(super) fn elsewhere() -> Rejection {
    Rejection::Malformed { reason: "it is not on this machine".to_owned() }
}

impl Acceptance<'_> {
    /// Accepts one update, but for the sync of its name: reads and checks it, moves it to its place and folds it.
    fn accept(
        &self,
        partial: &mut Option<Partial>,
        client: ClientId,
        upload: &Upload,
    ) -> Result<(UpdateHeader, ByClass), NotAccepted> {
        let Judged { header, update, tested } = match upload {
            Upload::File(file) => self.keep(client, file, |file| self.read(file))?,
            Upload::Memory { frame, payload } if self.keeps_files() => {
                self.keep(client, &self.spooled(client, frame, payload)?, |file| self.read(file))?
            }
            Upload::Memory { frame, payload } => {
                self.judge(update_file::read_shared(frame, payload, self.accepted)?)?
            }
            Upload::Leaf(_) => return Err(elsewhere().into()),
        };
        self.fold(partial, client, header, update)?;
        Ok((header, tested))
    }

    /// Reads and checks an update of the spool, and moves it to its place, or removes it if it is rejected.
    pub(super) fn keep<T>(
        &self,
        client: ClientId,
        file: &Path,
        read: impl FnOnce(&Path) -> Result<T, NotAccepted>,
    ) -> Result<T, NotAccepted> {
        let read = read(file);
        if let Err(NotAccepted::Rejected(_)) = read {
            self.files.remove(file).map_err(disk("remove", file))?;
        }
        let update = read?;
        let path = self.directory.accepted_update(self.round.number, client);
        if self.expands {
            self.decompress(file, &path)?;
            self.files.remove(file).map_err(disk("remove", file))?;
            return Ok(update);
        }
        retry_while_full(self.files, &path, || self.files.rename(file, &path))
            .map_err(disk("move an update to", &path))?;
        Ok(update)
    }

    /// Writes an update that was read before as what it stands for, so that a few values of it can be read at a time.
    fn decompress(&self, file: &Path, path: &Path) -> Result<(), NotAccepted> {
        let (header, record) = update_file::read_from(self.files, file, self.accepted)?;
        let received = content_length(self.files, file).map_err(disk("look at", file))?.unwrap_or(0);
        let length = record.received_len(received);
        let begin = frame::encode(&ToServer::Update(header), length);
        let write = || {
            write_checked(self.files, path, |out| {
                out.write_all(&begin)?;
                record.write_received(received, out)
            })
        };
        Ok(retry_while_full(self.files, path, write).map_err(disk("write an update to", path))?)
    }

    /// Folds an update in, unless all of them wait for the end of the round.
    pub(super) fn fold(
        &self,
        partial: &mut Option<Partial>,
        client: ClientId,
        header: UpdateHeader,
        update: Option<Checked>,
    ) -> Result<(), RunError> {
        let Some(update) = update.filter(|_| !self.stores_updates()) else { return Ok(()) };
        let folded = match partial {
            Some(folded) => folded,
            None => partial.insert(self.algorithm.begin(&self.round)?),
        };
        // Weights are not all that follows samples: some algorithms derive steps from them.
        let report = TrainReport { samples: self.sample_cap.of(header.report.samples), ..header.report };
        let weight = self.config.spec.aggregation.weights.of(report.samples);
        let contribution = Contribution { client, weight, report, update };
        self.algorithm.fold(folded, contribution, &self.round);
        Ok(())
    }

    /// Reads and checks an update.
    pub(super) fn read(&self, path: &Path) -> Result<Judged, NotAccepted> {
        // Updates that wait for each other are read in step, so none may have an order of its own.
        let any_order = !self.in_step;
        let limits = Limits { any_order, ..self.accepted };
        let read = update_file::read_from(self.files, path, limits)?;
        let learned = self.start.as_ref().map(|start| (start, read.1.tensors.clone()));
        let judged = self.judge(read)?;
        if let (Judged { update: Some(_), .. }, Some((start, learned))) = (&judged, learned)
            && !self.would_be_member(start, learned)?
        {
            return Err(Rejection::Diverged.into());
        }
        Ok(judged)
    }

    /// Whether what was read is an update of this round, and one to believe.
    pub(super) fn judge(&self, (header, mut record): (UpdateHeader, Record)) -> Result<Judged, Rejection> {
        let round = self.round.number;
        if header.round != round {
            let lateness = self.config.policy.late.filter(|_| self.train && header.round < round);
            let late =
                lateness.and_then(|lateness| Some((lateness, lateness.staleness(header.round, round)?)));
            let Some((lateness, staleness)) = late else {
                return Err(Rejection::UnknownRound { round: header.round, current: round });
            };
            record.tensors.scale(lateness.discount(staleness));
        }
        let mut tested = std::mem::take(&mut record.tested);
        let spec = &self.config.spec;
        if !spec.evaluate.by_class || !tested.is_possible(spec.architecture.classes) {
            // Like metrics, it is not believed, and says nothing about what was learned.
            tested = ByClass::default();
        }
        if !self.train {
            if record == Record::default() {
                return Ok(Judged { header, update: None, tested });
            }
            return Err(Rejection::NothingToLearn);
        }
        Ok(Judged { header, update: Some(self.algorithm.check(&self.round, record)?), tested })
    }

    /// Whether what a client has learned, the difference to the start, is a model that can be a member of an ensemble. It fits
    /// the architecture: that was checked before.
    fn would_be_member(&self, start: &ParamSet, delta: ParamSet) -> Result<bool, RunError> {
        let mut model = delta;
        if model.is_empty() {
            // The client is a member already and says so.
            return Ok(true);
        }
        model.add(start).map_err(models::ModelError::from)?;
        let spec = &self.config.spec;
        let question = self.tests.map(TestSet::question);
        let answering = self.algorithm.ensemble().unwrap_or_default();
        Ok(is_sound(&spec.architecture, &model, (answering, spec.seed), question.as_ref())?)
    }

    /// An accepted update claims the number of samples that its client had declared, and the sums have room for no other.
    pub(super) fn is_as_declared(
        &self,
        opening: &Opening,
        client: ClientId,
        header: UpdateHeader,
    ) -> Result<(), Rejection> {
        let round = header.round;
        let declared = if round == opening.round {
            opening.cohort.get(&client).copied()
        } else {
            opening.owed.get(&client).filter(|owed| owed.round == round).map(|owed| owed.samples)
        };
        let declared = declared.ok_or(Rejection::NotInCohort { round })?;
        let (declared, reported) = (self.config.spec.samples_in(round, declared), header.report.samples);
        if reported == declared { Ok(()) } else { Err(Rejection::Samples { declared, reported }) }
    }

    /// Whether a closing round reads the files of its updates: to make something of all of them, or to test each client's
    /// own model.
    fn keeps_files(&self) -> bool {
        self.in_step || self.algorithm.personal().is_some()
    }

    fn stores_updates(&self) -> bool {
        self.config.spec.aggregation.rule.needs_every_update()
    }

    /// Writes an update down that has to wait for others on disk. Not durable, like all that a simulation writes.
    pub(super) fn spooled(
        &self,
        client: ClientId,
        frame: &[u8],
        payload: &Payload,
    ) -> Result<PathBuf, RunError> {
        let path = self.directory.spool().join(format!("{client}.upload"));
        let write = || {
            let (mut file, mut sum) = (self.files.create(&path)?, Checksum::default());
            for piece in std::iter::once(frame).chain(payload.pieces().iter().map(|piece| &**piece)) {
                sum.update(piece);
                file.write_all(piece)?;
            }
            file.write_all(sum.trailer().as_bytes())?;
            file.flush()
        };
        retry_while_full(self.files, &path, write).map_err(disk("spool an update in", &path))?;
        Ok(path)
    }
}
