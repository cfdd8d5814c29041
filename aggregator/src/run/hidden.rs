//! Rounds whose updates are hidden: who takes part, masked updates, and the sum without its masks.
//!
//! Two more steps are durable in such a round: *agree*, the members with their keys and what they have sealed for each other, before any
//! of them sends an update; and the decision to close, always, before any mask is taken away. The sum itself is made in memory, and
//! the round's checkpoint is written with its close: what was revealed is not kept.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use models::Limits;
use models::params::IntegerSet;
use sha2::{Digest as _, Sha256};
use shared::algorithm::hidden::{AloneError, Cover, HiddenSum, OthersSum, covered, shown, terms};
use shared::algorithm::{ErasedAlgorithm, Partial, Round};
use shared::by_class::ByClass;
use shared::id::ClientId;
use shared::message::{Rejection, TrainReport, UpdateHeader};
use shared::record::Record;
use shared::secure::{Exchange, Recovery};
use tracing::warn;

use super::accept::{Acceptance, Judged, elsewhere};
use super::error::{damaged, disk};
use super::opening::Decision;
use super::update_file::{self, NotAccepted, outcome};
use super::{Broadcast, OpenRound, Part, Run, RunError, Traffic, Upload, secret};
use crate::coordinator::{Agreement, Closing, Opening, Revealed};
use crate::round::Tally;
use crate::storage::checksum::{ChecksumMismatch, read_checked, write_checked};
use crate::storage::retry_full::retry_while_full;

/// What a round knows of its members whose updates are hidden.
pub(super) struct Hidden {
    /// Who takes part, once that is durable.
    agreement: Option<Agreement>,
    /// The sum of the masked updates.
    sum: HiddenSum,
    /// Whether those at leaves are in it.
    is_gathered: bool,
}

impl Hidden {
    /// Of a round that opens.
    pub(super) fn new(sum: HiddenSum) -> Self {
        Self { agreement: None, sum, is_gathered: false }
    }

    /// The sum, as another server takes it.
    pub(super) fn into_record(self, algorithm: &dyn ErasedAlgorithm) -> Record {
        self.sum.into_record(algorithm)
    }

    /// Adds the sums of leaves.
    pub(super) fn gather(
        &mut self,
        algorithm: &dyn ErasedAlgorithm,
        sums: Vec<Record>,
    ) -> Result<(), RunError> {
        for sum in sums {
            self.sum.merge(algorithm, OthersSum::from_record(algorithm, sum)?)?;
        }
        self.is_gathered = true;
        Ok(())
    }
}

/// Why a sum is of no use.
#[expect(clippy::needless_pass_by_value, reason = "it is what an error is made of")]
fn beyond(tensor: String) -> String {
    format!("`{tensor}` is not what honest devices add up to")
}

impl Run {
    /// Step *agree*: who takes part in the open round, durably.
    pub fn agree(&mut self, round: u32, agreement: &Agreement) -> Result<(), RunError> {
        let path = self.agreement_file(round);
        let bytes = postcard::to_stdvec(agreement).expect("ids, keys and numbers are encoded");
        retry_while_full(&*self.files, &path, || {
            write_checked(&*self.files, &path, |out| out.write_all(&bytes))
        })
        .map_err(disk("write", &path))?;
        if let Some(hidden) = self.open.as_mut().and_then(|open| open.hidden.as_mut()) {
            hidden.agreement = Some(agreement.clone());
        }
        self.keep()?;
        if let Some(leaves) = &mut self.leaves {
            leaves.agreed(round, agreement);
        }
        Ok(())
    }

    /// Who takes part in a round, if that was made durable.
    pub(super) fn read_agreement(&self, round: u32) -> Result<Option<Agreement>, RunError> {
        let path = self.agreement_file(round);
        let Some(bytes) = read_checked(&*self.files, &path).map_err(disk("read", &path))? else {
            return Ok(None);
        };
        postcard::from_bytes(&bytes).map(Some).map_err(damaged(&path))
    }

