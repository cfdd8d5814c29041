//! The counts of a round.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The counts of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// Members of the cohort, replacements included.
    pub sampled: usize,
    /// Accepted updates.
    pub accepted: usize,
    /// Rejected updates: malformed, out of bounds, not asked for.
    pub rejected: usize,
    /// Discarded updates: valid, but late or sent twice.
    pub discarded: usize,
    /// Members that could not train.
    pub failed: usize,
    /// Accepted updates that were trained on the model of an earlier round.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late: usize,
    /// Members that were not eligible to train.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub not_now: usize,
    /// Members that were asked and have disconnected.
    pub lost: usize,
    /// What the round waited for last.
    pub waited_for: WaitedFor,
    /// Whether the round is void: it closes without changing the model, with too few updates and no client left to ask.
    pub void: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
pub(super) fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Tally {
    /// The counts of a cohort of `sampled` clients that have all contributed.
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
    /// `round.max-updates` updates were in.
    Count,
    /// `round.min-wait` was over, with enough updates in already.
    MinTime,
    /// `round.timeout` was over.
    MaxTime,
    /// `round.min-updates` updates were in, after `round.timeout` was over.
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
