//! The server's own training, told apart from the rest of a run.

use std::ops::ControlFlow;

use aggregator::data;
use models::{Backend, ParamSet};
use shared::algorithm::Client;
use shared::spec::{LabelsAt, RunSpec, Training};

use crate::scenario::Scenario;

/// The model of a server that trains from round to round, once for each of these shares of its rate, and clients that do not train: plain
/// SGD, of which the weight of a loss multiplies the rate.
///
/// # Panics
/// If the server of this scenario has no labelled samples, or its training fails.
#[must_use]
pub fn trained_alone(scenario: &Scenario, shares: impl IntoIterator<Item = f64>) -> ParamSet {
    let (spec, plan) = (&scenario.config.spec, &scenario.config.server);
    let kept = data::kept(&scenario.config).expect("samples that can be drawn");
    let labelled = kept.labelled.expect("the server has labelled samples");
    let optimizer = spec.training.optimizer.to_engine();
    (1..).zip(shares).fold(scenario.initial(), |sigma, (round, share): (u32, f64)| {
        let optimizer = optimizer.at_rate(optimizer.rate() * plan.weight * share).into();
        let training = Training { epochs: plan.epochs, optimizer, ..spec.training };
        let mut own = RunSpec { training, ..spec.clone() };
        own.data.labels = LabelsAt::Device;
        let seed = spec.root_seed().derive_numbered("round", u64::from(round)).derive("server");
        let mut monitor = |_| ControlFlow::Continue(());
        let backend = Backend::cpu();
        let mut server = Client::new(&own, round, seed, &labelled, &backend, &mut monitor);
        server.sgd(&sigma).expect("it trains")
    })
}
