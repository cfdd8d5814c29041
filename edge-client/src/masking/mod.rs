//! The device's side of [secure aggregation](shared::secure): a state machine without I/O.
//!
//! What the server says and what the driver has done goes in; [`Action`]s come out, to be carried out in their order. The machine goes by
//! the newest exchange of a run.
//!
//! | in | if | and does |
//! |---|---|---|
//! | `Advertise` | a newer exchange | draws a secret, keeps it, sends its keys |
//! | `Advertise` | a newer one of a round in which it has hidden or revealed anything | refuses it |
//! | `Advertise` | this exchange | sends the same keys |
//! | `Neighbours` | they are as the run promises, and signed | keeps their digest, sends shares |
//! | `Mask` | of neighbours, and of enough | hides the update, as soon as that is trained |
//! | trained | a `Mask` is here | hides the update |
//! | hidden | of the newest exchange | keeps digests of it, saves the update |
//! | `Reveal` | of all that share masks, and enough of them count | keeps its digest, sends shares |
//! | any of these again | the same list | the same answer |
//! | any of these again | another list than was answered | refuses it |
//! | any | of an older exchange | |
//! | receipt | of the round of the exchange | overwrites the secret |
//!
//! Each answer is [kept](Action::Keep) durably before it is given. After a restart the server says what it has said again, and all
//! answers follow from the secret. An update that is trained and not hidden yet is hidden in the newest exchange of its round.

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod error;
mod lists;
mod plain;
mod state;

use std::sync::Arc;

use shared::id::{ClientId, RunId};
use shared::identity::SecretKey;
use shared::message::{SecureAnswer, SecureStep, ToServer};
use shared::secure::{Advertised, Exchange, Party, PartySecret, Sealed};
use shared::spec::{RunSpec, SecureAggregation};

use crate::failure::Failure;
use crate::store::Update;
use lists::{Decision, Neighbours};
use state::HiddenUpdate;

pub use error::Refused;
pub use plain::{Job, Masked, Plain, TrainedTask};
pub use state::State;

/// What the machine asks of the driver.
#[derive(Debug)]
pub enum Action {
    /// Replace the stored state of its run durably. If that fails, [drop](Masking::unload) the state, and carry out nothing more.
    Keep(State),
    /// Send an answer.
    Send(ToServer),
    /// Run this job on the threads that train, then report [`Masking::masked`].
    Mask(Job),
    /// Save the hidden update, and report it as trained.
    Save {
        /// The update.
        update: Box<Update>,
        /// What was trained.
        plain: Arc<Plain>,
        /// The devices among which it is hidden, as far as this one can tell.
        devices: usize,
    },
    /// Report that the round fails on this device, if it trains in it.
    Fail {
        /// The round.
        round: u32,
        /// Why.
        failure: Failure,
    },
    /// Warn the owner of the device: the server asks for what an honest one does not.
    Warn {
        /// The round.
        round: u32,
        /// What was refused.
        reason: String,
    },
}

/// What the server has said in an exchange.
#[derive(Debug, Default)]
struct Said {
    neighbours: Option<Neighbours>,
    /// What was answered to them. The server names them again with each further step.
    shares: Option<Vec<(ClientId, Sealed)>>,
    masking: Option<lists::Masking>,
    /// Whether the job of hiding the update runs.
    runs: bool,
    /// Why this device takes no further part in it.
    refused: Option<Failure>,
}

/// A device in the exchanges of its runs.
#[derive(Debug)]
pub struct Masking {
    client: ClientId,
    identity: Option<SecretKey>,
    /// The run whose state was loaded, and that state.
    loaded: Option<(RunId, Option<State>)>,
    /// What was said in that exchange.
    said: Said,
    /// The update that is not hidden yet.
    plain: Option<Arc<Plain>>,
}

impl Masking {
    /// A device; without a key it takes part in no exchange.
    #[must_use]
    pub fn new(client: ClientId, identity: Option<SecretKey>) -> Self {
        Self { client, identity, loaded: None, said: Said::default(), plain: None }
    }

