//! One open round: its cohort, what became of each member, and when it may close.

mod closing;

use std::collections::BTreeMap;
use std::time::Duration;

use shared::eligibility::Ineligible;
use shared::id::ClientId;
use shared::message::{Discard, Rejection, TaskKind, TrainReport, Verdict};

use super::{Opening, Owed, Reopened};
use crate::round::RoundPolicy;

pub(super) use closing::{Behind, Next, Otherwise};

/// So long after it said that it was not in a state to train, a member is asked again if the round needs it.
pub const ASK_AGAIN: Duration = Duration::from_secs(60);

/// What became of a member so far.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Stage {
    /// In the cohort, the opening is not durable yet.
    Drawn,
    /// The task was sent, or will be when the client is back.
    Asked,
    /// The update is being checked and folded.
    Folding,
    /// The update counts.
    Accepted,
    /// The update was not believed, for this reason.
    Rejected(String),
    /// The client says that it could not train, for this reason.
    Failed(String),
    /// The client is not in a state to train, for this reason: nobody's fault, and from this moment on it may be asked again.
    NotNow(Ineligible, Duration),
    /// The round was decided without this update, before a restart.
    Missed,
    /// The client may not take part any more.
    Gone,
}

/// What becomes of an offered update.
#[derive(Debug, PartialEq)]
pub(super) enum Offer {
    /// It is to be folded.
    Fold,
    /// The member's first is being folded: the one receipt for both has to wait until it is durable.
    Again,
    /// It is offered again to the next round that opens.
    Wait,
    /// It needs no folding.
    Settled(Verdict),
}

#[derive(Debug)]
struct Part {
    samples: u64,
    stage: Stage,
}

/// An update of an earlier round that came in this one.
#[derive(Debug)]
struct Late {
    /// The round that it was trained in.
    trained: u32,
    /// Being folded, accepted or rejected.
    stage: Stage,
}

#[derive(Debug)]
pub(super) struct OpenRound {
    number: u32,
    work: TaskKind,
    /// That of a round with this work.
    policy: RoundPolicy,
    roster: BTreeMap<ClientId, u64>,
    parts: BTreeMap<ClientId, Part>,
    /// None of them is in the cohort.
    late: BTreeMap<ClientId, Late>,
    owed: BTreeMap<ClientId, Owed>,
    counted: BTreeMap<ClientId, u32>,
    opened: Duration,
    /// Start of the current `time.max` window; moves when replacements join.
    window: Duration,
    /// Until then, members that are away are waited for even after `time.min`: a restart of this machine has cut
    /// every connection, so nobody disappeared.
    regather: Duration,
    /// `time.max` went by with fewer than `count.min` updates.
    short_handed: bool,
    rejected: usize,
    discarded: usize,
}

impl OpenRound {
    pub(super) fn new(opening: Opening, policy: RoundPolicy, now: Duration) -> Self {
        let part = |(client, samples)| (client, Part { samples, stage: Stage::Drawn });
        Self {
            number: opening.round,
            work: opening.work,
            policy: policy.of(opening.work),
            roster: opening.roster,
            parts: opening.cohort.into_iter().map(part).collect(),
            late: BTreeMap::new(),
            owed: opening.owed,
            counted: opening.counted,
            opened: now,
            window: now,
            regather: now,
            short_handed: false,
            rejected: 0,
            discarded: 0,
        }
    }

    /// Members that are not `known` any more were revoked before the restart.
    pub(super) fn resume(
        reopened: Reopened,
        known: impl Fn(&ClientId) -> bool,
        policy: RoundPolicy,
        now: Duration,
    ) -> Self {
        let mut round = Self::new(reopened.opening, policy, now);
        round.regather = now + policy.regather;
        let accepted = |(client, trained)| (client, Late { trained, stage: Stage::Accepted });
        round.late = reopened.late.into_iter().map(accepted).collect();
        let decided = reopened.closing.map(|closing| closing.contributors);
        for (client, part) in &mut round.parts {
            part.stage = if reopened.accepted.contains(client) {
                Stage::Accepted
            } else if decided.as_ref().is_some_and(|contributors| !contributors.contains(client)) {
                Stage::Missed
            } else if !known(client) {
                Stage::Gone
            } else {
                Stage::Asked
            };
        }
        round
    }

