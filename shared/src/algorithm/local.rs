//! Local training without federation: the baseline that a federation must beat.
//!
//! ```text
//! client k:  w_k <- E epochs of minibatch SGD from its own w_k, starting from w_0
//! server:    nothing; what is tested is the mean over the cohort of each client's own model
//! ```
//!
//! Clients send the difference `w_k - w_0` for the test only.

use models::params::ParamSet;
use serde::{Deserialize, Serialize};

use super::{Algorithm, Client, Closed, Contribution, Incompatible, Personal, Round, Setting, TrainError};
use crate::aggregation::{EmptySum, MergeError};
use crate::message::Rejection;

/// Local training without federation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Local {}

const ALONE: &str = "in local every client is alone and nothing is aggregated: leave [aggregation] out";

impl Algorithm for Local {
    const NAME: &'static str = "local";
    const INCOMPATIBLE: &'static [Incompatible] = &[
        (Setting::Secure, "local sends nothing that could be added up: use fedavg"),
        (
            Setting::Private,
            "local sends nothing that is summed up, so that there is nothing to hide: leave [privacy] out",
        ),
        (
            Setting::Opaque,
            "local tests the models of single clients by our engine, which has no layers of them: use fedavg",
        ),
        (
            Setting::TopK,
            "local sends whole models to be tested, and one of a few values is no client's: leave update.top-k out",
        ),
        (Setting::UniformWeights, ALONE),
        (Setting::LossWeights, ALONE),
        (Setting::ServerSgd, ALONE),
        (Setting::AdaptiveServer, ALONE),
        (Setting::Robust, ALONE),
        (Setting::Matched, ALONE),
        (Setting::ClippedMean, ALONE),
        (
            Setting::Mixed,
            "in local every client is alone, and there is no model to mix: leave server.mixing and data.labelled out",
        ),
        (
            Setting::LocalBuffers,
            "in local the whole model stays on the device and is sent to be tested alone: leave aggregation.buffers out",
        ),
        (
            Setting::Late,
            "in local every client is alone, and no update is late: leave round.staleness.enabled out",
        ),
    ];
    /// `w_0`.
    type Global = ParamSet;
    /// `w_k`; empty before the first round.
    type Local = ParamSet;
    /// `w_0`.
    type Broadcast = ParamSet;
    /// `w_k - w_0`.
    type Update = ParamSet;
    /// The number of updates.
    type Partial = u64;

    fn init(&self, params: ParamSet) -> ParamSet {
        params
    }

    fn current_model<'a>(&self, w_0: &'a ParamSet) -> &'a ParamSet {
        w_0
    }

    fn broadcast(&self, w_0: &ParamSet) -> ParamSet {
        w_0.clone()
    }

    fn train(
        &self,
        client: &mut Client<'_>,
        w_0: ParamSet,
        w_k: &mut ParamSet,
    ) -> Result<ParamSet, TrainError> {
        let start = if w_k.is_empty() { &w_0 } else { &*w_k };
        *w_k = client.sgd(start)?;
        client.delta(w_k.clone(), &w_0)
    }

    fn check(&self, round: &Round<'_>, delta: &ParamSet) -> Result<(), Rejection> {
        round.check(delta)
    }

    fn begin(&self, _round: &Round<'_>) -> u64 {
        0
    }

    fn fold(&self, partial: &mut u64, _contribution: Contribution<ParamSet>, _round: &Round<'_>) {
        *partial += 1;
    }

    fn merge(&self, into: &mut u64, other: u64) -> Result<(), MergeError> {
        *into = into.saturating_add(other);
        Ok(())
    }

    fn close(&self, _w_0: &mut ParamSet, partial: u64, _round: &Round<'_>) -> Closed {
        if partial == 0 { Err(EmptySum.into()) } else { Ok(()) }
    }

    fn eval_model<'a>(&self, w_0: &'a ParamSet, w_k: &'a ParamSet) -> Option<&'a ParamSet> {
        Some(if w_k.is_empty() { w_0 } else { w_k })
    }

    fn personal(&self) -> Option<&dyn Personal<ParamSet, ParamSet>> {
        Some(self)
    }
}

impl Personal<ParamSet, ParamSet> for Local {
    fn deployed(&self, w_0: &ParamSet, delta: ParamSet) -> Option<ParamSet> {
        let mut w_k = delta;
        // The update fits, because it was checked when it was accepted.
        w_k.add(w_0).ok()?;
        Some(w_k)
    }
}