    /// Whether the state of this run is to be [loaded](Self::load) first.
    #[must_use]
    pub fn wants(&self, run: RunId) -> bool {
        self.loaded.as_ref().is_none_or(|(loaded, _)| *loaded != run)
    }

    /// Takes the stored state of a run in.
    pub fn load(&mut self, run: RunId, state: Option<State>) {
        self.loaded = Some((run, state.filter(|state| state.run() == run)));
        self.said = Said::default();
    }

    /// Drops the state: what is stored may be another one.
    pub fn unload(&mut self) {
        self.loaded = None;
        self.said = Said::default();
        self.plain = None;
    }

    /// The task in training is not wanted any more, with its update.
    pub fn cancel(&mut self) {
        self.plain = None;
        self.said.runs = false;
    }

    /// Why an update of this round could not be hidden, as far as is known before it is trained.
    #[must_use]
    pub fn refusal(&self, run: RunId, round: u32) -> Option<Failure> {
        if self.identity.is_none() {
            return Some(Refused::NoKey.failure());
        }
        let exchange = self.state()?.exchange;
        self.said.refused.clone().filter(|_| (exchange.run, exchange.round) == (run, round))
    }

    /// Takes a step of the server in. `fresh` draws a secret from a source of randomness that nothing else has.
    pub fn step(
        &mut self,
        spec: &RunSpec,
        (round, attempt): (u32, u32),
        step: SecureStep,
        fresh: &mut dyn FnMut() -> Result<PartySecret, Failure>,
    ) -> Vec<Action> {
        let exchange = Exchange { run: spec.run, round, attempt };
        let Some(identity) = self.identity.clone().filter(|_| spec.secure.enabled) else { return Vec::new() };
        if self.wants(spec.run) {
            return Vec::new();
        }
        let newest = self.state().map(|state| state.exchange);
        if newest.is_some_and(|newest| newest > exchange) {
            return Vec::new();
        }
        if step == SecureStep::Advertise {
            return self.advertise(exchange, &identity, newest, fresh);
        }
        let Some(state) = self.state().filter(|state| state.exchange == exchange).cloned() else {
            return vec![Action::Fail { round, failure: Refused::Unknown.failure() }];
        };
        if self.said.refused.is_some() {
            return Vec::new();
        }
        let answered = match step {
            SecureStep::Advertise => Ok(Vec::new()),
            SecureStep::Neighbours { members, neighbours } if self.knows(members, &neighbours) => {
                let shares = self.said.shares.clone();
                Ok(shares.map(|shares| answer(exchange, SecureAnswer::Shares(shares))).into_iter().collect())
            }
            SecureStep::Neighbours { members, neighbours } => {
                let who = (exchange, self.client);
                let checked = Neighbours::check(who, &spec.secure, members, neighbours);
                checked.and_then(|neighbours| self.share(state, &spec.secure, neighbours))
            }
            SecureStep::Mask { rounding, present } => {
                let checked = self.neighbours("updates").and_then(|neighbours| {
                    lists::Masking::check(neighbours, &spec.secure, rounding, present)
                });
                checked.and_then(|masking| self.mask(&state, masking))
            }
            // What the device has sent stays as it is.
            SecureStep::Reveal { counted, missing } => {
                return self
                    .reveal(state, &spec.secure, (&counted, &missing))
                    .unwrap_or_else(|refused| vec![Action::Warn { round, reason: refused.to_string() }]);
            }
        };
        answered.unwrap_or_else(|refused| self.refuse(round, &refused))
    }

    /// The task has brought an update.
    pub fn trained(&mut self, plain: Plain) -> Vec<Action> {
        let TrainedTask { spec, round, .. } = plain.task();
        if let Some(failure) = self.refusal(spec.run, *round) {
            return vec![Action::Fail { round: *round, failure }];
        }
        self.plain = Some(Arc::new(plain));
        self.hide()
    }

