//! An open round: its cohort, the state of each member, and when it may close.

mod closing;
mod exchange;
mod members;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use shared::eligibility::Ineligible;
use shared::id::ClientId;
use shared::message::{Discard, Rejection, SecureStep, TrainReport, Verdict};
use shared::secure::Exchange;
use shared::spec::RunSpec;

use super::{Opening, OutstandingTask, Reopened};
use crate::names::called;
use crate::round::RoundPolicy;

pub(super) use closing::{Next, Otherwise, Stragglers};
pub use exchange::MAX_ATTEMPTS;
pub(super) use exchange::{KeyExchange, Moved, Phase};
use members::{Kind, Members};

/// Delay after which a member that was not eligible to train is asked again, if the round needs it.
pub const INELIGIBLE_RETRY: Duration = Duration::from_mins(1);

/// The state of a member of the cohort.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum MemberState {
    /// It is in the cohort; the opening is not durable yet.
    Drawn,
    /// The task was sent, or will be when the client reconnects.
    Asked,
    /// Its update is being checked and folded.
    Folding,
    /// Its update was accepted.
    Accepted,
    /// Its update was rejected, for this reason.
    Rejected(String),
    /// It could not train, for this reason.
    Failed(String),
    /// It is not eligible to train, for this reason. From this moment on it may be asked again.
    NotNow(Ineligible, Duration),
    /// It was decided to close the round without its update, before a restart or where updates are hidden; or it was not there while
    /// keys were exchanged.
    Missed,
    /// The client was revoked.
    Gone,
}

/// The answer to an offered update.
#[derive(Debug, PartialEq)]
pub(super) enum Offer {
    /// Fold it.
    Fold,
    /// Drop it: the member's first update is being folded, and its receipt serves both.
    Again,
    /// Keep it for the next round that opens.
    Wait,
    /// Drop it and send this verdict.
    Settled(Verdict),
}

#[derive(Debug)]
pub(super) struct OpenRound {
    /// How it opened, with the members that have joined since.
    pub(super) opening: Opening,
    /// The policy of a round with this work.
    policy: RoundPolicy,
    /// The members of the cohort.
    stages: Members,
    /// Those whose late updates are being folded, accepted or rejected; none is a member of the cohort.
    late: Members,
    /// The rounds that these were trained in.
    late_of: BTreeMap<ClientId, u32>,
    opened: Duration,
    /// Start of the current `timeout` window; moves when replacements join.
    window: Duration,
    /// Until then, members that are away are waited for even after `min-wait`: they were disconnected by a restart of this
    /// machine.
    grace_until: Duration,
    /// `timeout` went by with fewer than `min-updates` updates.
    short_handed: bool,
    pub(super) rejected: usize,
    pub(super) discarded: usize,
    /// How members hide their updates, if they do.
    pub(super) exchange: Option<KeyExchange>,
    /// Whose hidden updates count, where an earlier process has decided that.
    bound: Option<BTreeSet<ClientId>>,
    /// Of updates that were accepted and count only when the round has closed.
    pub(super) fingerprints: BTreeMap<ClientId, u32>,
}

impl OpenRound {
    pub(super) fn new(opening: Opening, policy: RoundPolicy, spec: &RunSpec, now: Duration) -> Self {
        let mut policy = policy.of(opening.work);
        if policy.poisson.is_some() {
            // A round that counts only with enough updates would tell the readers of its model that there were enough.
            policy.min = 0;
        }
        let mut stages = Members::default();
        opening.cohort.keys().for_each(|client| stages.set(*client, MemberState::Drawn));
        let first = Exchange { run: spec.run, round: opening.round, attempt: opening.exchange };
        Self {
            exchange: spec.secure.of(opening.work).map(|secure| KeyExchange::new(secure, first, now)),
            fingerprints: BTreeMap::new(),
            bound: None,
            policy,
            stages,
            opening,
            late: Members::default(),
            late_of: BTreeMap::new(),
            opened: now,
            window: now,
            grace_until: now,
            short_handed: false,
            rejected: 0,
            discarded: 0,
        }
    }

