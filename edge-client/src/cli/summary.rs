//! Summary of the rounds that a client took part in: whether any of its updates was of use.

use shared::message::Verdict;

use super::error::Exit;
use crate::driver::Notice;
use crate::failure::Failure;

/// Why a round brought no update.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Setback {
    /// The task failed on the device.
    #[error("failed {}: {}", .0.blame, .0.reason)]
    Failed(Failure),
    /// The server rejected the update, for this reason.
    #[error("was rejected by the server: {0}")]
    Rejected(String),
}

impl Setback {
    /// The exit code if it is what the run ends with.
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Failed(failure) => failure.blame.into(),
            Self::Rejected(_) => Exit::Rejected,
        }
    }
}

/// Counts rounds with and without an update.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    /// Updates without a receipt.
    pending: u32,
    /// Updates that the server believed, in time or not.
    believed: u32,
    setbacks: u32,
    last: Option<Setback>,
}

impl Summary {
    pub(super) fn handle(&mut self, notice: &Notice) {
        let setback = match notice {
            Notice::Trained { .. } => {
                self.pending += 1;
                return;
            }
            Notice::Failed { failure, .. } => Setback::Failed(failure.clone()),
            Notice::Receipt { verdict, .. } => {
                // An earlier process may have trained the update.
                self.pending = self.pending.saturating_sub(1);
                match verdict {
                    Verdict::Rejected(rejection) => Setback::Rejected(rejection.to_string()),
                    Verdict::Accepted | Verdict::Discarded(_) => {
                        self.believed += 1;
                        return;
                    }
                }
            }
            _ => return,
        };
        self.setbacks += 1;
        self.last = Some(setback);
    }

    /// If there were rounds and none of them brought an update that the server believed: how many, and what happened to the last.
    pub(super) fn nothing(self) -> Option<(u32, Setback)> {
        // The run may end before the receipt of its last round arrives.
        let last = self.last.filter(|_| self.believed == 0 && self.pending == 0)?;
        Some((self.setbacks, last))
    }
}

#[cfg(test)]
mod tests {
    use shared::message::{Discard, Rejection, TaskKind, TrainReport};

    use super::*;
    use crate::failure::Blame;

    #[test]
    fn nothing_counts_if_every_round_failed() {
        let trained =
            Notice::Trained { round: 1, work: TaskKind::TRAIN, report: TrainReport::default(), bytes: 1 };
        let failure = Failure::new(Blame::Machine, "no space");
        let failed = Notice::Failed { round: 1, failure: failure.clone() };
        let receipt = |verdict| Notice::Receipt { round: 1, verdict };
        let rejected = receipt(Verdict::Rejected(Rejection::NotInCohort { round: 1 }));
        let late = receipt(Verdict::Discarded(Discard::Late));
        let of = |notices: &[&Notice]| {
            let mut summary = Summary::default();
            for notice in notices {
                summary.handle(notice);
            }
            summary.nothing()
        };
        let no_space = |rounds| Some((rounds, Setback::Failed(failure.clone())));
        let not_in_cohort = Setback::Rejected(Rejection::NotInCohort { round: 1 }.to_string());
        assert_eq!(of(&[]), None, "no round, no failure");
        assert_eq!(of(&[&failed]), no_space(1));
        assert_eq!(of(&[&failed, &failed]), no_space(2));
        assert_eq!(of(&[&failed, &trained, &receipt(Verdict::Accepted)]), None);
        assert_eq!(of(&[&trained, &failed]), None, "the update is on its way");
        assert_eq!(of(&[&trained, &late]), None, "late is no fault of the device");
        assert_eq!(of(&[&trained, &rejected]), Some((1, not_in_cohort)));
        assert_eq!(of(&[&trained, &rejected, &failed]), no_space(2));
        assert_eq!(of(&[&trained, &rejected, &trained, &late]), None);
        // An update of an earlier process was rejected.
        assert!(of(&[&rejected]).is_some());
        assert_eq!(of(&[&rejected, &trained, &receipt(Verdict::Accepted)]), None, "this one's counts");
    }
}