    /// A job has ended. Its result is dropped if it is of no use any more.
    pub fn masked(&mut self, masked: Masked) -> Vec<Action> {
        let Masked { exchange, asked, devices, outcome } = masked;
        let wanted = self.said.masking.as_ref().is_some_and(|masking| masking.digest == asked);
        let current = self.state().filter(|state| state.exchange == exchange && wanted).cloned();
        let Some((mut state, plain)) = current.zip(self.plain.clone()) else { return Vec::new() };
        self.said.runs = false;
        let (update, digest) = match outcome {
            Ok(hidden) => hidden,
            Err(failure) => return self.fail(exchange.round, failure),
        };
        let hidden = HiddenUpdate { asked, update: digest };
        let mut actions = Vec::new();
        match state.hidden {
            Some(before) if before != hidden => return self.refuse(exchange.round, &Refused::OtherUpdate),
            Some(_) => {}
            None => {
                state.hidden = Some(hidden);
                actions.push(self.keep(state));
            }
        }
        self.plain = None;
        actions.push(Action::Save { update, plain, devices });
        actions
    }

    /// The round is over for this device: its receipt is here. The secret is of no use any more, except to whom it must not reach.
    pub fn over(&mut self, round: u32) -> Vec<Action> {
        match self.state().filter(|state| state.round() == round && !state.is_over()).cloned() {
            Some(state) => vec![self.keep(state.over())],
            None => Vec::new(),
        }
    }

    /// Begins an exchange, or says again how it began.
    fn advertise(
        &mut self,
        exchange: Exchange,
        identity: &SecretKey,
        newest: Option<Exchange>,
        fresh: &mut dyn FnMut() -> Result<PartySecret, Failure>,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        if newest != Some(exchange) {
            let used = self.state().is_some_and(|state| {
                state.exchange.round == exchange.round && (state.hidden.is_some() || state.revealed.is_some())
            });
            if used {
                // Two sums of one round, with and without a device, differ by its update.
                let refused = Refused::Second { asked: "an exchange of keys" };
                return vec![Action::Warn { round: exchange.round, reason: refused.to_string() }];
            }
            let noise = self.state().map(|state| state.noise);
            let drawn = fresh().and_then(|secret| Ok((secret, noise.map_or_else(fresh, Ok)?)));
            let (secret, noise) = match drawn {
                Ok(drawn) => drawn,
                Err(failure) => return vec![Action::Fail { round: exchange.round, failure }],
            };
            self.said = Said::default();
            actions.push(self.keep(State::new(exchange, secret, noise)));
        }
        let keys = self.party().map(|party| party.advertise(identity));
        actions.extend(keys.map(|keys| answer(exchange, SecureAnswer::Keys(keys))));
        actions
    }

    /// Whether these neighbours were checked, and have shares, since the process began.
    fn knows(&self, members: u32, neighbours: &[Advertised]) -> bool {
        let known = self.said.neighbours.as_ref().filter(|_| self.said.shares.is_some());
        known.is_some_and(|known| known.digest == lists::digest_of(members, neighbours))
    }

    /// Shares the secrets with neighbours that were checked.
    fn share(
        &mut self,
        mut state: State,
        settings: &SecureAggregation,
        neighbours: Neighbours,
    ) -> Result<Vec<Action>, Refused> {
        if state.neighbours.is_some_and(|before| before != neighbours.digest) {
            return Err(Refused::Second { asked: "shares of this device's secrets" });
        }
        let exchange = state.exchange;
        let party = Party::new(exchange, self.client, state.secret);
        let shares = party.shares(&neighbours.said, settings.threshold)?;
        let mut actions = Vec::new();
        if state.neighbours.is_none() {
            state.neighbours = Some(neighbours.digest);
            actions.push(self.keep(state));
        }
        (self.said.neighbours, self.said.shares) = (Some(neighbours), Some(shares.clone()));
        actions.push(answer(exchange, SecureAnswer::Shares(shares)));
        Ok(actions)
    }

    /// Takes note of how the update is to be hidden.
    fn mask(&mut self, state: &State, masking: lists::Masking) -> Result<Vec<Action>, Refused> {
        if state.hidden.is_some_and(|hidden| hidden.asked != masking.digest) {
            return Err(Refused::Second { asked: "this device's update" });
        }
        if self.said.masking.as_ref().is_none_or(|before| before.digest != masking.digest) {
            (self.said.masking, self.said.runs) = (Some(masking), false);
        }
        Ok(self.hide())
    }

