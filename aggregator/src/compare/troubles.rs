//! What went wrong in the runs of an experiment.

use serde::Serialize;

use crate::report::RoundRecord;
use crate::report::units::counted;

/// What went wrong in a run. Updates that are refused cost their rounds nothing else, so a run with troubles is complete all the
/// same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Troubles {
    /// Rounds of training that had too few updates and changed nothing.
    pub void: usize,
    /// Updates that were refused, such as those of clients that have diverged.
    pub rejected: usize,
    /// Clients' tasks that failed.
    pub failed: usize,
    /// Whether the global model was found to name few classes, whatever it is shown.
    pub collapsed: bool,
    /// Rounds in which the server's own training has diverged.
    pub diverged: usize,
}

impl Troubles {
    /// Of a run whose rounds need `min` updates.
    #[must_use]
    pub fn of(rounds: &[RoundRecord], min: usize) -> Self {
        let sum = |count: fn(&RoundRecord) -> usize| rounds.iter().map(count).sum();
        Self {
            void: rounds.iter().filter(|round| !round.closing && round.accepted < min).count(),
            rejected: sum(|round| round.rejected),
            failed: sum(|round| round.failed),
            collapsed: rounds.iter().any(|round| round.collapsed),
            diverged: sum(|round| usize::from(round.diverged)),
        }
    }

    /// For people: `3 void rounds, 12 updates rejected`; empty where all was well.
    #[must_use]
    pub fn text(&self) -> String {
        let many = |count: usize, what: &str| (count > 0).then(|| counted(count, what));
        let parts = [
            many(self.void, "void round"),
            many(self.rejected, "update").map(|updates| format!("{updates} rejected")),
            many(self.failed, "task").map(|tasks| format!("{tasks} failed")),
            self.collapsed.then(|| "collapsed".to_owned()),
            many(self.diverged, "round").map(|rounds| format!("the server diverged in {rounds}")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}
