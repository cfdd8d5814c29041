//! FedNova: normalised averaging.
//!
//! Wang, Liu, Liang, Joshi, Poor: *Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization*,
//! NeurIPS 2020 (arXiv 2007.07481), equation 6 with local momentum rho.
//!
//! ```text
//! client k:  w_k = tau_k steps of SGD from w_t
//! server:    a_k = (tau_k - rho (1 - rho^tau_k) / (1 - rho)) / (1 - rho)
//!            w_{t+1} = w_t + (sum p_k a_k) (sum p_k (w_k - w_t) / a_k)
//! ```
//!
//! A client with many steps does not count more for them. The server computes `tau_k` from the number of samples and need not
//! trust a report of it. With equal `tau_k` it is FedAvg.
//!
//! That number cannot be verified either, and the first sum, the effective number of steps, multiplies what all have learned. The
//! paper leaves it free. Here it is at most twice what it would be without the client that adds most to it, if there are three.

use models::Optimizer;
use models::params::ParamSet;
use serde::{Deserialize, Serialize};

use super::{
    Algorithm, Client, Closed, Contribution, Hidden, Incompatible, Round, ServerModel, Setting, TrainError,
};
use crate::aggregation::{MergeError, WeightedSum};
use crate::message::Rejection;
use crate::record::{Record, RecordError, ToRecord};

/// Units of a whole-numbered `a_k`: 2^-20 of a step.
const UNIT: f64 = 1_048_576.0;

/// Prefix of the sum in a record.
const NORMALISED: &str = "normalised.";

/// Federated averaging of normalised updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FedNova {}

/// What the updates of a round fold into. Whole numbers, so that their order does not matter.
#[derive(Debug, PartialEq)]
pub struct Sums {
    /// `sum n_k (w_k - w_t) / a_k`.
    normalised: WeightedSum,
    steps: Steps,
}

/// The numbers of steps of a round's updates, weighed as their models are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Steps {
    /// `sum n_k a_k`, in units, and `sum n_k`.
    sum: u128,
    weight: u128,
    /// The greatest `n_k a_k` and its `n_k`.
    most: (u128, u128),
    clients: u64,
}

impl Steps {
    fn of(weight: u64, steps: f64) -> Self {
        let weight = u128::from(weight);
        let steps = weight * (steps * UNIT).round() as u128;
        Self { sum: steps, weight, most: (steps, weight), clients: 1 }
    }

    fn and(self, other: Self) -> Self {
        Self {
            sum: self.sum.saturating_add(other.sum),
            weight: self.weight.saturating_add(other.weight),
            most: self.most.max(other.most),
            clients: self.clients.saturating_add(other.clients),
        }
    }

    /// `sum p_k a_k`, bounded where there are three clients or more.
    fn effective(self) -> f64 {
        // No updates have no steps, and the sum says that there are none.
        let mean = |steps: u128, weight: u128| steps as f64 / UNIT / weight.max(1) as f64;
        let all = mean(self.sum, self.weight);
        let (most, its_weight) = self.most;
        match self.clients {
            0..=2 => all,
            _ => all.min(2.0 * mean(self.sum.saturating_sub(most), self.weight.saturating_sub(its_weight))),
        }
    }
}

impl Algorithm for FedNova {
    const NAME: &'static str = "fednova";
    const INCOMPATIBLE: &'static [Incompatible] = &[
        (
            Setting::Private,
            "fednova divides by numbers of steps, by which a device would change the sum without a bound: use fedavg, fedprox or moon",
        ),
        (
            Setting::Opaque,
            "fednova divides by what the steps of our optimisers weigh, and a trainer of a device's owner takes its own: use fedavg",
        ),
        (
            Setting::LossWeights,
            "fednova weighs the numbers of steps as it weighs models, one by one as they arrive, and weights by loss are \
             known only when all are there: weigh by samples or uniformly",
        ),
        (
            Setting::AdaptiveSteps,
            "fednova divides by the weight that each gradient has in the sum of the steps, and adaptive steps give no gradient \
             a weight of its own: use training.optimizer.sgd or nesterov",
        ),
        (
            Setting::StepSchedule,
            "fednova divides by numbers of steps, which count alike at one rate alone: leave training.schedule-by-step out",
        ),
        (
            Setting::KeptOptimizer,
            "fednova counts the steps of one round, and a velocity from earlier rounds would add theirs: leave \
             training.keep-optimizer out",
        ),
        (Setting::Robust, "fednova is a way to average, and a robust rule is another: use the mean"),
        (Setting::Matched, "fednova is a way to average, and matching is another: use the mean"),
        (
            Setting::ClippedMean,
            "fednova makes updates comparable by their steps, and clipping by their norm: use one of them",
        ),
    ];
    /// `w_t`.
    type Global = ServerModel;
    type Local = ();
    /// `w_t`.
    type Broadcast = ParamSet;
    /// `w_k - w_t`.
    type Update = ParamSet;
    type Partial = Sums;

    fn init(&self, params: ParamSet) -> ServerModel {
        ServerModel::new(params)
    }

    fn current_model<'a>(&self, server: &'a ServerModel) -> &'a ParamSet {
        &server.w
    }

    fn broadcast(&self, server: &ServerModel) -> ParamSet {
        server.w.clone()
    }

    fn train(&self, client: &mut Client<'_>, w_t: ParamSet, (): &mut ()) -> Result<ParamSet, TrainError> {
        let w_k = client.sgd(&w_t)?;
        client.delta(w_k, &w_t)
    }

    fn eval_model<'a>(&self, w_t: &'a ParamSet, (): &'a ()) -> Option<&'a ParamSet> {
        Some(w_t)
    }

    fn check(&self, round: &Round<'_>, delta: &ParamSet) -> Result<(), Rejection> {
        round.check(delta)
    }

    fn begin(&self, round: &Round<'_>) -> Sums {
        Sums { normalised: round.sum(), steps: Steps::default() }
    }

    fn fold(&self, partial: &mut Sums, contribution: Contribution<ParamSet>, round: &Round<'_>) {
        let Contribution { weight, report, mut update, .. } = contribution;
        let training = &round.spec.training;
        let steps = training.steps(report.samples);
        let steps = match training.optimizer.to_engine() {
            Optimizer::Nesterov(sgd) => looking_ahead(steps, sgd.momentum),
            Optimizer::Sgd(sgd) => normaliser(steps, sgd.momentum),
            // Refused: see the combinations.
            Optimizer::Adam(_) | Optimizer::AdamW(_) => steps as f64,
        };
        for (name, array) in update.iter_mut() {
            // Without steps there is no difference to normalise, and buffers are averaged as they are.
            if steps > 0.0 && !round.template.is_buffer(name) {
                array.values_mut().iter_mut().for_each(|value| *value /= steps as f32);
            }
        }
        round.add(&mut partial.normalised, &update, weight, report.loss);
        partial.steps = partial.steps.and(Steps::of(weight, steps));
    }

    fn merge(&self, into: &mut Sums, other: Sums) -> Result<(), MergeError> {
        into.normalised.merge(&other.normalised)?;
        into.steps = into.steps.and(other.steps);
        Ok(())
    }

    fn mixable<'a>(&self, server: &'a mut ServerModel) -> Option<&'a mut ParamSet> {
        Some(&mut server.w)
    }

    fn close(&self, server: &mut ServerModel, partial: Sums, round: &Round<'_>) -> Closed {
        server.step(partial.normalised, partial.steps.effective() as f32, round)
    }

    fn hidden(&self) -> Option<&dyn Hidden<Sums, ParamSet>> {
        Some(self)
    }
}