    /// A round that was open before a restart. Members that are no longer `known` were revoked.
    pub(super) fn resume(
        reopened: Reopened,
        known: impl Fn(&ClientId) -> bool,
        policy: RoundPolicy,
        spec: &RunSpec,
        now: Duration,
    ) -> Self {
        let decided = reopened.decided().map(|closing| closing.tally);
        let mut round = Self::new(reopened.opening, policy, spec, now);
        round.fingerprints = reopened.fingerprints;
        if let (Some(secure), Some(agreement)) = (spec.secure.of(round.opening.work), reopened.agreement) {
            let exchange = Exchange { run: spec.run, round: round.opening.round, attempt: 0 };
            let phase = decided.map_or(Phase::Agreed, Phase::Revealing);
            let mut resumed = KeyExchange::resume(secure, exchange, agreement, phase);
            if decided.is_some() {
                resumed.deadline = now + round.policy.timeout;
            }
            round.exchange = Some(resumed);
        }
        round.grace_until = now + policy.reconnect_grace;
        reopened.late.keys().for_each(|client| round.late.set(*client, MemberState::Accepted));
        round.late_of = reopened.late;
        let decided = reopened.closing.map(|closing| closing.contributors);
        let takes_part = |client: &ClientId| {
            let agreed = round.exchange.as_ref().filter(|exchange| !exchange.is_open());
            agreed.is_none_or(|exchange| exchange.takes_part(*client))
        };
        let members: Vec<_> = round.stages().map(|(client, _)| (client, takes_part(&client))).collect();
        for (client, takes_part) in members {
            let decided_without =
                decided.as_ref().is_some_and(|contributors| !contributors.contains(&client));
            let stage = if decided_without {
                MemberState::Missed
            } else if reopened.accepted.contains(&client) {
                MemberState::Accepted
            } else if !takes_part {
                MemberState::Missed
            } else if !known(&client) {
                MemberState::Gone
            } else {
                MemberState::Asked
            };
            round.stages.set(client, stage);
        }
        round.bound = decided.filter(|_| round.exchange.is_some());
        round
    }

    /// Whether an earlier process has decided that other updates count: devices may have revealed secrets for those, and do so for no
    /// others.
    pub(super) fn is_bound_otherwise(&self) -> bool {
        let accepted = self.stages().filter(|(_, stage)| **stage == MemberState::Accepted);
        self.bound.as_ref().is_some_and(|bound| !accepted.map(|(client, _)| client).eq(bound.iter().copied()))
    }

    /// Shifts all its times by `by`. What has begun meanwhile has lost less: it begins at `now`.
    pub(super) fn postpone(&mut self, now: Duration, by: Duration) {
        for began in [&mut self.opened, &mut self.window] {
            *began = (*began + by).min(now);
        }
        if let Some(exchange) = &mut self.exchange {
            exchange.deadline = exchange.deadline.saturating_add(by).min(now + self.policy.timeout);
        }
        self.grace_until += by;
    }

    /// Members that are away are waited for until then.
    pub(super) fn wait_for_those_away(&mut self, until: Duration) {
        self.grace_until = until;
    }

    /// Whether an update that the client has trained for this round was rejected for what it is.
    pub(super) fn has_rejected(&self, client: ClientId, round: u32) -> bool {
        let late = self.late_of.get(&client) == Some(&round);
        let stage = if late { self.late.get(client) } else { self.stages.get(client) };
        (late || round == self.number()) && matches!(stage, Some(MemberState::Rejected(_)))
    }

    /// Whether devices hear that an update was accepted only when the round has closed.
    pub(super) fn receipts_wait(&self) -> bool {
        self.exchange.is_some() || self.policy.receipts_at_close
    }

    pub(super) fn number(&self) -> u32 {
        self.opening.round
    }

    pub(super) fn opened(&self) -> Duration {
        self.opened
    }

    pub(super) fn stage(&self, client: ClientId) -> Option<&MemberState> {
        self.stages.get(client)
    }

    pub(super) fn stages(&self) -> impl Iterator<Item = (ClientId, &MemberState)> {
        self.stages.iter()
    }

    pub(super) fn cohort_len(&self) -> usize {
        self.stages.len()
    }

    /// The opening is durable: returns the members that are to be asked now.
    pub(super) fn ask(&mut self) -> Vec<ClientId> {
        self.stages.set_all(&MemberState::Asked, |_, stage| *stage == MemberState::Drawn)
    }

    /// Whether a client with `samples` samples may join: the sums' scale was chosen for the largest client on the roster.
    pub(super) fn fits_scale(&self, samples: u64) -> bool {
        self.opening.roster.values().any(|&known| known >= samples)
    }

