//! The exchange of keys in a round whose updates are hidden: [secure aggregation](shared::secure) as the server sees it.
//!
//! | in | on | goes to |
//! |---|---|---|
//! | `Keys` | all members have sent keys, or enough have and patience is over | `Shares`: it is known who is whose neighbour |
//! | `Shares` | all of them have sent shares, or enough have and patience is over | `Storing`: it is known who takes part |
//! | `Shares` | patience is over, and too few have sent shares | `Keys` of the next attempt |
//! | `Storing` | the agreement is durable | `Agreed`: members send masked updates |
//! | `Agreed` | the round may close | `Deciding` whose updates count |
//! | `Deciding` | that is durable | `Revealing` |
//! | `Revealing` | for every member enough holders have revealed its one secret | the round closes |
//! | `Revealing` | `round.timeout` is over | the round is void: nothing was learned |

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use shared::id::ClientId;
use shared::message::{Rounding, SecureStep};
use shared::secure::{Advertised, Exchange, Sealed, Share, Values, graph};
use shared::seed::Seed;
use shared::spec::SecureAggregation;

use super::super::event::{Agreement, Revealed};
use crate::round::Tally;

/// Attempts of one life of the server: after as many exchanges that too few have stayed in, the round is void.
pub const MAX_ATTEMPTS: u32 = 8;

/// How long further answers are waited for, once there are enough.
const FURTHER_ANSWERS: Duration = Duration::from_secs(2);

/// How far an exchange is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::coordinator) enum Phase {
    Keys,
    Shares,
    Storing,
    Agreed,
    Deciding(Tally),
    Revealing(Tally),
}

/// The exchange of keys of a round.
#[derive(Debug)]
pub(in crate::coordinator) struct KeyExchange {
    policy: SecureAggregation,
    exchange: Exchange,
    pub(in crate::coordinator) phase: Phase,
    /// Until then, silent members are waited for; while secrets are revealed, until the round is given up.
    pub(in crate::coordinator) deadline: Duration,
    /// Attempts of this life of the server.
    attempts: u32,
    agreement: Agreement,
    /// Who has revealed, and what of whom.
    answered: BTreeSet<ClientId>,
    revealed: Revealed,
    /// Since when every secret can be put together.
    enough_since: Option<Duration>,
}

/// What is to be done now that an exchange has moved on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::coordinator) enum Moved {
    /// Tell the members what the phase asks for.
    Tell,
    /// Make the agreement durable.
    Store,
    /// Give the round up: too few members have stayed, again and again.
    Failed,
}

impl KeyExchange {
    pub(super) fn new(policy: SecureAggregation, exchange: Exchange, now: Duration) -> Self {
        Self {
            policy,
            agreement: Agreement { attempt: exchange.attempt, ..Agreement::default() },
            exchange,
            phase: Phase::Keys,
            deadline: now + policy.patience(),
            attempts: 1,
            answered: BTreeSet::new(),
            revealed: Revealed::new(),
            enough_since: None,
        }
    }

    /// The exchange that an earlier process has made durable.
    pub(super) fn resume(
        policy: SecureAggregation,
        exchange: Exchange,
        agreement: Agreement,
        phase: Phase,
    ) -> Self {
        let exchange = Exchange { attempt: agreement.attempt, ..exchange };
        Self {
            phase,
            agreement,
            ..Self::new(policy, exchange, Duration::MAX.saturating_sub(policy.patience()))
        }
    }

    pub(in crate::coordinator) fn attempt(&self) -> u32 {
        self.exchange.attempt
    }

    /// Whether members may still join.
    pub(in crate::coordinator) fn is_open(&self) -> bool {
        self.phase == Phase::Keys
    }

    /// Whether it is decided whose updates count.
    pub(in crate::coordinator) fn is_decided(&self) -> bool {
        matches!(self.phase, Phase::Deciding(_) | Phase::Revealing(_))
    }

    /// What is made durable.
    pub(in crate::coordinator) fn agreement(&self) -> &Agreement {
        &self.agreement
    }

    /// Whether a client may send an update.
    pub(in crate::coordinator) fn takes_part(&self, client: ClientId) -> bool {
        matches!(self.phase, Phase::Agreed | Phase::Deciding(_) | Phase::Revealing(_))
            && self.agreement.sealed.contains_key(&client)
    }

