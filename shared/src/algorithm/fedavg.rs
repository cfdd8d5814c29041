//! FedAvg: federated averaging.
//!
//! McMahan, Moore, Ramage, Hampson, Agüera y Arcas: *Communication-Efficient Learning of Deep Networks from
//! Decentralized Data*, AISTATS 2017 (arXiv 1602.05629), Algorithm 1.
//!
//! ```text
//! client k:  w_k = E epochs of minibatch SGD from w_t on its own data
//! server:    w_{t+1} = w_t + sum_{k in S_t} p_k (w_k - w_t),   p_k = n_k / sum_{j in S_t} n_j
//! ```
//!
//! The printed algorithm normalises by all K clients; that is an erratum, the sum is over the cohort. Deltas
//! travel instead of weights: they are small numbers, so that 16 bits lose little.
//!
//! With another [`ServerOptimizer`](crate::aggregation::ServerOptimizer) it is `FedAvgM`, `FedAdagrad`, `FedAdam` or
//! `FedYogi`.

use models::params::ParamSet;
use serde::{Deserialize, Serialize};

use super::{Client, Objective, TrainError};

/// Federated averaging. Its knobs (E, B, the rate, the weights p) are settings of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FedAvg {}

impl Objective for FedAvg {
    const NAME: &'static str = "fedavg";
    type Local = ();

    fn train(&self, client: &mut Client<'_>, w_t: &ParamSet, (): &mut ()) -> Result<ParamSet, TrainError> {
        let w_k = client.sgd(w_t)?;
        client.delta(w_k, w_t)
    }
}
