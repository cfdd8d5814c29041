//! How many updates become one.

use std::ops::Bound::{Excluded, Included};

use super::Template;
use super::columns::{each_column, mean};
use super::stored::{StoredError, StoredUpdates};
use super::{bulyan, krum, median, trimmed_mean};
use crate::settings::Kind;

crate::choice! {
    /// The aggregation rule: what the server makes of the updates of a round.
    pub enum Rule {
        /// The weighted mean
        ///
        /// It is summed up as updates arrive.
        Mean {}
        /// The median of each value; needs every update
        ///
        /// All clients count alike (Yin et al. 2018, arXiv 1803.01498).
        Median {}
        /// The mean of each value without its smallest and its largest; needs every update
        ///
        /// All clients count alike (Yin et al. 2018).
        TrimmedMean {
            /// Share of each value's smallest and of its largest left out; needs every update
            beta: f64 = 0.2, in Kind::Number(Included(0.0), Excluded(0.5));
        }
        /// The update that is closest to its neighbours; needs every update
        ///
        /// Blanchard et al. 2017, arXiv 1703.02757.
        Krum {
            /// How many updates may be wrong, f; needs every update
            byzantine: u32 = 1, in BYZANTINE;
        }
        /// The mean of the updates that are closest to their neighbours, all alike; needs every update
        ///
        /// Blanchard et al. 2017.
        MultiKrum {
            /// How many updates may be wrong, f; needs every update
            byzantine: u32 = 1, in BYZANTINE;
            /// How many updates are averaged, m; 0 is all but f
            chosen: u32 = 0, in Kind::COUNT;
        }
        /// The mean around the median of the updates that Krum chooses; needs every update
        ///
        /// El Mhamdi et al. 2018, arXiv 1802.07927.
        Bulyan {
            /// How many updates may be wrong, f; needs every update
            byzantine: u32 = 1, in BYZANTINE;
        }
        /// The weighted mean of models with matched units (FedMA); needs every update
        ///
        /// Hidden units are matched with the global model's first (`FedMA`, Wang et al. 2020, arXiv 2002.06440), in networks that are
        /// a [`Chain`](super::Chain). It costs [`comparisons`](super::Chain::comparisons) for each client, and for one whose units are near
        /// none of the global model's up to the cube of a layer's units: two minutes for 4,620. Layers keep the numbers of their units: the
        /// growth of layers of `FedMA` is not part of it.
        Fedma {}
        /// The weighted mean of updates that are not longer than a bound
        ///
        /// Sun et al. 2019, arXiv 1911.07963. It is summed up as updates arrive.
        ClippedMean {
            /// The greatest norm of an update, M; longer ones are shortened to it
            max_norm: f64 = 10.0, in Kind::RATE, was "bound";
        }
    }
}

/// Small enough that a few times as many are still a number of clients.
const BYZANTINE: Kind = Kind::Whole(0, 1_000_000);

impl Rule {
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
        let all: Vec<usize> = (0..updates.contributors().len()).collect();
        match *self {
            Self::Mean {} | Self::Fedma {} | Self::ClippedMean { .. } => {
                panic!("a mean is summed up on arrival, and matching is with the global model")
            }
            Self::Median {} => each_column(updates, &all, median::median, visit),
            Self::TrimmedMean { beta } => {
                let cut = trimmed_mean::cut(beta, all.len());
                each_column(updates, &all, |values| trimmed_mean::trimmed_mean(values, cut), visit)
            }
            Self::Krum { byzantine } => {
                let best = krum::choose(updates, template, byzantine, 1)?;
                each_column(updates, &best, |values| mean(values), visit)
            }
            Self::MultiKrum { byzantine, chosen } => {
                let chosen = match chosen {
                    0 => all.len().saturating_sub(byzantine as usize).max(1),
                    chosen => chosen as usize,
                };
                let best = krum::choose(updates, template, byzantine, chosen)?;
                each_column(updates, &best, |values| mean(values), visit)
            }
            Self::Bulyan { byzantine } => {
                let byzantine = byzantine as usize;
                let chosen = bulyan::choose(updates, template, byzantine)?;
                let kept = chosen.len().saturating_sub(2 * byzantine).max(1);
                each_column(updates, &chosen, |values| bulyan::mean_around_median(values, kept), visit)
            }
        }
    }

    /// The full path of its table in the configuration.
    #[must_use]
    pub fn key(&self) -> String {
        format!("aggregation.rule.{}", self.name())
    }
}