    /// Whether the phase waits for an answer of this member.
    pub(in crate::coordinator) fn awaits(&self, client: ClientId) -> bool {
        match self.phase {
            Phase::Keys => !self.agreement.advertised.contains_key(&client),
            Phase::Shares => {
                self.agreement.advertised.contains_key(&client)
                    && !self.agreement.sealed.contains_key(&client)
            }
            Phase::Revealing(_) => !self.answered.contains(&client),
            Phase::Storing | Phase::Agreed | Phase::Deciding(_) => false,
        }
    }

    /// How many have answered in this phase.
    pub(in crate::coordinator) fn answers(&self) -> usize {
        match self.phase {
            Phase::Keys => self.agreement.advertised.len(),
            Phase::Revealing(_) => self.answered.len(),
            _ => self.agreement.sealed.len(),
        }
    }

    /// A member says its keys. Says whether they are its own, and for this exchange.
    pub(in crate::coordinator) fn keys(&mut self, client: ClientId, said: Advertised) -> bool {
        if self.phase == Phase::Keys {
            let genuine = said.client() == client && said.is_genuine(self.exchange);
            if genuine {
                self.agreement.advertised.entry(client).or_insert(said);
            }
            return genuine;
        }
        true
    }

    /// A member sends its shares. Says whether there is one for each of its neighbours.
    pub(in crate::coordinator) fn shares(
        &mut self,
        client: ClientId,
        shares: Vec<(ClientId, Sealed)>,
    ) -> bool {
        let Some(neighbours) = self.agreement.neighbours.get(&client) else { return true };
        if self.phase != Phase::Shares {
            return true;
        }
        let count = shares.len();
        let shares: BTreeMap<_, _> = shares.into_iter().collect();
        let complete = count == neighbours.len() && shares.keys().eq(neighbours);
        if complete {
            self.agreement.sealed.entry(client).or_insert(shares);
        }
        complete
    }

    /// A member that counts reveals what it was asked for. What it does not have, since it does not open, others do.
    pub(in crate::coordinator) fn reveals(&mut self, client: ClientId, shares: &[(ClientId, Values)]) {
        if !matches!(self.phase, Phase::Revealing(_)) || !self.answered.insert(client) {
            return;
        }
        let mut named = BTreeSet::new();
        for &(of, values) in shares {
            let takes_part = self.agreement.sealed.contains_key(&of);
            let Some(at) = self.place(of, client).filter(|_| takes_part && named.insert(of)) else {
                continue;
            };
            self.revealed.entry(of).or_default().push(Share { at, values });
        }
    }

    /// The place of the share that `holder` has of the secrets of `of`: its own is the first, and its neighbours' follow.
    fn place(&self, of: ClientId, holder: ClientId) -> Option<u8> {
        if of == holder {
            return Some(1);
        }
        let neighbours = self.agreement.neighbours.get(&of)?;
        u8::try_from(neighbours.binary_search(&holder).ok()? + 2).ok()
    }

    /// Whether every secret that is needed can be put together, and all have answered that are there, or had the time to: with more
    /// answers than are needed a wrong one is found out.
    pub(in crate::coordinator) fn is_revealed(&mut self, now: Duration, waited_for: bool) -> bool {
        if !self.can_be_revealed() {
            return false;
        }
        let since = *self.enough_since.get_or_insert(now);
        !waited_for || now >= since + FURTHER_ANSWERS
    }

    /// When further answers are not waited for any more.
    pub(in crate::coordinator) fn due(&self) -> Duration {
        self.enough_since.map_or(self.deadline, |since| self.deadline.min(since + FURTHER_ANSWERS))
    }

    fn can_be_revealed(&self) -> bool {
        let enough = |client: &ClientId| {
            self.revealed.get(client).map_or(0, Vec::len) >= self.agreement.threshold(*client, &self.policy)
        };
        self.agreement.sealed.keys().all(enough)
    }

    /// What was revealed.
    pub(in crate::coordinator) fn take_revealed(&mut self) -> Revealed {
        std::mem::take(&mut self.revealed)
    }

