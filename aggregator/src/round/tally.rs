//! What a round came to, in numbers.

use std::fmt;

use serde::{Deserialize, Serialize};

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
pub(super) fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Tally {
    /// A cohort of `sampled` clients that has all contributed, and nothing else came of it.
    #[must_use]
    pub fn of_whole(sampled: usize) -> Self {
        Self { sampled, accepted: sampled, waited_for: WaitedFor::Cohort, ..Self::default() }
    }
}

/// What a round waited for until it closed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitedFor {
    /// Every member of the cohort had answered, failed or been lost.
    #[default]
    Cohort,
    /// `round.count.max` updates were in.
    Count,
    /// `round.time.min` was over, with enough updates in already.
    MinTime,
    /// `round.time.max` was over.
    MaxTime,
    /// `round.count.min` updates were in, after `round.time.max` was over.
    MinCount,
}

impl fmt::Display for WaitedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cohort => "the cohort",
            Self::Count => "enough updates",
            Self::MinTime => "the shortest time",
            Self::MaxTime => "the time limit",
            Self::MinCount => "the fewest updates",
        })
    }
}