    pub(super) fn extend(&mut self, recruits: impl IntoIterator<Item = (ClientId, u64)>) {
        for (client, samples) in recruits {
            self.opening.cohort.insert(client, samples);
            self.stages.set(client, MemberState::Drawn);
        }
    }

    /// Replacements were recruited, which get as much time as the first members.
    pub(super) fn begin_anew(&mut self, now: Duration) {
        self.short_handed |= self.is_overdue(now);
        self.window = now;
    }

    /// Whether `timeout` is over a second time with fewer than `min-updates` updates.
    pub(super) fn is_short_handed(&self, now: Duration) -> bool {
        self.short_handed && self.is_overdue(now)
    }

    /// No replacement can be recruited: when `timeout` is over, wait for another `timeout`.
    pub(super) fn look_again(&mut self, now: Duration) {
        if self.is_overdue(now) {
            self.short_handed = true;
            self.window = now;
        }
    }

    /// Judges the update of a client. `used` maps the number of a client's samples to the number that it trains on in this round.
    pub(super) fn offer(
        &mut self,
        client: ClientId,
        report: &TrainReport,
        used: impl Fn(u64) -> u64,
    ) -> Offer {
        let round = self.number();
        let (Some(stage), Some(&samples)) = (self.stages.get(client), self.opening.cohort.get(&client))
        else {
            return Offer::Settled(Verdict::Rejected(Rejection::NotInCohort { round }));
        };
        let hidden = self.exchange.as_ref();
        if hidden.is_some_and(|exchange| !exchange.takes_part(client)) && *stage != MemberState::Missed {
            // No member was told to send one yet.
            return Offer::Settled(Verdict::Rejected(Rejection::NotInCohort { round }));
        }
        match stage {
            MemberState::Drawn | MemberState::Asked | MemberState::Failed(_) | MemberState::NotNow(..) => {}
            MemberState::Folding => return Offer::Again,
            MemberState::Accepted | MemberState::Rejected(_) => {
                return Offer::Settled(Verdict::Discarded(Discard::Duplicate));
            }
            MemberState::Missed | MemberState::Gone => {
                return Offer::Settled(Verdict::Discarded(Discard::Late));
            }
        }
        let (judged, offer) = judged(report, used(samples));
        self.stages.set(client, judged);
        offer
    }

    /// Judges a late update for an outstanding task. `used` is as in [`offer`](Self::offer), for the round of the task.
    pub(super) fn offer_late(
        &mut self,
        client: ClientId,
        owed: OutstandingTask,
        report: &TrainReport,
        used: impl Fn(u64) -> u64,
    ) -> Offer {
        match self.late.get(client) {
            Some(MemberState::Folding) => return Offer::Again,
            Some(_) => return Offer::Settled(Verdict::Discarded(Discard::Duplicate)),
            None => {}
        }
        // A member of the cohort has a newer task, and the sums' scale holds for the roster alone.
        let expected = self.opening.roster.contains_key(&client) && self.stages.get(client).is_none();
        if !self.opening.work.train || !expected || !self.fits_scale(owed.samples) {
            return Offer::Settled(Verdict::Discarded(Discard::Late));
        }
        let (stage, offer) = judged(report, used(owed.samples));
        self.late.set(client, stage);
        self.late_of.insert(client, owed.round);
        offer
    }

    /// Whether a late update of this client has arrived.
    pub(super) fn has_late(&self, client: ClientId) -> bool {
        self.late.get(client).is_some()
    }

    /// Members that were asked and have not answered.
    pub(super) fn asked(&self) -> &BTreeSet<ClientId> {
        self.stages.asked()
    }

    /// Whether the update of a member was accepted.
    pub(super) fn has_accepted(&self, client: ClientId) -> bool {
        self.stages.get(client) == Some(&MemberState::Accepted)
    }

    /// The round in which a client has trained the update that was accepted of it.
    pub(super) fn accepted_of(&self, client: ClientId) -> Option<u32> {
        match self.late.get(client) {
            Some(MemberState::Accepted) => self.late_of.get(&client).copied(),
            _ => self.has_accepted(client).then_some(self.number()),
        }
    }

