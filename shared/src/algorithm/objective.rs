//! Algorithms that differ from federated averaging at the client, and at most by a factor at the server.

use models::Architecture;
use models::params::ParamSet;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::interface::needs_labels;
use super::{
    Algorithm, Client, ClientNeeds, Closed, Contribution, Hidden, Incompatible, Round, ServerModel, Stored,
    TrainError,
};
use crate::aggregation::{MergeError, StoredUpdates, WeightedSum};
use crate::message::Rejection;
use crate::record::ToRecord;
use crate::seed::Seed;
use crate::spec::{DataSpec, Training};

/// What a client learns for: the client's half of an algorithm whose server averages.
///
/// It starts from `w_t` and answers with a set like it, in general the difference `w_k - w_t` of the model that it has trained.
/// The server's half is the same for all of them, and is configured by [`Aggregation`](crate::aggregation::Aggregation): the
/// updates become one by the rule and the weights, and the server's optimiser steps along it.
///
/// ```text
/// client k:  D_k = train(w_t)
/// server:    D = rule(weights, D_k of all k in S_t),   w_{t+1} = optimiser(w_t, factor D)
/// ```
///
/// Every objective is an [`Algorithm`].
pub trait Objective: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Its name in the configuration: `[algorithm.NAME]`.
    const NAME: &'static str;
    /// What it makes no sense with.
    const INCOMPATIBLE: &'static [Incompatible] = &[];

    /// Kept by the client between rounds; never leaves the device.
    type Local: ToRecord + Default;

    /// As [`Algorithm::validate`].
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }

    /// As [`Algorithm::check_data`].
    fn check_data(&self, data: &DataSpec, training: &Training) -> Result<(), String> {
        needs_labels(Self::NAME, data, training)
    }

    /// As [`Algorithm::client_needs`].
    fn client_needs(&self) -> ClientNeeds {
        ClientNeeds::default()
    }

    /// As [`Algorithm::network`].
    fn network(&self, configured: Architecture) -> Result<Architecture, String> {
        Ok(configured)
    }

    /// As [`Algorithm::start`].
    fn start(&self, network: &Architecture, params: &mut ParamSet, seed: &Seed) {
        let _ = (network, params, seed);
    }

    /// The client's work: from the global model to the difference that it has learned.
    fn train(
        &self,
        client: &mut Client<'_>,
        w_t: &ParamSet,
        local: &mut Self::Local,
    ) -> Result<ParamSet, TrainError>;

    /// By what the server multiplies what the updates become, before it steps along it: 1 for differences of models. It may
    /// change the model before the step.
    fn factor(&self, server: &mut ServerModel, round: &Round<'_>) -> f32 {
        let _ = (server, round);
        1.0
    }
}

impl<O: Objective> Algorithm for O {
    const NAME: &'static str = O::NAME;
    const INCOMPATIBLE: &'static [Incompatible] = O::INCOMPATIBLE;
    type Global = ServerModel;
    type Local = O::Local;
    /// `w_t`.
    type Broadcast = ParamSet;
    /// `D_k`.
    type Update = ParamSet;
    /// Enough for `sum p_k D_k`.
    type Partial = WeightedSum;

    fn validate(&self) -> Result<(), String> {
        Objective::validate(self)
    }

    fn check_data(&self, data: &DataSpec, training: &Training) -> Result<(), String> {
        Objective::check_data(self, data, training)
    }

    fn client_needs(&self) -> ClientNeeds {
        Objective::client_needs(self)
    }

    fn network(&self, configured: Architecture) -> Result<Architecture, String> {
        Objective::network(self, configured)
    }

    fn start(&self, network: &Architecture, params: &mut ParamSet, seed: &Seed) {
        Objective::start(self, network, params, seed);
    }

    fn init(&self, params: ParamSet) -> ServerModel {
        ServerModel::new(params)
    }

    fn current_model<'a>(&self, server: &'a ServerModel) -> &'a ParamSet {
        &server.w
    }

    fn broadcast(&self, server: &ServerModel) -> ParamSet {
        server.w.clone()
    }

    fn train(
        &self,
        client: &mut Client<'_>,
        w_t: ParamSet,
        local: &mut O::Local,
    ) -> Result<ParamSet, TrainError> {
        Objective::train(self, client, &w_t, local)
    }

    fn check(&self, round: &Round<'_>, update: &ParamSet) -> Result<(), Rejection> {
        round.check(update)
    }

    fn begin(&self, round: &Round<'_>) -> WeightedSum {
        round.sum()
    }

    fn fold(&self, partial: &mut WeightedSum, contribution: Contribution<ParamSet>, round: &Round<'_>) {
        let Contribution { weight, report, update, .. } = contribution;
        round.add(partial, &update, weight, report.loss);
    }

    fn merge(&self, into: &mut WeightedSum, other: WeightedSum) -> Result<(), MergeError> {
        into.merge(&other)
    }

    fn mixable<'a>(&self, server: &'a mut ServerModel) -> Option<&'a mut ParamSet> {
        Some(&mut server.w)
    }

    fn close(&self, server: &mut ServerModel, partial: WeightedSum, round: &Round<'_>) -> Closed {
        let factor = self.factor(server, round);
        server.step(partial, factor, round)
    }

    fn eval_model<'a>(&self, w_t: &'a ParamSet, _local: &'a O::Local) -> Option<&'a ParamSet> {
        Some(w_t)
    }

    fn stored(&self) -> Option<&dyn Stored<ServerModel>> {
        Some(self)
    }

    fn hidden(&self) -> Option<&dyn Hidden<WeightedSum, ParamSet>> {
        Some(self)
    }
}

impl<O: Objective> Hidden<WeightedSum, ParamSet> for O {
    fn nothing(&self, round: &Round<'_>) -> ParamSet {
        round.template.zeros()
    }

    fn numbers<'a>(&self, partial: &'a mut WeightedSum) -> Vec<(String, &'a mut [i64])> {
        partial.numbers()
    }

    fn hide(&self, partial: &mut WeightedSum) {
        partial.hide();
    }

    fn reveal(&self, partial: &mut WeightedSum) -> Result<(), String> {
        partial.reveal()
    }
}

impl<O: Objective> Stored<ServerModel> for O {
    fn close_stored(
        &self,
        server: &mut ServerModel,
        updates: &mut dyn StoredUpdates,
        round: &Round<'_>,
    ) -> Closed {
        let factor = self.factor(server, round);
        server.step_stored(updates, factor, round)
    }
}
