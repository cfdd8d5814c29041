//! How many updates become one.

use serde::{Deserialize, Serialize};

use super::Template;
use super::stored::{StoredError, StoredUpdates};
use super::{bulyan, krum, median, trimmed_mean};

/// The aggregation rule: what the server makes of the updates of a round.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Rule {
    /// Their weighted mean, summed up as they arrive.
    Mean {},
    /// The median of each value on its own (Yin et al. 2018, arXiv 1803.01498), all clients alike. It needs every update.
    Median {},
    /// The mean of each value on its own without its smallest and its largest (Yin et al. 2018), all clients alike. It
    /// needs every update.
    TrimmedMean {
        /// The share that is left out at either end, in `[0, 0.5)`.
        beta: f64,
    },
    /// The update that is closest to its neighbours (Blanchard et al. 2017, arXiv 1703.02757). It needs every update.
    Krum {
        /// How many may be wrong, f.
        byzantine: u32,
    },
    /// The mean of those that are closest to their neighbours (Blanchard et al. 2017), all alike. It needs every update.
    MultiKrum {
        /// How many may be wrong, f.
        byzantine: u32,
        /// How many are averaged, m; 0 for all but f.
        chosen: u32,
    },
    /// The mean around the median of those that Krum chooses (El Mhamdi et al. 2018, arXiv 1802.07927). It needs every
    /// update.
    Bulyan {
        /// How many may be wrong, f.
        byzantine: u32,
    },
    /// The weighted mean of models whose hidden units were first matched with the global model's (`FedMA`, Wang et al. 2020,
    /// arXiv 2002.06440), for networks that are a [`Chain`](super::Chain). It needs every update.
    Fedma {},
    /// The weighted mean of updates that are not longer than a bound (Sun et al. 2019, arXiv 1911.07963), summed up as they
    /// arrive.
    ClippedMean {
        /// The greatest norm of an update, M; longer ones are shortened to it.
        bound: f64,
    },
}

impl Default for Rule {
    fn default() -> Self {
        Self::Mean {}
    }
}

impl Rule {
    /// Each rule with the settings that it has when none are given.
    pub const ALL: [Self; 8] = [
        Self::Mean {},
        Self::Median {},
        Self::TrimmedMean { beta: 0.2 },
        Self::Krum { byzantine: 1 },
        Self::MultiKrum { byzantine: 1, chosen: 0 },
        Self::Bulyan { byzantine: 1 },
        Self::Fedma {},
        Self::ClippedMean { bound: 10.0 },
    ];

    /// Whether the updates must all be there before anything can be made of them. They are then kept on disk until the
    /// round closes instead of being summed up.
    #[must_use]
    pub fn needs_every_update(&self) -> bool {
        !matches!(self, Self::Mean {} | Self::ClippedMean { .. })
    }

    /// Whether it counts all clients alike, regardless of their samples: it withstands wrong updates.
    #[must_use]
    pub fn counts_alike(&self) -> bool {
        self.needs_every_update() && *self != Self::Fedma {}
    }

    /// The number of updates without which it says nothing, or does nothing of what it is for.
    #[must_use]
    pub fn least(&self) -> usize {
        match *self {
            Self::Mean {} | Self::Median {} | Self::Fedma {} | Self::ClippedMean { .. } => 1,
            Self::TrimmedMean { beta } => trimmed_mean::least(beta),
            Self::Krum { byzantine } => krum::least(byzantine),
            // With more chosen than are right, those that are wrong would be among them.
            Self::MultiKrum { byzantine, chosen } => match chosen {
                0 => krum::least(byzantine),
                _ => krum::least(byzantine).max(chosen as usize + byzantine as usize),
            },
            Self::Bulyan { byzantine } => bulyan::least(byzantine),
        }
    }

    /// Where [`least`](Self::least) comes from, as a formula; `None` where one update is enough.
    #[must_use]
    pub fn bound(&self) -> Option<&'static str> {
        match self {
            Self::Mean {} | Self::Median {} | Self::Fedma {} | Self::ClippedMean { .. } => None,
            Self::TrimmedMean { .. } => Some("beta m >= 1, or none is left out"),
            Self::Krum { .. } => Some("m >= 2 f + 3"),
            Self::MultiKrum { .. } => Some("m >= 2 f + 3 and m >= chosen + f"),
            Self::Bulyan { .. } => Some("m >= 4 f + 3"),
        }
    }

    /// Makes one update of those that were stored, at least [`least`](Self::least) of them, and gives it to `visit`, as
    /// [`ExactSum::each_mean`](super::ExactSum::each_mean) does. `template` is that of the updates.
    ///
    /// # Panics
    /// For a rule that does not [count clients alike](Self::counts_alike): nothing is stored for a mean, and what is matched
    /// is matched with the global model.
    pub fn each_value(
        &self,
        updates: &mut dyn StoredUpdates,
        template: &Template,
        visit: &mut dyn FnMut(&str, usize, &[f32]),
    ) -> Result<(), StoredError> {
        match *self {
            Self::Mean {} | Self::Fedma {} | Self::ClippedMean { .. } => {
                panic!("a mean is summed up on arrival, and matching is with the global model")
            }
            Self::Median {} => median::each_median(updates, visit),
            Self::TrimmedMean { beta } => trimmed_mean::each_trimmed_mean(updates, beta, visit),
            Self::Krum { byzantine } => krum::each_mean_of_best(updates, template, byzantine, 1, visit),
            Self::MultiKrum { byzantine, chosen } => {
                let chosen = match chosen {
                    0 => updates.contributors().len().saturating_sub(byzantine as usize).max(1),
                    chosen => chosen as usize,
                };
                krum::each_mean_of_best(updates, template, byzantine, chosen, visit)
            }
            Self::Bulyan { byzantine } => bulyan::each_bulyan(updates, template, byzantine, visit),
        }
    }

    /// Its name in the configuration.
    #[must_use]
    pub fn name(&self) -> &'static str {
        let key = self.key();
        key.rsplit_once('.').map_or(key, |(_, name)| name)
    }

    /// The full path of its table in the configuration.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self {
            Self::Mean {} => "aggregation.rule.mean",
            Self::Median {} => "aggregation.rule.median",
            Self::TrimmedMean { .. } => "aggregation.rule.trimmed-mean",
            Self::Krum { .. } => "aggregation.rule.krum",
            Self::MultiKrum { .. } => "aggregation.rule.multi-krum",
            Self::Bulyan { .. } => "aggregation.rule.bulyan",
            Self::Fedma {} => "aggregation.rule.fedma",
            Self::ClippedMean { .. } => "aggregation.rule.clipped-mean",
        }
    }
}