/// Numbers of steps follow from those of samples, which the server knows.
impl Hidden<Sums, ParamSet> for FedNova {
    fn nothing(&self, round: &Round<'_>) -> ParamSet {
        round.template.zeros()
    }

    fn numbers<'a>(&self, partial: &'a mut Sums) -> Vec<(String, &'a mut [i64])> {
        partial.normalised.numbers()
    }

    fn hide(&self, partial: &mut Sums) {
        partial.normalised.hide();
    }

    fn reveal(&self, partial: &mut Sums) -> Result<(), String> {
        partial.normalised.reveal()
    }
}

/// The normalised sum under its prefix, the whole numbers as scalars.
impl ToRecord for Sums {
    fn into_record(self) -> Record {
        let parts = [(NORMALISED.to_owned(), self.normalised.into_record())];
        Record::join(&self.steps, parts)
    }

    fn from_record(record: Record) -> Result<Self, RecordError> {
        const EXPECTED: &str = "sums of normalised updates";
        let (steps, mut parts) = record.split(EXPECTED)?;
        let part = parts.remove(NORMALISED).ok_or(RecordError::Incomplete { expected: EXPECTED })?;
        Ok(Self { normalised: WeightedSum::from_record(part)?, steps })
    }
}

/// `a_k`, the sum of the weights that a gradient has in `tau` steps with momentum `rho`.
fn normaliser(tau: u64, rho: f64) -> f64 {
    let tau = tau as f64;
    (tau - rho * (1.0 - rho.powf(tau)) / (1.0 - rho)) / (1.0 - rho)
}

/// [`normaliser`] with Nesterov's momentum: each gradient has in addition the weight that one more step would give it, and its
/// own weight of 1 once.
fn looking_ahead(tau: u64, rho: f64) -> f64 {
    if tau == 0 { 0.0 } else { normaliser(tau + 1, rho) - 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What momentum makes of gradients that are all 1: the sums of the velocities, and of the steps that look ahead.
    fn by_hand(tau: u64, rho: f64) -> (f64, f64) {
        let (mut velocity, mut sum, mut ahead) = (0.0, 0.0, 0.0);
        for _ in 0..tau {
            velocity = rho * velocity + 1.0;
            sum += velocity;
            ahead += 1.0 + rho * velocity;
        }
        (sum, ahead)
    }

    #[test]
    fn one_client_does_not_multiply_the_steps_of_all() {
        let effective = |clients: &[(u64, f64)]| {
            let each = clients.iter().map(|&(weight, steps)| Steps::of(weight, steps));
            let all = each.clone().fold(Steps::default(), Steps::and);
            assert_eq!(each.rev().fold(Steps::default(), Steps::and), all, "the order does not matter");
            all.effective()
        };
        assert!((effective(&[(10, 20.0), (30, 60.0), (20, 40.0)]) - 280.0 / 6.0).abs() < 1e-9);
        // It declares what all others have together, and would make it 45.5 steps.
        let mut clients = vec![(100, 10.0); 9];
        clients.push((900, 90.0));
        assert!((effective(&clients) - 20.0).abs() < 1e-9);
        assert!((effective(&[(1, 1.0), (99, 99.0)]) - 98.02).abs() < 1e-9, "of two none is usual");
        assert!(effective(&[]) < 1e-9, "no updates have no steps");
    }

    #[test]
    fn the_normaliser_is_what_momentum_adds_up_to() {
        for tau in [0, 1, 2, 7, 500] {
            for rho in [0.0, 0.5, 0.9] {
                let (plain, ahead) = by_hand(tau, rho);
                for (found, expected) in [(normaliser(tau, rho), plain), (looking_ahead(tau, rho), ahead)] {
                    assert!((found - expected).abs() <= 1e-9 * expected, "{tau} {rho}: {found} {expected}");
                }
            }
        }
    }
}