    /// A damaged agreement: masks may have been added that are not known any more, so that the round is void. Says whether it was one.
    pub(super) fn give_up_damaged(&mut self, opening: &Opening) -> Result<bool, RunError> {
        let path = self.agreement_file(opening.round);
        match self.read_agreement(opening.round) {
            Ok(_) => return Ok(false),
            Err(RunError::Damaged { .. }) => {}
            Err(RunError::Disk { source, .. }) if ChecksumMismatch::is(&source) => {}
            Err(error) => return Err(error),
        }
        let tally = Tally { sampled: opening.cohort.len(), void: true, ..Tally::default() };
        let (contributors, late) = (BTreeSet::new(), BTreeMap::new());
        let closing = Closing { contributors, late, tally };
        self.write_opening(opening, Some(&Decision { closing, traffic: Traffic::default(), seconds: 0.0 }))?;
        self.files.remove(&path).map_err(disk("remove", &path))?;
        let path = path.display();
        self.warnings.push(format!(
            "{path} is damaged, without which masks cannot be taken away: round {} has no result",
            opening.round
        ));
        Ok(true)
    }

    fn agreement_file(&self, round: u32) -> PathBuf {
        self.directory.accepted(round).join("agreement")
    }

    /// The agreement of the round that an earlier process had open.
    pub(super) fn resume_hidden(&mut self, agreement: Option<Agreement>) {
        if let Some(hidden) = self.open.as_mut().and_then(|open| open.hidden.as_mut()) {
            hidden.agreement = agreement;
        }
    }

    /// Decides durably whose hidden updates count, before any mask is taken away.
    pub fn decide_hidden(&mut self, tally: &Tally, traffic: Traffic) -> Result<(), RunError> {
        let mut open = self.open.take().expect("a round is decided after it was opened");
        let decision = open.decision(tally, traffic);
        if !tally.void {
            // What is lost with a server is then lost before it is decided that it counts.
            self.sum_at_leaves(&mut open, &decision.closing.contributors)?;
        }
        self.write_opening(&open.opening, Some(&decision))?;
        open.decision = Some(decision);
        self.open = Some(open);
        self.keep()
    }

    /// Has the leaves sum up the updates of a round that an earlier process has decided on. Where some are lost by now the round opens
    /// again, for those alone: their devices have them still, and reveal nothing for others.
    pub(super) fn gather_decided(
        &mut self,
        open: &mut OpenRound,
        decision: &Decision,
    ) -> Result<(), RunError> {
        if decision.closing.tally.void || open.hidden.as_ref().is_some_and(|hidden| hidden.is_gathered) {
            return Ok(());
        }
        self.sum_at_leaves(open, &decision.closing.contributors)
    }

    /// Takes the masks off the sum of the open round, and gives the mean training loss with it. `None`, and the reason for the operator,
    /// if there is none: then the round is void, and that is durable.
    pub(super) fn unmask(
        &mut self,
        opening: &Opening,
        hidden: Hidden,
        decision: &mut Decision,
        revealed: &Revealed,
    ) -> Result<Option<(Partial, Option<f64>)>, RunError> {
        let counts = !decision.closing.tally.void && opening.work.train;
        let devices = decision.closing.contributors.len();
        let lacks = self.lacks_noise(devices).filter(|_| counts);
        let outcome = match (&hidden.agreement, counts) {
            _ if lacks.is_some() => Err(lacks.unwrap_or_default()),
            (Some(agreement), true) => {
                let contributors: Vec<ClientId> = decision.closing.contributors.iter().copied().collect();
                self.sum_of(opening, agreement, hidden.sum, (&contributors, revealed))
            }
            (None, true) if !self.config.spec.secure.enabled => {
                hidden.sum.reveal(&*self.algorithm, &[], devices).map_err(beyond)
            }
            _ => Err("too few devices stayed until the masks were taken away".to_owned()),
        };
        match outcome {
            Ok((partial, losses)) => Ok(Some((partial, losses.map(|losses| losses / devices.max(1) as f64)))),
            Err(reason) => {
                if counts {
                    warn!("round {}: the sum of the hidden updates is of no use: {reason}", opening.round);
                }
                // Nothing of it counts: its devices are told so, and keep what they had before.
                decision.closing.contributors.clear();
                decision.closing.tally.void = true;
                self.write_opening(opening, Some(decision))?;
                Ok(None)
            }
        }
    }

