//! What a round came to, in numbers.

use serde::{Deserialize, Serialize};

use crate::report::WaitedFor;

/// A round's counts, as they are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// Members of the cohort, replacements included.
    pub sampled: usize,
    /// Updates that count.
    pub accepted: usize,
    /// Updates that were not believed.
    pub rejected: usize,
    /// Updates that were fine but of no use.
    pub discarded: usize,
    /// Members that could not train.
    pub failed: usize,
    /// Those of the accepted updates that were learned from the model of an earlier round.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late: usize,
    /// Members that were not in a state to train.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_now: usize,
    /// Members that were asked and are not connected.
    pub lost: usize,
    /// What the round waited for last.
    pub waited_for: WaitedFor,
    /// The round closes without changing the model: too few updates, and nobody left to ask.
    pub void: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
pub(crate) fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Tally {
    /// A cohort of `sampled` clients that has all contributed, and nothing else came of it.
    #[must_use]
    pub fn of_whole(sampled: usize) -> Self {
        Self { sampled, accepted: sampled, waited_for: WaitedFor::Cohort, ..Self::default() }
    }
}