    /// Hides the update, if it is there and it is known how.
    fn hide(&mut self) -> Vec<Action> {
        let Some((state, plain)) = self.state().zip(self.plain.clone()) else { return Vec::new() };
        let State { exchange, secret, noise, .. } = *state;
        if (plain.id().run, plain.id().round) != (exchange.run, exchange.round) || self.said.runs {
            return Vec::new();
        }
        if state.revealed.is_some() && state.hidden.is_none() {
            return self.refuse(exchange.round, &Refused::Decided);
        }
        let said = self.said.neighbours.as_ref().zip(self.said.masking.as_ref());
        let Some((neighbours, masking)) = said else { return Vec::new() };
        let with = masking.said(neighbours).copied().collect();
        let (rounding, asked) = (masking.rounding, masking.digest);
        self.said.runs = true;
        vec![Action::Mask(Job { plain, exchange, secret, noise, with, rounding, asked })]
    }

    /// Reveals one share of each neighbour.
    fn reveal(
        &mut self,
        mut state: State,
        settings: &SecureAggregation,
        lists: (&[ClientId], &[ClientId]),
    ) -> Result<Vec<Action>, Refused> {
        let neighbours = self.neighbours("shares")?;
        let masking = self.said.masking.as_ref().ok_or(Refused::Order { asked: "shares" })?;
        let decision = Decision::check(neighbours, masking, settings, lists)?;
        if state.revealed.is_some_and(|before| before != decision.digest) {
            return Err(Refused::Second { asked: "shares of other devices' secrets" });
        }
        let exchange = state.exchange;
        let party = Party::new(exchange, self.client, state.secret);
        let mut shares = vec![(self.client, party.own_share(neighbours.said.len(), settings.threshold))];
        for said in masking.said(neighbours) {
            let client = said.client();
            let sealed = masking.present.get(&client);
            // The others hold shares of that device as well.
            let Some(Ok([own, key])) = sealed.map(|sealed| party.open(said, sealed)) else { continue };
            shares.push((client, if decision.counted.contains(&client) { own } else { key }));
        }
        let mut actions = Vec::new();
        if state.revealed.is_none() {
            state.revealed = Some(decision.digest);
            actions.push(self.keep(state));
        }
        actions.push(answer(exchange, SecureAnswer::Revealed(shares)));
        Ok(actions)
    }

    /// Takes no further part in the exchange.
    fn refuse(&mut self, round: u32, refused: &Refused) -> Vec<Action> {
        let warning = refused.is_suspicious().then(|| Action::Warn { round, reason: refused.to_string() });
        // What was hidden before is sent, and revealed with the others.
        let over = self.state().is_some_and(|state| state.hidden.is_some()) && self.plain.is_none();
        let failed = if over { Vec::new() } else { self.fail(round, refused.failure()) };
        warning.into_iter().chain(failed).collect()
    }

    fn fail(&mut self, round: u32, failure: Failure) -> Vec<Action> {
        self.said.refused = Some(failure.clone());
        self.plain = None;
        vec![Action::Fail { round, failure }]
    }

    /// Replaces the state, here and in the store.
    fn keep(&mut self, state: State) -> Action {
        self.loaded = Some((state.run(), Some(state.clone())));
        Action::Keep(state)
    }

    fn state(&self) -> Option<&State> {
        self.loaded.as_ref()?.1.as_ref()
    }

    fn party(&self) -> Option<Party> {
        self.state().map(|state| Party::new(state.exchange, self.client, state.secret))
    }

    fn neighbours(&self, asked: &'static str) -> Result<&Neighbours, Refused> {
        self.said.neighbours.as_ref().ok_or(Refused::Order { asked })
    }
}

fn answer(exchange: Exchange, answer: SecureAnswer) -> Action {
    let Exchange { round, attempt, .. } = exchange;
    Action::Send(ToServer::Secure { round, attempt, answer: Box::new(answer) })
}

#[cfg(test)]
mod tests;
