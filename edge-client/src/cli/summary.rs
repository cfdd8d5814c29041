//! What came of a client's rounds: whether it was of any use that it took part.

use shared::message::Verdict;

use crate::driver::Notice;

/// Rounds that brought an update, and rounds that did not.
#[derive(Clone, Debug, Default)]
pub(super) struct Summary {
    /// Updates whose receipts have not come.
    open: u32,
    /// Updates that the server could believe, in time or not.
    believed: u32,
    rejected: u32,
    failed: u32,
    /// Why the last one came to nothing.
    last: String,
}

impl Summary {
    pub(super) fn hear(&mut self, notice: &Notice) {
        match notice {
            Notice::Trained { .. } => self.open += 1,
            Notice::Failed { reason, .. } => {
                self.failed += 1;
                self.last.clone_from(reason);
            }
            Notice::Receipt { verdict, .. } => {
                // An earlier process may have trained it.
                self.open = self.open.saturating_sub(1);
                match verdict {
                    Verdict::Rejected(rejection) => {
                        self.rejected += 1;
                        self.last = rejection.to_string();
                    }
                    Verdict::Accepted | Verdict::Discarded(_) => self.believed += 1,
                }
            }
            _ => {}
        }
    }

    /// There were rounds, and none of them brought an update that the server could believe: how many, and why
    /// the last one did not.
    pub(super) fn nothing(self) -> Option<(u32, String)> {
        let in_vain = self.failed + self.rejected;
        // The receipt of the last round may not have come before the run was over.
        (in_vain > 0 && self.believed == 0 && self.open == 0).then_some((in_vain, self.last))
    }
}

#[cfg(test)]
mod tests {
    use shared::message::{Discard, Rejection, TaskKind, TrainReport};

    use super::*;

    #[test]
    fn nothing_is_when_every_round_was_in_vain() {
        let trained =
            Notice::Trained { round: 1, work: TaskKind::TRAIN, report: TrainReport::default(), bytes: 1 };
        let failed = Notice::Failed { round: 1, reason: "no space".to_owned() };
        let receipt = |verdict| Notice::Receipt { round: 1, verdict };
        let rejected = receipt(Verdict::Rejected(Rejection::NotInCohort { round: 1 }));
        let late = receipt(Verdict::Discarded(Discard::Late));
        let of = |notices: &[&Notice]| {
            let mut summary = Summary::default();
            for notice in notices {
                summary.hear(notice);
            }
            summary.nothing()
        };
        let no_space = |rounds| Some((rounds, "no space".to_owned()));
        assert_eq!(of(&[]), None, "no round, no failure");
        assert_eq!(of(&[&failed]), no_space(1));
        assert_eq!(of(&[&failed, &failed]), no_space(2));
        assert_eq!(of(&[&failed, &trained, &receipt(Verdict::Accepted)]), None);
        assert_eq!(of(&[&trained, &failed]), None, "the update is on its way");
        assert_eq!(of(&[&trained, &late]), None, "late is nobody's fault");
        assert_eq!(of(&[&trained, &rejected]), Some((1, Rejection::NotInCohort { round: 1 }.to_string())));
        assert_eq!(of(&[&trained, &rejected, &failed]), no_space(2));
        assert_eq!(of(&[&trained, &rejected, &trained, &late]), None);
        // An update of an earlier process was rejected.
        assert!(of(&[&rejected]).is_some());
        assert_eq!(of(&[&rejected, &trained, &receipt(Verdict::Accepted)]), None, "this one's counts");
    }
}