    /// Why a sum of this number of updates does not have the noise that is promised, or cannot be told with it.
    fn lacks_noise(&self, devices: usize) -> Option<String> {
        let (noise, integers) = (self.config.spec.device_noise?, self.config.spec.secure.integers);
        if devices < noise.devices as usize {
            return Some(format!("{devices} devices do not have the noise of {} together", noise.devices));
        }
        (!noise.fits(integers, devices)).then(|| {
            format!(
                "{devices} updates with their noise do not fit in {integers}: more devices take part than data.clients; leave \
                 secure-aggregation.integers out"
            )
        })
    }

    fn sum_of(
        &self,
        opening: &Opening,
        agreement: &Agreement,
        sum: HiddenSum,
        (contributors, revealed): (&[ClientId], &Revealed),
    ) -> Result<(Partial, Option<f64>), String> {
        let exchange =
            Exchange { run: self.config.spec.run, round: opening.round, attempt: agreement.attempt };
        let (members, neighbours) = (agreement.members(), &agreement.neighbours);
        let share = self.config.spec.secure.threshold;
        let terms = self.terms(opening).map_err(|error| error.to_string())?;
        let recovery = Recovery { exchange, terms: &terms, members: &members, neighbours, share };
        let masks = recovery.masks(contributors, revealed).map_err(|error| error.to_string())?;
        let revealed = sum.reveal(&*self.algorithm, &masks, contributors.len());
        revealed.map_err(beyond)
    }

    /// The digest of what members were told about the round.
    fn terms(&self, opening: &Opening) -> Result<[u8; 32], RunError> {
        let Broadcast { model, digest, .. } = self.broadcast(opening.round, opening.work)?;
        if let Some(digest) = digest {
            return Ok(self.terms_of(opening, &digest));
        }
        let Part { path, content, .. } = model;
        let mut hash = Sha256::new();
        if let Some(content) = content {
            hash.update(&content);
        } else {
            let mut file = self.files.open(&path).map_err(disk("open", &path))?;
            let mut bytes = vec![0; 1 << 16];
            loop {
                match file.read(&mut bytes).map_err(disk("read", &path))? {
                    0 => break,
                    length => hash.update(&bytes[..length]),
                }
            }
        }
        Ok(self.terms_of(opening, &hash.finalize().into()))
    }

    fn terms_of(&self, opening: &Opening, model: &[u8; 32]) -> [u8; 32] {
        let (spec, max_abs) = (&self.config.spec, self.config.policy.max_abs);
        let rounding = opening.rounding(spec, max_abs);
        terms(spec, &rounding, self.failed, model)
    }

    /// The open round, as algorithms see it.
    pub(super) fn round_of(&self, open: &OpenRound) -> Round<'_> {
        open.round(&self.config.spec, &self.template, self.failed, self.private())
    }
}

/// A masked update that is believed, as far as anything of it can be checked.
pub(super) struct Masked {
    pub(super) header: UpdateHeader,
    numbers: IntegerSet,
}

impl Hidden {
    /// Adds a masked update, and notes whose it is. Gives the fingerprint of its report.
    fn add(
        &mut self,
        acceptance: &Acceptance<'_>,
        open: &mut OpenRound,
        client: ClientId,
        masked: &Masked,
    ) -> u32 {
        let samples = acceptance.sample_cap.of(masked.header.report.samples);
        let report = TrainReport { samples, ..masked.header.report };
        self.sum.add(acceptance.algorithm, &acceptance.round, (client, report), &masked.numbers);
        open.note(client, masked.header, ByClass::default())
    }
}

