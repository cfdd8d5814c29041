//! An update that must be hidden before it leaves the device, and the job that hides it.
//!
//! Nothing else makes an [`Update`] of a [`Plain`] one, so that it can be neither sent nor written to the outbox as it is.

use std::fmt;
use std::sync::Arc;

use models::{ParamSet, Precision};
use sha2::{Digest as _, Sha256};
use shared::aggregation::Template;
use shared::algorithm::hidden::{Cover, masked, shown, terms};
use shared::algorithm::{Round, registry};
use shared::id::ClientId;
use shared::message::{Rounding, TaskId, TaskKind, TrainReport};
use shared::payload::Payload;
use shared::record::Record;
use shared::secret::Secret;
use shared::secure::{Advertised, Exchange, Party, PartySecret};
use shared::spec::RunSpec;

use super::error::Refused;
use super::state::Digest;
use crate::failure::Failure;
use crate::store::Update;

/// What a task has trained, but for the update.
#[derive(Clone, Debug)]
pub struct TrainedTask {
    /// The run.
    pub spec: Arc<RunSpec>,
    /// The round.
    pub round: u32,
    /// Rounds of training before it that have failed.
    pub failed: u32,
    /// What the task asked for.
    pub work: TaskKind,
    /// The SHA-256 of what the server has sent.
    pub broadcast: [u8; 32],
    /// Who has trained it.
    pub client: ClientId,
    /// How the training went.
    pub report: TrainReport,
    /// The client state as of this update, if there is any.
    pub local: Option<Vec<u8>>,
}

/// An update as it was trained.
pub struct Plain {
    task: TrainedTask,
    update: Record,
}

impl fmt::Debug for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plain(round {}, ..)", self.task.round)
    }
}

impl Plain {
    /// An update, as the server would read it if it saw it.
    #[must_use]
    pub fn new(task: TrainedTask, update: Record) -> Self {
        Self { task, update }
    }

    /// The task that it is of.
    #[must_use]
    pub fn id(&self) -> TaskId {
        TaskId { run: self.task.spec.run, round: self.task.round }
    }

    /// What else the task has left.
    #[must_use]
    pub fn task(&self) -> &TrainedTask {
        &self.task
    }

    /// Leaves the time of the training out, for simulations with a clock of their own.
    pub fn forget_duration(&mut self) {
        self.task.report.duration = std::time::Duration::ZERO;
    }
}

/// Hides an update: folds it into whole numbers and masks them.
#[derive(Debug)]
pub struct Job {
    pub(super) plain: Arc<Plain>,
    pub(super) exchange: Exchange,
    pub(super) secret: PartySecret,
    pub(super) noise: PartySecret,
    /// The neighbours with which masks are shared.
    pub(super) with: Vec<Advertised>,
    pub(super) rounding: Rounding,
    /// The digest of what was asked for.
    pub(super) asked: Digest,
}

/// The result of a [`Job`].
#[derive(Debug)]
pub struct Masked {
    pub(super) exchange: Exchange,
    pub(super) asked: Digest,
    /// The devices among which the update is hidden.
    pub(super) devices: usize,
    pub(super) outcome: Result<(Box<Update>, Digest), Failure>,
}

impl Job {
    /// The round.
    #[must_use]
    pub fn round(&self) -> u32 {
        self.exchange.round
    }

    /// Hides the update on this thread, and on those of its pool.
    #[must_use]
    pub fn run(&self) -> Masked {
        self.ended(self.mask().map_err(|refused| refused.failure()))
    }

    /// The result if something else has ended the job.
    #[must_use]
    pub fn failed(&self, failure: Failure) -> Masked {
        self.ended(Err(failure))
    }

    fn ended(&self, outcome: Result<(Box<Update>, Digest), Failure>) -> Masked {
        let Self { exchange, asked, .. } = *self;
        Masked { exchange, asked, devices: self.with.len() + 1, outcome }
    }

    fn mask(&self) -> Result<(Box<Update>, Digest), Refused> {
        let Plain { task, update } = &*self.plain;
        let Rounding { scale, most_samples } = self.rounding;
        let samples = task.report.samples.min(most_samples);
        let spec = &*task.spec;
        let weight = spec.aggregation.weights.of(samples);
        // Of noise the scale is its own.
        if spec.device_noise.is_none() && !scale.has_room_for(weight, spec.secure.integers) {
            return Err(Refused::Rounding { samples });
        }
        let party = Party::new(self.exchange, task.client, self.secret);
        let masks = party.masks(&self.with, &terms(spec, &self.rounding, task.failed, &task.broadcast))?;
        let algorithm = registry::build(&spec.algorithm)?;
        let template = Template::of_updates(spec.architecture.parameter_specs()?, spec.aggregation.buffers);
        let round = Round {
            number: task.round,
            failed: task.failed,
            spec,
            template: &template,
            scale,
            clients: 0,
            private: None,
        };
        let counted = TrainReport { samples, ..task.report };
        let cover = Cover { masks: &masks, secret: &Secret::new(self.noise.expose()) };
        let integers = masked(&*algorithm, &round, (task.client, counted), update.clone(), cover)?;
        let record = Record { integers, ..Record::with_scalars(ParamSet::new(), &self.exchange.attempt) };
        let payload = record.to_payload(Precision::F32);
        let digest = digest(&payload);
        let (id, local) = (self.plain.id(), task.local.clone());
        Ok((Box::new(Update { id, report: shown(task.report), payload, local }), digest))
    }
}

fn digest(payload: &Payload) -> Digest {
    let mut hash = Sha256::new();
    for piece in payload.pieces() {
        hash.update(piece);
    }
    hash.finalize().into()
}
