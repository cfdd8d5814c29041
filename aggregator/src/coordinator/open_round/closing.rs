//! When an open round closes, and what it needs before.

use std::time::Duration;

use shared::id::ClientId;

use super::{KeyExchange, MemberState, OpenRound, Phase};
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
        let mut any = false;
        let mut again = Vec::new();
        for (client, stage) in &mut self.stages {
            let MemberState::NotNow(_, until) = *stage else { continue };
            any = true;
            if now >= until {
                *stage = MemberState::Asked;
                again.push(*client);
            }
        }
        any.then_some(again)
    }

    /// Clients without which no such round closes, nor opens.
    pub(in crate::coordinator) fn least(&self) -> usize {
        self.policy.min.max(1)
    }

    /// Number of updates with which it closes at once: its cohort's, or `round.max-updates`, and not fewer than `round.min-updates`.
    pub(in crate::coordinator) fn wanted(&self) -> usize {
        let all = self.stages.len() + self.count_late(&MemberState::Accepted);
        self.policy.max.unwrap_or(usize::MAX).min(all).max(self.policy.min)
    }

    /// The closing rules. `here` tells who is connected; `behind` are clients that are still at work for an earlier round.
    pub(in crate::coordinator) fn next(
        &self,
        now: Duration,
        here: impl Fn(ClientId) -> bool,
        behind: Stragglers,
    ) -> Next {
        if self.count_stage(|_, stage| *stage == MemberState::Folding)
            + self.count_late(&MemberState::Folding)
            > 0
        {
            return Next::Wait;
        }
        if let Some(exchange) = &self.exchange
            && matches!(exchange.phase, Phase::Storing | Phase::Deciding(_) | Phase::Revealing(_))
        {
            return Next::Wait;
        }
        let accepted = self.accepted();
        let late = self.count_late(&MemberState::Accepted);
        let target = self.policy.max.unwrap_or(usize::MAX).min(self.stages.len() + late);
        let pending_here = self.count_stage(|client, stage| *stage == MemberState::Asked && here(client));
        let pending_away = self.count_stage(|client, stage| *stage == MemberState::Asked && !here(client));
        let coming = pending_here + behind.here;
        let away = pending_away + behind.away;
        // Members at work are not cut off where the policy waits for them.
        let hurried = self.policy.cuts_short || coming == 0;
        let overdue = hurried && self.is_overdue(now);
        if accepted >= self.policy.min {
            let given_up = pending_away == 0 || now >= self.grace_until;
            let settled = pending_here == 0 && given_up && now >= self.opened + self.policy.min_wait;
            return if accepted >= target && target < self.stages.len() + late {
                Next::Close(WaitedFor::Count)
            } else if accepted >= target || settled {
                let grace = pending_away > 0 && !self.policy.min_wait.is_zero();
                Next::Close(if grace { WaitedFor::MinTime } else { WaitedFor::Cohort })
            } else if hurried && self.short_handed {
                Next::Close(WaitedFor::MinCount)
            } else if overdue {
                Next::Close(WaitedFor::MaxTime)
            } else {
                Next::Wait
            };
        }
        if overdue {
            let wanted = self.policy.min - accepted;
            // In a round without training, absent clients get no more time.
            let away = if self.opening.work.train { away } else { 0 };
            let otherwise = match (coming, away) {
                (0, 0) => Otherwise::Void,
                (0, _) if self.short_handed => Otherwise::VoidIfEnoughAreHere,
                _ => Otherwise::Wait,
            };
            return Next::Recruit { wanted, otherwise };
        }
        if away == 0 && accepted + coming < self.policy.min {
            let wanted = self.policy.min - accepted - coming;
            return Next::Recruit {
                wanted,
                otherwise: if coming == 0 { Otherwise::Void } else { Otherwise::Wait },
            };
        }
        Next::Wait
    }

    /// When, after `now`, [`next`](Self::next) can change by time alone.
    pub(in crate::coordinator) fn deadline(&self, now: Duration) -> Option<Duration> {
        let moments =
            [self.opened + self.policy.min_wait, self.window + self.policy.timeout, self.grace_until];
        let again = self.stages.values().filter_map(|stage| match *stage {
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
            late: self.count_late(&MemberState::Accepted),
            rejected: self.rejected,
            discarded: self.discarded,
            failed: self.count_stage(|_, stage| matches!(stage, MemberState::Failed(_))),
            not_now: self.count_stage(|_, stage| matches!(stage, MemberState::NotNow(..))),
            lost: self.count_stage(|client, stage| match stage {
                MemberState::Asked => !here(client),
                MemberState::Gone => true,
                _ => false,
            }),
            waited_for,
            void,
        }
    }
}