impl Acceptance<'_> {
    /// Accepts a masked update, but for the sync of its name: reads it, checks what can be checked, and moves it to its place.
    pub(super) fn keep_masked(
        &self,
        client: ClientId,
        upload: &Upload,
        hidden: &Hidden,
    ) -> Result<Masked, NotAccepted> {
        let file = match upload {
            Upload::File(file) => file.clone(),
            Upload::Memory { frame, payload } if !self.round.spec.secure.enabled => {
                return self.cover(client, update_file::read_shared(frame, payload, self.accepted)?);
            }
            Upload::Memory { frame, payload } => self.spooled(client, frame, payload)?,
            Upload::Leaf(_) => return Err(elsewhere().into()),
        };
        self.keep(client, &file, |file| self.read_masked(file, client, hidden))
    }

    /// Makes an update of a simulation what a device would send, but for its masks: there is no server that they would hide it from.
    fn cover(&self, client: ClientId, update: (UpdateHeader, Record)) -> Result<Masked, NotAccepted> {
        let Judged { header, update, .. } = self.judge(update)?;
        let update = update.ok_or(Rejection::NothingToLearn)?;
        let secret = secret::of_device(self.secret.expect("a run with noise has a secret"), client);
        let cover = Cover { masks: &[], secret: &secret };
        let of_client = (client, header.report);
        let numbers = covered(self.algorithm, &self.round, of_client, update, cover);
        let numbers = numbers.map_err(|error| match error {
            AloneError::Rejected(rejection) => rejection,
            error => Rejection::Layout { reason: error.to_string() },
        });
        Ok(Masked { header: UpdateHeader { report: shown(header.report), ..header }, numbers: numbers? })
    }

    /// Reads a masked update of this round and its exchange.
    pub(super) fn read_masked(
        &self,
        path: &Path,
        client: ClientId,
        hidden: &Hidden,
    ) -> Result<Masked, NotAccepted> {
        let limits = Limits { any_order: true, ..self.accepted };
        let (header, record) = update_file::read_masked(self.files, path, limits)?;
        let round = self.round.number;
        if header.round != round {
            return Err(Rejection::UnknownRound { round: header.round, current: round }.into());
        }
        let layout = |reason: &str| Rejection::Layout { reason: reason.to_owned() };
        let agreement = hidden.agreement.as_ref().filter(|agreement| agreement.sealed.contains_key(&client));
        let agreement = agreement.ok_or(Rejection::NotInCohort { round })?;
        let attempt: u32 =
            record.scalars("the number of an exchange").map_err(|error| layout(&error.to_string()))?;
        if attempt != agreement.attempt {
            return Err(layout("it is masked for another exchange of keys").into());
        }
        if !record.tensors.is_empty() {
            return Err(layout("it has tensors that are not masked").into());
        }
        hidden.sum.check(&record.integers)?;
        Ok(Masked { header, numbers: record.integers })
    }
}

impl Run {
    /// Accepts masked updates that wait in the spool together: as [`fold`](Self::fold) does.
    pub(super) fn fold_masked(
        &mut self,
        uploads: &[(ClientId, Upload)],
    ) -> Result<Vec<Result<u32, Rejection>>, RunError> {
        let (acceptance, open) = self.acceptance()?;
        let mut hidden = open.hidden.take().expect("updates of this round are hidden");
        let mut outcomes = Vec::with_capacity(uploads.len());
        for (client, upload) in uploads {
            open.fleeting |= matches!(upload, Upload::Memory { .. });
            let masked = outcome(acceptance.keep_masked(*client, upload, &hidden))?;
            outcomes.push(masked.map(|masked| hidden.add(&acceptance, open, *client, &masked)));
        }
        open.hidden = Some(hidden);
        Ok(outcomes)
    }

    /// Adds an accepted masked update again, after a restart.
    pub(super) fn refold_masked(
        &mut self,
        path: &Path,
        client: ClientId,
    ) -> Result<Result<u32, Rejection>, RunError> {
        let (acceptance, open) = self.acceptance()?;
        let mut hidden = open.hidden.take().expect("updates of this round are hidden");
        let read = acceptance.read_masked(path, client, &hidden).and_then(|masked| {
            acceptance.is_as_declared(&open.opening, client, masked.header)?;
            Ok(masked)
        });
        let outcome = outcome(read)?.map(|masked| hidden.add(&acceptance, open, client, &masked));
        open.hidden = Some(hidden);
        Ok(outcome)
    }
}
