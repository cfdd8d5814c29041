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

use super::client::GRADIENT_CHUNK;
use super::{Client, ClientNeeds, Incompatible, Objective, Round, ServerModel, Setting, TrainError};

/// Federated SGD. The server's rate eta is `training.optimizer.sgd.learning-rate`, and along `-eta g` it steps as its optimiser
/// says. Statistics of normalisation layers are averaged as in FedAvg.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FedSgd {}

impl Objective for FedSgd {
    const NAME: &'static str = "fedsgd";
    const INCOMPATIBLE: &'static [Incompatible] = &[
        (
            Setting::Opaque,
            "fedsgd takes the gradient by our engine, and a trainer of a device's owner gives a trained model: use fedavg",
        ),
        (Setting::Epochs, "fedsgd takes one step per round, so training.epochs must be 1"),
        (
            Setting::Batches,
            "fedsgd takes the gradient over all local data, so training.batch must be 0 (full batch)",
        ),
        (Setting::Momentum, "fedsgd has no local steps for momentum to act on, so it must be 0"),
        (
            Setting::AdaptiveSteps,
            "fedsgd has no local steps that could be adaptive: use training.optimizer.sgd, and \
             aggregation.server-optimizer.adam at the server",
        ),
        (Setting::StepSchedule, "fedsgd takes one step in a round: leave training.schedule-by-step out"),
        (
            Setting::KeptOptimizer,
            "fedsgd has no local steps that would leave anything to keep: leave training.keep-optimizer out",
        ),
        (
            Setting::Clip,
            "fedsgd has no local steps whose gradients could be shortened: leave training.clip-norm out",
        ),
        (
            Setting::Measured,
            "in fedsgd no client trains a model that could be compared with the global one: leave training.measure out",
        ),
        (
            Setting::LossWeights,
            "the losses of fedsgd are all those of one model and say nothing about who has learned: weigh by samples or \
             uniformly",
        ),
        (
            Setting::Matched,
            "the gradients of fedsgd are all those of one model, whose units are in the same places: take the mean",
        ),
    ];
    type Local = ();

    fn client_needs(&self) -> ClientNeeds {
        // The mean gradient, and a copy of that of a chunk of the samples.
        ClientNeeds { held: 2, batch: Some(GRADIENT_CHUNK as u64), ..ClientNeeds::default() }
    }

    /// Gives `g_k`.
    fn train(&self, client: &mut Client<'_>, w_t: &ParamSet, (): &mut ()) -> Result<ParamSet, TrainError> {
        client.gradient(w_t)
    }

    /// Takes `eta decay w_t` from the parameters, and gives `-eta`.
    fn factor(&self, server: &mut ServerModel, round: &Round<'_>) -> f32 {
        let (rate, decay) = (
            round.spec.optimizer_in(round.number.saturating_sub(round.failed)).rate(),
            round.spec.training.optimizer.decay(),
        );
        if decay <= 0.0 {
            return -rate as f32;
        }
        // Which an architecture that is learned has: it was checked before.
        let spared = round.spec.architecture.spared_by(round.spec.training.decay_on).unwrap_or_default();
        for (tensor, array) in server.w.iter_mut() {
            if !round.template.is_buffer(tensor) && !spared.contains(tensor) {
                array.values_mut().iter_mut().for_each(|w| *w *= (1.0 - rate * decay) as f32);
            }
        }
        -rate as f32
    }
}
