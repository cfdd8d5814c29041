//! Problems in the runs of an experiment.

use serde::Serialize;

use crate::report::units::counted;
use crate::round::{RoundRecord, WaitedFor};

/// Counts of problems in a run. A run with problems can still be complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Troubles {
    /// Rounds of training that changed nothing, for lack of updates or of a sum that they came to.
    pub void: usize,
    /// Rejected updates, such as those of clients that have diverged.
    pub rejected: usize,
    /// Tasks that failed on clients.
    pub failed: usize,
    /// Requested updates that did not arrive before their rounds closed, unless the round closed by count.
    pub missing: usize,
    /// Requested updates.
    pub asked: usize,
    /// Whether a test found that the global model predicts few classes for all samples.
    pub collapsed: bool,
    /// Rounds in which the server's own training diverged.
    pub diverged: usize,
}

/// Missing updates of one round. A round that closes by count (`round.max-updates`) misses none.
fn missing(round: &RoundRecord) -> usize {
    let RoundRecord { sampled, accepted, late, rejected, failed, not_now, .. } = *round;
    let answered = [accepted.saturating_sub(late), rejected, failed, not_now];
    match round.waited_for {
        WaitedFor::Count => 0,
        _ => answered.into_iter().fold(sampled, usize::saturating_sub),
    }
}

impl Troubles {
    /// The problems in these rounds, which need `min` updates each.
    #[must_use]
    pub fn of(rounds: &[RoundRecord], min: usize) -> Self {
        let is_void = |round: &&RoundRecord| !round.closing && (round.void || round.accepted < min);
        let sum = |count: fn(&RoundRecord) -> usize| rounds.iter().map(count).sum();
        Self {
            void: rounds.iter().filter(is_void).count(),
            rejected: sum(|round| round.rejected),
            failed: sum(|round| round.failed),
            missing: sum(missing),
            asked: sum(|round| round.sampled),
            collapsed: rounds.iter().any(|round| round.collapsed),
            diverged: sum(|round| usize::from(round.diverged)),
        }
    }

    /// As text: `3 void rounds, 12 updates rejected`; empty without problems.
    #[must_use]
    pub fn text(&self) -> String {
        let many = |count: usize, what: &str| (count > 0).then(|| counted(count, what));
        let parts = [
            many(self.void, "void round"),
            many(self.rejected, "update").map(|updates| format!("{updates} rejected")),
            many(self.failed, "task").map(|tasks| format!("{tasks} failed")),
            (self.missing > 0).then(|| format!("{} of {} updates are missing", self.missing, self.asked)),
            self.collapsed.then(|| "collapsed".to_owned()),
            many(self.diverged, "round").map(|rounds| format!("the server diverged in {rounds}")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_that_were_not_waited_for_are_missing() {
        let round =
            |accepted, waited_for| RoundRecord { sampled: 5, accepted, waited_for, ..RoundRecord::default() };
        let troubled = RoundRecord { rejected: 1, failed: 1, ..round(2, WaitedFor::MaxTime) };
        let late = RoundRecord { late: 2, ..round(6, WaitedFor::MaxTime) };
        let rounds = [round(5, WaitedFor::Cohort), troubled, late, round(2, WaitedFor::Count)];
        let found = Troubles::of(&rounds, 1);
        assert_eq!((found.missing, found.asked), (2, 20));
        assert_eq!(found.text(), "1 update rejected, 1 task failed, 2 of 20 updates are missing");
        assert_eq!(Troubles::of(&rounds[..1], 1).text(), "");
        let no_sum = RoundRecord { void: true, ..round(5, WaitedFor::Cohort) };
        assert_eq!(Troubles::of(&[no_sum, round(5, WaitedFor::Cohort)], 1).text(), "1 void round");
    }
}
