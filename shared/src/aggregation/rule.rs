//! How many updates become one.

use serde::{Deserialize, Serialize};

use super::stored::{StoredError, StoredUpdates};

/// The aggregation rule: what the server makes of the updates of a round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rule {
    /// Their weighted mean, summed up as they arrive.
    Mean {},
    /// The median of each value on its own (Yin et al. 2018, arXiv 1803.01498), all clients alike. It needs every update.
    Median {},
}

impl Default for Rule {
    fn default() -> Self {
        Self::Mean {}
    }
}

impl Rule {
    /// Whether the updates must all be there before anything can be made of them. They are then kept on disk until the
    /// round closes instead of being summed up.
    #[must_use]
    pub fn needs_every_update(&self) -> bool {
        !matches!(self, Self::Mean {})
    }

    /// Makes one update of those that were stored and gives it to `visit`, as
    /// [`ExactSum::each_mean`](super::ExactSum::each_mean) does.
    ///
    /// # Panics
    /// For a rule that does not [need every update](Self::needs_every_update): nothing is stored for it.
    pub fn each_value(
        &self,
        updates: &mut dyn StoredUpdates,
        visit: &mut dyn FnMut(&str, usize, &[f32]),
    ) -> Result<(), StoredError> {
        match self {
            Self::Mean {} => panic!("the mean is summed up on arrival, and no update is stored for it"),
            Self::Median {} => super::median::each_median(updates, visit),
        }
    }

    /// Its name in the configuration.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mean {} => "mean",
            Self::Median {} => "median",
        }
    }
}
