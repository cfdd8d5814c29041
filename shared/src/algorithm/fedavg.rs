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

use models::params::ParamSet;
use serde::{Deserialize, Serialize};

use super::{AggregateError, Algorithm, Client, Contribution, Round, TrainError};
use crate::aggregation::ExactSum;
use crate::message::Rejection;

/// Federated averaging. Its knobs (E, B, the rate, the weights p) are axes of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FedAvg {}

impl Algorithm for FedAvg {
    const NAME: &'static str = "fedavg";
    /// `w_t`.
    type Global = ParamSet;
    type Local = ();
    /// `w_t`.
    type Broadcast = ParamSet;
    /// `w_k - w_t`.
    type Update = ParamSet;
    /// `sum n_k (w_k - w_t)` and `sum n_k`.
    type Partial = ExactSum;

    fn init(&self, params: ParamSet) -> ParamSet {
        params
    }

    fn published<'a>(&self, w_t: &'a ParamSet) -> &'a ParamSet {
        w_t
    }

    fn broadcast(&self, w_t: &ParamSet) -> ParamSet {
        w_t.clone()
    }

    fn train(&self, client: &mut Client<'_>, w_t: ParamSet, (): &mut ()) -> Result<ParamSet, TrainError> {
        let mut delta = client.sgd(&w_t)?;
        delta.add_scaled(-1.0, &w_t).map_err(|mismatch| TrainError::Broadcast(mismatch.to_string()))?;
        Ok(delta)
    }

    fn check(&self, round: &Round<'_>, delta: &ParamSet) -> Result<(), Rejection> {
        round.check(delta)
    }

    fn begin(&self, round: &Round<'_>) -> ExactSum {
        ExactSum::new(round.template, round.scale)
    }

    fn fold(&self, partial: &mut ExactSum, contribution: Contribution<ParamSet>) {
        partial.add(&contribution.update, contribution.weight);
    }

    fn merge(&self, into: &mut ExactSum, other: ExactSum) {
        into.merge(&other);
    }

    fn close(&self, w_t: &mut ParamSet, partial: ExactSum, _round: &Round<'_>) -> Result<(), AggregateError> {
        Ok(partial.add_mean_to(w_t, 1.0)?)
    }
}
