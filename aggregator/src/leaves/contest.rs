//! Two servers that were given one name: each takes the lease from the other, as if that had died.

use super::standing::Standing;

/// As often as another process takes the lease under the same name, it is no accident.
const CONTESTED: u32 = 3;
/// As often as the lease is renewed, none takes it.
const STEADY: u32 = 10;

/// Whether another process leads under the name of this one, time and again.
#[derive(Debug, Default)]
pub(super) struct Contest {
    /// The newest epoch under which this one has led.
    epoch: Option<i64>,
    /// How often it has led since.
    renewed: u32,
    /// How often the lease was taken from it by a process that is no other leaf. An answer of the store that is lost looks like that once.
    taken: u32,
}

impl Contest {
    /// Takes note of where the run stands. Whether it is no accident that the lease is taken.
    pub(super) fn sees(&mut self, now: &Standing) -> bool {
        match now {
            Standing::Leads(claim) if self.epoch == Some(claim.epoch) => {
                self.renewed += 1;
                if self.renewed >= STEADY {
                    self.taken = 0;
                }
            }
            Standing::Leads(claim) => {
                let between = self.epoch.is_some_and(|own| claim.epoch > own + 1);
                self.taken += u32::from(between);
                (self.epoch, self.renewed) = (Some(claim.epoch), 0);
            }
            // Another leaf has it.
            Standing::Follows { .. } => *self = Self::default(),
            Standing::Unknown | Standing::Over | Standing::Failed(_) => {}
        }
        self.taken >= CONTESTED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::experiments::Claim;
    use crate::leaves::standing::LEASE;

    fn leads(epoch: i64) -> Standing {
        let (name, worker) = ("run".to_owned(), "a".to_owned());
        Standing::Leads(Claim { name, epoch, rounds: 0, worker, deserted: None, lease: LEASE })
    }

    fn follows(epoch: i64) -> Standing {
        Standing::Follows { leaf: "b".to_owned(), epoch, address: "b:1".to_owned() }
    }

    #[test]
    fn a_lease_that_is_taken_under_the_same_name_again_and_again_is_contested() {
        let mut contest = Contest::default();
        let seen: Vec<bool> = [leads(1), leads(3), Standing::Unknown, leads(5), leads(5), leads(7)]
            .iter()
            .map(|now| contest.sees(now))
            .collect();
        assert_eq!(seen, [false, false, false, false, false, true]);
    }

    #[test]
    fn other_leaves_may_lead_meanwhile_and_an_answer_may_be_lost() {
        let mut contest = Contest::default();
        for epoch in (1..20).step_by(2) {
            assert!(!contest.sees(&leads(epoch)) && !contest.sees(&follows(epoch + 1)));
        }
        for epoch in (21..40).step_by(2) {
            // It is found to lead under a later epoch than its own, once in a while.
            assert!((0..=STEADY).all(|_| !contest.sees(&leads(epoch))));
        }
    }
}
