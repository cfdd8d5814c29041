//! Secure aggregation: carries out what the [machine](crate::masking) asks for.

use shared::message::{SecureStep, TaskKind};
use shared::secure::PartySecret;
use shared::spec::RunSpec;
use tracing::warn;

use super::{Driver, Notice};
use crate::failure::{Blame, Failure};
use crate::masking::{Action, Masked, Plain, Refused, State};
use crate::session::{Activity, Event};
use crate::store::{Store, StoreError};
use crate::task::TaskOutput;
use crate::transport::{Connector, Outgoing};

/// A secret from the system's random numbers.
fn fresh() -> Result<PartySecret, Failure> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| StoreError::Random(error).failure())?;
    Ok(PartySecret::new(bytes))
}

impl<C: Connector, S: Store> Driver<'_, C, S> {
    /// Why no update of this task could be hidden, if it must be.
    pub(super) fn cannot_hide(&mut self, spec: &RunSpec, round: u32, work: TaskKind) -> Option<Failure> {
        if !work.train {
            return None;
        }
        if !spec.secure.enabled {
            return match self.store.masking(spec.run) {
                Ok(None) => None,
                Ok(Some(_)) => Some(Refused::Shown.failure()),
                Err(error) => Some(error.failure()),
            };
        }
        if let Err(failure) = self.load_masking(spec) {
            return Some(failure);
        }
        self.masking.refusal(spec.run, round)
    }

    /// Takes a step of the server in.
    pub(super) fn secure_step(&mut self, round: u32, attempt: u32, step: SecureStep) -> Option<Event> {
        // A step comes after the welcome.
        let spec = self.session.run()?.clone();
        if let Err(failure) = self.load_masking(&spec) {
            return self.fails(round, failure);
        }
        let actions = self.masking.step(&spec, (round, attempt), step, &mut fresh);
        self.carry_out(actions)
    }

    /// Takes an update in that must be hidden. The personal model is not, and never leaves the device.
    pub(super) fn hide(&mut self, plain: Plain, personal: Option<&[u8]>) -> Option<Event> {
        let id = plain.id();
        if let Some(Err(error)) = personal.map(|model| self.store.save_personal(id.run, model)) {
            warn!("the personal model of round {} is lost: {error}", id.round);
        }
        let actions = self.masking.trained(plain);
        if actions.is_empty() {
            (self.notice)(Notice::Hiding { round: id.round });
        }
        self.carry_out(actions)
    }

    /// The round of an exchange is over for this device.
    pub(super) fn round_over(&mut self, round: u32) {
        let actions = self.masking.over(round);
        // Nothing but the state is replaced, and its failure is a warning: the next exchange replaces it anyway.
        let _ = self.carry_out(actions);
    }

    /// An update is hidden.
    pub(super) fn masked(&mut self, masked: Masked) -> Option<Event> {
        let actions = self.masking.masked(masked);
        self.carry_out(actions)
    }

    /// Loads the state of the run, unless it is here.
    fn load_masking(&mut self, spec: &RunSpec) -> Result<(), Failure> {
        if self.masking.wants(spec.run) {
            let stored = self.store.masking(spec.run).map_err(|error| error.failure())?;
            let state = stored.map(|stored| {
                let known = State::from_bytes(&stored);
                known.ok_or_else(|| Failure::new(Blame::Program, Refused::Unknown))
            });
            self.masking.load(spec.run, state.transpose()?);
        }
        Ok(())
    }

    fn carry_out(&mut self, actions: Vec<Action>) -> Option<Event> {
        let mut event = None;
        for action in actions {
            match action {
                Action::Keep(state) => {
                    if let Err(error) = self.store.keep_masking(state.run(), &state.to_bytes()) {
                        self.masking.unload();
                        return self.fails(state.round(), error.failure());
                    }
                }
                Action::Send(message) => self.send(Outgoing::Message(Box::new(message))),
                Action::Mask(job) => self.training.hide(&self.participant.pool, job),
                Action::Save { update, plain, devices } => {
                    let (work, report) = (plain.task().work, plain.task().report);
                    (self.notice)(Notice::Hidden { round: update.id.round, devices });
                    event = self.save(TaskOutput { work, report, update: *update, personal: None }, None);
                }
                Action::Fail { round, failure } => event = self.fails(round, failure),
                Action::Warn { round, reason } => (self.notice)(Notice::Refused { round, reason }),
            }
        }
        event
    }

    /// Reports a failure as one of the task, if there is a task that has not ended.
    fn fails(&mut self, round: u32, failure: Failure) -> Option<Event> {
        if matches!(self.session.activity(), Activity::Training(id) if id.round == round) {
            self.training.cancel();
            self.masking.cancel();
            self.forget_waiting();
            return Some(self.failed(round, failure));
        }
        warn!("round {round}: secure aggregation: {failure}");
        None
    }
}
