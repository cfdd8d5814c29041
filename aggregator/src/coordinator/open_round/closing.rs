//! When an open round closes, and what it needs before.

use std::time::Duration;

use shared::id::ClientId;

use super::{KeyExchange, Kind, MemberState, OpenRound, Phase};
use crate::round::{Tally, WaitedFor};

/// Number of stragglers whose updates would count in this round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::coordinator) struct Stragglers {
    /// Connected.
    pub(in crate::coordinator) here: usize,
    /// Not connected.
    pub(in crate::coordinator) away: usize,
}

/// What the round needs next.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::coordinator) enum Next {
    Wait,
    Close(WaitedFor),
    /// Replacements: the present members cannot reach `min-updates`.
    Recruit {
        wanted: usize,
        otherwise: Otherwise,
    },
}

/// What a round does if no replacement can be recruited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::coordinator) enum Otherwise {
    /// Wait: some members may still deliver.
    Wait,
    /// Only members that are away could deliver, and they were given more time already: the round becomes void as soon as enough
    /// clients are connected to open another one, with its own cohort and scale.
    VoidIfEnoughAreHere,
    /// No member can deliver any more.
    Void,
}

impl OpenRound {
    /// Whether `round.timeout` is over since it was opened, or since a client was recruited.
    pub(in crate::coordinator) fn is_overdue(&self, now: Duration) -> bool {
        now >= self.window + self.policy.timeout
    }

    /// The round can close neither with nor without those that were not in a state to train: whom of them to ask again, now
    /// that it is time. `None` if there are none of them, or nothing is to be learned and its time is over.
    pub(in crate::coordinator) fn ask_again(&mut self, now: Duration) -> Option<Vec<ClientId>> {
        if !self.opening.work.train && self.is_overdue(now) {
            return None;
        }
        if self.stages.count(Kind::NotNow) == 0 {
            return None;
        }
        let due = |stage: &MemberState| matches!(*stage, MemberState::NotNow(_, until) if now >= until);
        Some(self.stages.set_all(&MemberState::Asked, |_, stage| due(stage)))
    }

    /// Clients without which no such round closes, nor opens.
    pub(in crate::coordinator) fn least(&self) -> usize {
        self.policy.min.max(1)
    }

    /// Number of updates with which it closes at once: its cohort's, or `round.max-updates`, and not fewer than `round.min-updates`.
    pub(in crate::coordinator) fn wanted(&self) -> usize {
        let all = self.stages.len() + self.late.count(Kind::Accepted);
        self.policy.max.unwrap_or(usize::MAX).min(all).max(self.policy.min)
    }

    /// The closing rules. `here` tells who is connected; `behind` counts clients that are still at work for an earlier round. Neither
    /// is asked more often than it must: this is looked at after every event, in rounds of many thousand members.
    pub(in crate::coordinator) fn next(
        &self,
        now: Duration,
        here: impl Fn(ClientId) -> bool,
        behind: impl Fn() -> Stragglers,
    ) -> Next {
        if self.stages.count(Kind::Folding) + self.late.count(Kind::Folding) > 0 {
            return Next::Wait;
        }
        if let Some(exchange) = &self.exchange
            && matches!(exchange.phase, Phase::Storing | Phase::Deciding(_) | Phase::Revealing(_))
        {
            return Next::Wait;
        }
        let (accepted, asked) = (self.accepted(), self.stages.asked());
        let any_here = || asked.iter().any(|client| here(*client));
        let any_away = || asked.iter().any(|client| !here(*client));
        let any_comes = || any_here() || behind().here > 0;
        // Members at work are not cut off where the policy waits for them.
        let is_hurried = || self.policy.cuts_short || !any_comes();
        let is_overdue = || self.is_overdue(now) && is_hurried();
        if accepted >= self.policy.min {
            let all = self.stages.len() + self.late.count(Kind::Accepted);
            let target = self.policy.max.unwrap_or(usize::MAX).min(all);
            let given_up = || now >= self.grace_until || !any_away();
            let is_settled = || now >= self.opened + self.policy.min_wait && !any_here() && given_up();
            return if accepted >= target && target < all {
                Next::Close(WaitedFor::Count)
            } else if accepted >= target || is_settled() {
                let grace = !self.policy.min_wait.is_zero() && any_away();
                Next::Close(if grace { WaitedFor::MinTime } else { WaitedFor::Cohort })
            } else if self.short_handed && is_hurried() {
                Next::Close(WaitedFor::MinCount)
            } else if is_overdue() {
                Next::Close(WaitedFor::MaxTime)
            } else {
                Next::Wait
            };
        }
        let wanted = self.policy.min - accepted;
        if is_overdue() {
            // In a round without training, absent clients get no more time.
            let any_absent = self.opening.work.train && (any_away() || behind().away > 0);
            let otherwise = match (any_comes(), any_absent) {
                (false, false) => Otherwise::Void,
                (false, true) if self.short_handed => Otherwise::VoidIfEnoughAreHere,
                _ => Otherwise::Wait,
            };
            return Next::Recruit { wanted, otherwise };
        }
        // Those that were asked are enough: they are here, or one that is away is waited for.
        if asked.len() >= wanted || any_away() {
            return Next::Wait;
        }
        let Stragglers { here: late_here, away: late_away } = behind();
        let coming = asked.len() + late_here;
        if late_away == 0 && coming < wanted {
            let otherwise = if coming == 0 { Otherwise::Void } else { Otherwise::Wait };
            return Next::Recruit { wanted: wanted - coming, otherwise };
        }
        Next::Wait
    }

    /// When, after `now`, [`next`](Self::next) can change by time alone.
    pub(in crate::coordinator) fn deadline(&self, now: Duration) -> Option<Duration> {
        let moments =
            [self.opened + self.policy.min_wait, self.window + self.policy.timeout, self.grace_until];
        let any = self.stages.count(Kind::NotNow) > 0;
        let again = any.then(|| self.stages.iter()).into_iter().flatten();
        let again = again.filter_map(|(_, stage)| match *stage {
            MemberState::NotNow(_, until) => Some(until),
            _ => None,
        });
        let exchange = self.exchange.as_ref().map(KeyExchange::due);
        moments.into_iter().chain(again).chain(exchange).filter(|moment| *moment > now).min()
    }

    pub(in crate::coordinator) fn tally(
        &self,
        void: bool,
        waited_for: WaitedFor,
        here: impl Fn(ClientId) -> bool,
    ) -> Tally {
        Tally {
            sampled: self.stages.len(),
            accepted: self.accepted(),
            late: self.late.count(Kind::Accepted),
            rejected: self.rejected,
            discarded: self.discarded,
            failed: self.stages.count(Kind::Failed),
            not_now: self.stages.count(Kind::NotNow),
            lost: self.stages.count(Kind::Gone)
                + self.stages.asked().iter().filter(|client| !here(**client)).count(),
            waited_for,
            void,
        }
    }
}