    /// All its times are so much later, and until `regather` members that are away are waited for.
    pub(super) fn postpone(&mut self, by: Duration, regather: Duration) {
        self.opened += by;
        self.window += by;
        self.regather = regather;
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Whether its members are to learn something.
    pub(super) fn trains(&self) -> bool {
        self.work.train
    }

    pub(super) fn opened(&self) -> Duration {
        self.opened
    }

    pub(super) fn stage(&self, client: ClientId) -> Option<&Stage> {
        self.parts.get(&client).map(|part| &part.stage)
    }

    pub(super) fn samples(&self, client: ClientId) -> Option<u64> {
        self.parts.get(&client).map(|part| part.samples)
    }

    pub(super) fn stages(&self) -> impl Iterator<Item = (ClientId, &Stage)> {
        self.parts.iter().map(|(client, part)| (*client, &part.stage))
    }

    pub(super) fn cohort_len(&self) -> usize {
        self.parts.len()
    }

    pub(super) fn opening(&self) -> Opening {
        let cohort = self.parts.iter().map(|(client, part)| (*client, part.samples)).collect();
        let (roster, owed, counted) = (self.roster.clone(), self.owed.clone(), self.counted.clone());
        Opening { round: self.number, work: self.work, cohort, roster, owed, counted }
    }

    pub(super) fn not_yet_asked(&self) -> Vec<ClientId> {
        self.parts.iter().filter(|(_, part)| part.stage == Stage::Drawn).map(|(client, _)| *client).collect()
    }

    pub(super) fn asked(mut self) -> Self {
        for part in self.parts.values_mut().filter(|part| part.stage == Stage::Drawn) {
            part.stage = Stage::Asked;
        }
        self
    }

    /// May a client with so many samples join now? The sums' scale was agreed for the roster's largest.
    pub(super) fn could_weigh(&self, samples: u64) -> bool {
        self.roster.values().any(|&known| known >= samples)
    }

    pub(super) fn extend(&mut self, recruits: impl IntoIterator<Item = (ClientId, u64)>) {
        for (client, samples) in recruits {
            self.parts.insert(client, Part { samples, stage: Stage::Drawn });
        }
    }

    /// Somebody was recruited, who gets as much time as those before.
    pub(super) fn begin_anew(&mut self, now: Duration) {
        self.short_handed |= self.is_overdue(now);
        self.window = now;
    }

    /// Nobody can be recruited now: when `time.max` is over, wait for another `time.max`.
    pub(super) fn look_again(&mut self, now: Duration) {
        if self.is_overdue(now) {
            self.short_handed = true;
            self.window = now;
        }
    }

    /// A client offers its update. `used` tells how many of the samples that a client has in all it trains on in this round.
    pub(super) fn offer(
        &mut self,
        client: ClientId,
        report: &TrainReport,
        used: impl Fn(u64) -> u64,
    ) -> Offer {
        let round = self.number;
        let Some(part) = self.parts.get_mut(&client) else {
            return Offer::Settled(Verdict::Rejected(Rejection::NotInCohort { round }));
        };
        match part.stage {
            Stage::Drawn | Stage::Asked | Stage::Failed(_) | Stage::NotNow(..) => {}
            Stage::Folding => return Offer::Again,
            Stage::Accepted | Stage::Rejected(_) => {
                return Offer::Settled(Verdict::Discarded(Discard::Duplicate));
            }
            Stage::Missed | Stage::Gone => return Offer::Settled(Verdict::Discarded(Discard::Late)),
        }
        let (stage, offer) = judged(report, used(part.samples));
        part.stage = stage;
        offer
    }

    /// A client offers what it has learned from the model of an earlier round, as it was asked to. `used` is as in
    /// [`offer`](Self::offer), of that round.
    pub(super) fn offer_late(
        &mut self,
        client: ClientId,
        owed: Owed,
        report: &TrainReport,
        used: impl Fn(u64) -> u64,
    ) -> Offer {
        match self.late.get(&client).map(|late| &late.stage) {
            Some(Stage::Folding) => return Offer::Again,
            Some(_) => return Offer::Settled(Verdict::Discarded(Discard::Duplicate)),
            None => {}
        }
        // Whoever is in the cohort was asked for something newer, and the sums have room for the roster.
        let expected = self.roster.contains_key(&client) && !self.parts.contains_key(&client);
        if !self.work.train || !expected || !self.could_weigh(owed.samples) {
            return Offer::Settled(Verdict::Discarded(Discard::Late));
        }
        let (stage, offer) = judged(report, used(owed.samples));
        self.late.insert(client, Late { trained: owed.round, stage });
        offer
    }

    /// Whether an update of an earlier round came from this client.
    pub(super) fn has_late(&self, client: ClientId) -> bool {
        self.late.contains_key(&client)
    }

    /// Counts a verdict that was given without folding.
    pub(super) fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Accepted => {}
            Verdict::Rejected(_) => self.rejected += 1,
            Verdict::Discarded(_) => self.discarded += 1,
        }
    }

    /// The payload was looked into. Gives the round that it was trained in.
    pub(super) fn settled(&mut self, client: ClientId, verdict: &Verdict) -> u32 {
        self.count(verdict);
        let settled = match verdict {
            Verdict::Accepted => Stage::Accepted,
            Verdict::Rejected(rejection) => Stage::Rejected(rejection.to_string()),
            Verdict::Discarded(discard) => Stage::Rejected(discard.to_string()),
        };
        if let Some(late) = self.late.get_mut(&client) {
            late.stage = settled;
            return late.trained;
        }
        if let Some(part) = self.parts.get_mut(&client) {
            part.stage = settled;
        }
        self.number
    }

    pub(super) fn failed(&mut self, client: ClientId, reason: String) {
        if let Some(part) = self.parts.get_mut(&client)
            && part.stage == Stage::Asked
        {
            part.stage = Stage::Failed(reason);
        }
    }

    pub(super) fn not_now(&mut self, client: ClientId, reason: Ineligible, now: Duration) {
        if let Some(part) = self.parts.get_mut(&client)
            && part.stage == Stage::Asked
        {
            part.stage = Stage::NotNow(reason, now + ASK_AGAIN);
        }
    }

    /// A client may not take part any more: what of it is not in is not to come. What is being folded, or is in, counts.
    pub(super) fn revoked(&mut self, client: ClientId) {
        if let Some(part) = self.parts.get_mut(&client)
            && matches!(part.stage, Stage::Drawn | Stage::Asked | Stage::NotNow(..))
        {
            part.stage = Stage::Gone;
        }
    }

    /// A member's connection is gone. One that was not in a state to train is asked when it comes back: it may be by then.
    pub(super) fn away(&mut self, client: ClientId) {
        if let Some(part) = self.parts.get_mut(&client)
            && matches!(part.stage, Stage::NotNow(..))
        {
            part.stage = Stage::Asked;
        }
    }

    fn count_stage(&self, wanted: impl Fn(ClientId, &Stage) -> bool) -> usize {
        self.parts.iter().filter(|(client, part)| wanted(**client, &part.stage)).count()
    }

    fn count_late(&self, wanted: &Stage) -> usize {
        self.late.values().filter(|late| late.stage == *wanted).count()
    }

    pub(super) fn accepted(&self) -> usize {
        self.count_stage(|_, stage| *stage == Stage::Accepted) + self.count_late(&Stage::Accepted)
    }

    /// Why updates were not accepted, for the operator.
    pub(super) fn reasons(&self) -> Vec<String> {
        let in_time = self.parts.iter().map(|(client, part)| (client, &part.stage));
        let late = self.late.iter().map(|(client, late)| (client, &late.stage));
        in_time
            .chain(late)
            .filter_map(|(client, stage)| match stage {
                Stage::Rejected(reason) => Some(format!("{}: rejected: {reason}", client.short())),
                Stage::Failed(reason) => Some(format!("{}: failed: {reason}", client.short())),
                _ => None,
            })
            .collect()
    }
}

/// What becomes of an update with this report from a client that trains on so many samples, as far as the report tells.
fn judged(report: &TrainReport, declared: u64) -> (Stage, Offer) {
    let rejection = if report.samples != declared {
        Rejection::Samples { declared, reported: report.samples }
    } else if !report.loss.is_finite() || report.loss < 0.0 {
        Rejection::Loss { loss: report.loss }
    } else {
        return (Stage::Folding, Offer::Fold);
    };
    (Stage::Rejected(rejection.to_string()), Offer::Settled(Verdict::Rejected(rejection)))
}