    /// No update counts any more but those that were accepted, or none of these members: their updates would be of no use.
    pub(super) fn miss(&mut self, which: impl Fn(ClientId) -> bool) {
        self.stages.set_all(&MemberState::Missed, |client, stage| {
            !matches!(stage, MemberState::Accepted | MemberState::Gone) && which(client)
        });
    }

    /// What a member is told about the exchange of keys.
    pub(super) fn secure_steps(&self, client: ClientId, spec: &RunSpec) -> Vec<SecureStep> {
        let Some(exchange) = &self.exchange else { return Vec::new() };
        let rounding = self.opening.rounding(spec, self.policy.max_abs);
        exchange.steps(client, rounding, |client| self.has_accepted(client))
    }

    /// Counts a verdict that was given without folding.
    pub(super) fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Accepted => {}
            Verdict::Rejected(_) => self.rejected += 1,
            Verdict::Discarded(_) => self.discarded += 1,
        }
    }

    /// Records the outcome of folding; returns the round that the update was trained in.
    pub(super) fn settled(&mut self, client: ClientId, verdict: &Verdict) -> u32 {
        self.count(verdict);
        let settled = match verdict {
            Verdict::Accepted => MemberState::Accepted,
            Verdict::Rejected(rejection) => MemberState::Rejected(rejection.to_string()),
            Verdict::Discarded(discard) => MemberState::Rejected(discard.to_string()),
        };
        if let Some(trained) = self.late_of.get(&client) {
            self.late.set(client, settled);
            return *trained;
        }
        self.change(client, |_| true, settled);
        self.number()
    }

    /// Changes the state of a member if it is one of those that `from` names.
    fn change(&mut self, client: ClientId, from: fn(&MemberState) -> bool, to: MemberState) {
        if self.stages.get(client).is_some_and(from) {
            self.stages.set(client, to);
        }
    }

    /// The update of a member was lost before it was accepted.
    pub(super) fn lost(&mut self, client: ClientId) {
        if self.late.get(client) == Some(&MemberState::Folding) {
            self.late.remove(client);
            self.late_of.remove(&client);
        }
        self.change(client, |stage| *stage == MemberState::Folding, MemberState::Asked);
    }

    pub(super) fn failed(&mut self, client: ClientId, reason: String) {
        self.change(client, |stage| *stage == MemberState::Asked, MemberState::Failed(reason));
    }

    pub(super) fn not_now(&mut self, client: ClientId, reason: Ineligible, now: Duration) {
        let not_now = MemberState::NotNow(reason, now + INELIGIBLE_RETRY);
        self.change(client, |stage| *stage == MemberState::Asked, not_now);
    }

    /// A client was revoked: its update is no longer awaited. One that is being folded or was accepted counts.
    pub(super) fn revoked(&mut self, client: ClientId) {
        let awaited = |stage: &MemberState| {
            matches!(stage, MemberState::Drawn | MemberState::Asked | MemberState::NotNow(..))
        };
        self.change(client, awaited, MemberState::Gone);
    }

    /// A member was disconnected. One that was not eligible is asked again when it reconnects.
    pub(super) fn away(&mut self, client: ClientId) {
        self.change(client, |stage| matches!(stage, MemberState::NotNow(..)), MemberState::Asked);
    }

    pub(super) fn accepted(&self) -> usize {
        self.stages.count(Kind::Accepted) + self.late.count(Kind::Accepted)
    }

    /// Why updates were not accepted, for the operator.
    pub(super) fn reasons(&self) -> Vec<String> {
        self.stages()
            .chain(self.late.iter())
            .filter_map(|(client, stage)| match stage {
                MemberState::Rejected(reason) => Some(format!("{}: rejected: {reason}", called(client))),
                MemberState::Failed(reason) => Some(format!("{}: failed: {reason}", called(client))),
                _ => None,
            })
            .collect()
    }
}

/// Judges an update by its report. The client should have trained on `declared` samples.
fn judged(report: &TrainReport, declared: u64) -> (MemberState, Offer) {
    let rejection = if report.samples != declared {
        Rejection::Samples { declared, reported: report.samples }
    } else if !report.loss.is_finite() || report.loss < 0.0 {
        Rejection::Loss { loss: report.loss }
    } else {
        return (MemberState::Folding, Offer::Fold);
    };
    (MemberState::Rejected(rejection.to_string()), Offer::Settled(Verdict::Rejected(rejection)))
}
