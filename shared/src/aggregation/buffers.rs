//! The aggregation of the statistics that normalisation layers keep.

use serde::{Deserialize, Serialize};

/// The policy for buffers: tensors that follow the data and not a gradient, such as the running mean and variance of
/// batch normalisation ([`models::ParameterKind::Buffer`]). In every case they never meet an optimiser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Buffers {
    /// They are sent and averaged with the weights of the updates, as in plain federated averaging.
    #[default]
    Average,
    /// Each client keeps its own from round to round and sends none (Andreux et al. 2020, `SiloBN`, arXiv 2008.07424). The
    /// global model's stay those of its initialisation: it can be trained from, and is not fit to predict.
    Local,
}
