//! The simulated device in secure aggregation: the real state machine, with secrets that a test can draw again.

use std::time::Duration;

use edge_client::failure::Failure;
use edge_client::masking::{Action, State};
use edge_client::session::{Activity, Event, Session};
use edge_client::store::{StoreError, Update};
use models::{Limits, Precision};
use shared::message::SecureStep;
use shared::record::Record;
use shared::secure::PartySecret;
use shared::seed::Seed;
use shared::spec::RunSpec;

use super::{Device, Effect};

impl Device {
    /// Why no update of this round could be hidden.
    pub(super) fn cannot_hide(&mut self, spec: &RunSpec, round: u32) -> Option<Failure> {
        match self.load_masking(spec) {
            Ok(()) => self.masking.refusal(spec.run, round),
            Err(error) => Some(error.failure()),
        }
    }

    /// Takes a step of the server in.
    pub(super) fn secure_step(
        &mut self,
        now: Duration,
        spec: &RunSpec,
        exchange: (u32, u32),
        step: SecureStep,
    ) -> Vec<Effect> {
        if let Err(error) = self.load_masking(spec) {
            return self.dies(&error);
        }
        let (client, drawn) = (self.client(), &mut self.drawn);
        let mut fresh = || {
            *drawn += 1;
            let seed =
                Seed::root(0).derive_bytes("party", client.as_bytes()).derive_numbered("drawn", *drawn);
            Ok(PartySecret::new(*seed.as_bytes()))
        };
        let actions = self.masking.step(spec, exchange, step, &mut fresh);
        self.hide(now, actions)
    }

    /// Carries out what the machine asks for. Jobs take no time.
    pub(super) fn hide(&mut self, now: Duration, actions: Vec<Action>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for action in actions {
            match action {
                Action::Keep(state) => {
                    let (run, state) = (state.run(), state.to_bytes());
                    if let Err(error) = self.kept.with(|store| store.keep_masking(run, &state)) {
                        effects.extend(self.dies(&error));
                        break;
                    }
                }
                Action::Send(message) => effects.push(Effect::Deliver(Box::new(message), None)),
                Action::Mask(job) => {
                    let actions = self.masking.masked(job.run());
                    effects.extend(self.hide(now, actions));
                }
                Action::Save { mut update, devices, .. } => {
                    self.hidden.push((update.id.round, devices));
                    if let Some(by) = self.lies_by {
                        add(&mut update, by);
                    }
                    effects.extend(self.save(now, &update));
                }
                Action::Fail { round, failure } => {
                    self.refused.push((round, failure.to_string()));
                    let activity = self.session().map(Session::activity);
                    if matches!(activity, Some(Activity::Training(id)) if id.round == round) {
                        self.running = None;
                        let outcome = Err(failure);
                        effects.extend(self.handle(now, Event::Trained { round, outcome, keeps: false }));
                    }
                }
                Action::Warn { round, reason } => self.refused.push((round, reason)),
            }
        }
        effects
    }

    fn load_masking(&mut self, spec: &RunSpec) -> Result<(), StoreError> {
        if self.masking.wants(spec.run) {
            let stored = self.kept.with(|store| store.masking(spec.run))?;
            self.masking.load(spec.run, stored.and_then(|stored| State::from_bytes(&stored)));
        }
        Ok(())
    }
}

/// Adds this to the first value of every tensor of a masked update.
fn add(update: &mut Update, by: i64) {
    let limits = Limits { max_bytes: update.payload.len() as u64, ..Limits::default() };
    let payload = update.payload.to_bytes();
    let mut record =
        Record::read_with_integers(&mut &payload[..], limits).expect("its own update can be read");
    assert!(!record.integers.is_empty(), "it is masked");
    for integers in record.integers.values_mut() {
        let first = &mut integers.values_mut()[0];
        *first = first.wrapping_add(by);
    }
    update.payload = record.to_payload(Precision::F32);
}
