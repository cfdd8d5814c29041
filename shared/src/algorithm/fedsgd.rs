//! FedSGD: one large-batch gradient step per round.
//!
//! McMahan et al., AISTATS 2017 (arXiv 1602.05629), section 2: the baseline of federated averaging.
//!
//! ```text
//! client k:  g_k = gradient of the mean loss over its own data at w_t
//! server:    w_{t+1} = w_t - eta (sum_{k in S_t} p_k g_k + decay w_t)
//! ```
//!
//! Equal to FedAvg with B = infinity and E = 1 up to rounding.

use models::params::ParamSet;
use serde::{Deserialize, Serialize};

use super::{AggregateError, Algorithm, Client, Contribution, Round, TrainError};
use crate::aggregation::ExactSum;
use crate::message::Rejection;
use crate::spec::Training;

/// Federated SGD. The server's rate eta is `training.optimizer.sgd.rate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FedSgd {}

impl Algorithm for FedSgd {
    const NAME: &'static str = "fedsgd";
    /// `w_t`.
    type Global = ParamSet;
    type Local = ();
    /// `w_t`.
    type Broadcast = ParamSet;
    /// `g_k`.
    type Update = ParamSet;
    /// `sum n_k g_k` and `sum n_k`.
    type Partial = ExactSum;

    fn validate(&self, training: &Training) -> Result<(), String> {
        let Training { epochs, batch, sgd } = training;
        let mut reasons = Vec::new();
        if *epochs != 1 {
            reasons
                .push(format!("fedsgd takes one step per round, so training.epochs must be 1, not {epochs}"));
        }
        if *batch != 0 {
            reasons.push(format!(
                "fedsgd takes the gradient over all local data, so training.batch must be 0 (full batch), not {batch}"
            ));
        }
        if sgd.momentum != 0.0 {
            reasons.push(format!(
                "fedsgd has no local steps for momentum to act on, so training.optimizer.sgd.momentum must be 0, not {}",
                sgd.momentum
            ));
        }
        if reasons.is_empty() { Ok(()) } else { Err(reasons.join("; ")) }
    }

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
        client.gradient(&w_t)
    }

    fn check(&self, round: &Round<'_>, gradient: &ParamSet) -> Result<(), Rejection> {
        round.check(gradient)
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

    fn close(&self, w_t: &mut ParamSet, partial: ExactSum, round: &Round<'_>) -> Result<(), AggregateError> {
        let sgd = round.spec.training.sgd;
        w_t.scale((1.0 - sgd.rate * sgd.decay) as f32);
        Ok(partial.add_mean_to(w_t, -sgd.rate as f32)?)
    }
}