    /// Moves on where the phase has what it waits for. `pending` are the members of the cohort that may still answer, and `least` is the
    /// number of members that must stay.
    pub(in crate::coordinator) fn advance(
        &mut self,
        now: Duration,
        least: usize,
        pending: &[ClientId],
        seed: &Seed,
    ) -> Option<Moved> {
        let over = now >= self.deadline;
        let waits = pending.iter().any(|client| self.awaits(*client));
        match self.phase {
            Phase::Keys => {
                let ready = self.agreement.advertised.len() >= least.max(2);
                if !ready || !over && waits {
                    return None;
                }
                self.draw_neighbours(seed);
                (self.phase, self.deadline) = (Phase::Shares, now + self.policy.patience());
                Some(Moved::Tell)
            }
            Phase::Shares => {
                if !over && waits {
                    return None;
                }
                self.drop_lonely();
                if self.agreement.sealed.len() >= least {
                    self.phase = Phase::Storing;
                    return Some(Moved::Store);
                }
                if self.attempts >= MAX_ATTEMPTS {
                    return Some(Moved::Failed);
                }
                let exchange = Exchange { attempt: self.exchange.attempt + 1, ..self.exchange };
                *self = Self { attempts: self.attempts + 1, ..Self::new(self.policy, exchange, now) };
                Some(Moved::Tell)
            }
            Phase::Storing | Phase::Agreed | Phase::Deciding(_) | Phase::Revealing(_) => None,
        }
    }

    fn draw_neighbours(&mut self, seed: &Seed) {
        let seed = seed.derive_numbered("neighbours", u64::from(self.exchange.round));
        let seed = seed.derive_numbered("attempt", u64::from(self.exchange.attempt));
        let members: Vec<ClientId> = self.agreement.advertised.keys().copied().collect();
        let degree = self.policy.degree(members.len());
        let graph = graph::neighbours(members.len(), degree, &seed);
        let named = |places: Vec<usize>| places.into_iter().map(|place| members[place]).collect();
        self.agreement.neighbours = members.iter().copied().zip(graph.into_iter().map(named)).collect();
    }

    /// Leaves members out whose secrets too few of the others hold.
    fn drop_lonely(&mut self) {
        loop {
            let Agreement { neighbours, sealed, .. } = &self.agreement;
            let lonely = sealed.keys().find(|client| {
                let holders =
                    neighbours[client].iter().filter(|neighbour| sealed.contains_key(neighbour)).count();
                holders + 1 < self.agreement.threshold(**client, &self.policy)
            });
            let Some(lonely) = lonely.copied() else { return };
            self.agreement.sealed.remove(&lonely);
        }
    }

    /// What a member is told, now or when it comes back: what it needs to answer what it is asked for last.
    pub(in crate::coordinator) fn steps(
        &self,
        client: ClientId,
        rounding: Rounding,
        counts: impl Fn(ClientId) -> bool,
    ) -> Vec<SecureStep> {
        let Agreement { advertised, neighbours, sealed, .. } = &self.agreement;
        if matches!(self.phase, Phase::Revealing(_)) && !counts(client) {
            return Vec::new();
        }
        if self.phase == Phase::Keys {
            return vec![SecureStep::Advertise];
        }
        let Some(near) = neighbours.get(&client) else { return Vec::new() };
        let said = near.iter().filter_map(|neighbour| advertised.get(neighbour).copied()).collect();
        let mut steps = vec![SecureStep::Neighbours { members: advertised.len() as u32, neighbours: said }];
        if !self.takes_part(client) {
            return if matches!(self.phase, Phase::Shares) { steps } else { Vec::new() };
        }
        let for_client = |from: &ClientId| Some((*from, *sealed.get(from)?.get(&client)?));
        let present: Vec<_> = near.iter().filter_map(for_client).collect();
        let (counted, missing) = present.iter().map(|(from, _)| *from).partition(|from| counts(*from));
        steps.push(SecureStep::Mask { rounding, present });
        if matches!(self.phase, Phase::Revealing(_)) && self.awaits(client) && counts(client) {
            steps.push(SecureStep::Reveal { counted, missing });
        }
        steps
    }
}
