//! The interface of a federated algorithm.

use models::Architecture;
use models::params::ParamSet;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::answering::Answering;
use super::capability::{Hidden, Personal, Stored, Supervised};
use super::{Client, ClientNeeds, Closed, Contribution, Incompatible, Round, TrainError};
use crate::aggregation::MergeError;
use crate::message::Rejection;
use crate::record::ToRecord;
use crate::seed::Seed;
use crate::spec::{DataSpec, LabelsAt, Training};

/// A federated algorithm: both halves of it.
///
/// The server's half never sees a clock, a socket or a file, the client's half sees the device through [`Client`] alone. Methods
/// stand in the order in which one round runs them; after them come the [capabilities](super::capability).
pub trait Algorithm: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Its name in the configuration: `[algorithm.NAME]`.
    const NAME: &'static str;
    /// The settings that it does not go with.
    const INCOMPATIBLE: &'static [Incompatible] = &[];

    /// Kept by the server between rounds; checkpointed.
    type Global: ToRecord + Send + 'static;
    /// Kept by the client between rounds; never leaves the device.
    type Local: ToRecord + Default;
    /// Server to client, the same for the whole cohort: it is encoded once, however many clients there are.
    type Broadcast: ToRecord;
    /// Client to server.
    type Update: ToRecord + Send + 'static;
    /// The result of some of a round's updates. Partial results merge in any order to the same bits, in threads or processes: they
    /// hold exact sums, and nothing that the round itself says.
    type Partial: ToRecord + Send + 'static;

    /// How peers before protocol version 6 would have the hyper-parameters that they do not know, which come last, at their
    /// defaults. A run with others is refused to them.
    #[must_use]
    fn later() -> Vec<u8> {
        Vec::new()
    }

    /// Refuses hyper-parameters that make no sense, with the name of the parameter and what is accepted.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }

    /// Refuses samples that clients cannot learn from under it, with the reason and what to do instead. Most algorithms learn
    /// from labels, which a device does not have whose labels are at the server.
    fn check_data(&self, data: &DataSpec, training: &Training) -> Result<(), String> {
        needs_labels(Self::NAME, data, training)
    }

    /// What a client needs of its memory.
    fn client_needs(&self) -> ClientNeeds {
        ClientNeeds::default()
    }

    /// The network that it learns if this one is configured, or why it cannot.
    fn network(&self, configured: Architecture) -> Result<Architecture, String> {
        Ok(configured)
    }

    /// Changes the initial parameters of a [network](Self::network) of which some do not start as its layers have them.
    fn start(&self, network: &Architecture, params: &mut ParamSet, seed: &Seed) {
        let _ = (network, params, seed);
    }

    /// The server's state before the first round. The server alone initialises parameters.
    fn init(&self, params: ParamSet) -> Self::Global;

    /// The model that is evaluated and saved at this point of the run.
    fn current_model<'a>(&self, global: &'a Self::Global) -> &'a ParamSet;

    /// What the cohort is sent when a round opens.
    fn broadcast(&self, global: &Self::Global) -> Self::Broadcast;

    /// The client's work: from the broadcast to the update.
    fn train(
        &self,
        client: &mut Client<'_>,
        received: Self::Broadcast,
        local: &mut Self::Local,
    ) -> Result<Self::Update, TrainError>;

    /// The model that a client tests on its own data, of what it was sent and what it keeps. `None` if clients are sent no model.
    fn eval_model<'a>(&self, received: &'a Self::Broadcast, local: &'a Self::Local) -> Option<&'a ParamSet> {
        let _ = (received, local);
        None
    }

    /// Refuses an update that cannot be believed. Asked before anything of it is used.
    fn check(&self, round: &Round<'_>, update: &Self::Update) -> Result<(), Rejection>;

    /// The partial result of no updates.
    fn begin(&self, round: &Round<'_>) -> Self::Partial;

    /// Folds one checked update in.
    fn fold(&self, partial: &mut Self::Partial, contribution: Contribution<Self::Update>, round: &Round<'_>);

    /// Folds another partial result of the same round in.
    ///
    /// # Errors
    /// [`MergeError`] if it is of another round. `into` must not be used any more after that.
    fn merge(&self, into: &mut Self::Partial, other: Self::Partial) -> Result<(), MergeError>;

    /// Ends the round: the folded updates become the new state.
    fn close(&self, global: &mut Self::Global, partial: Self::Partial, round: &Round<'_>) -> Closed;

    /// Ends a round that failed for lack of updates: the [model](Self::current_model) stays. The clients of those that came were
    /// told that they count, and have changed their own state: here the server changes its half of it. By default it has none.
    fn close_failed(&self, global: &mut Self::Global, partial: Self::Partial, round: &Round<'_>) -> Closed {
        let _ = (global, partial, round);
        Ok(())
    }

    /// The model that may be mixed with others after a round: the mean of what clients have learned and not, for example, one of
    /// several tensors that belong together. `None` if nothing can be mixed with it.
    fn mixable<'a>(&self, global: &'a mut Self::Global) -> Option<&'a mut ParamSet> {
        let _ = global;
        None
    }

    /// The server's own training, if it is a step of this algorithm and not something that is mixed in.
    fn supervised(&self) -> Option<&dyn Supervised<Self::Global>> {
        None
    }

    /// The clients' own models, if these are what is deployed.
    fn personal(&self) -> Option<&dyn Personal<Self::Global, Self::Update>> {
        None
    }

    /// How its result answers, if that is no model but those of the clients side by side. Then the server's state is not tested,
    /// clients are sent no model that could be, and every update that has tensors is the difference of a member of the ensemble
    /// to the [current model](Self::current_model).
    fn ensemble(&self) -> Option<Answering> {
        None
    }

    /// Whether one round is all that it needs: a run has one then, unless its configuration says how many.
    fn one_shot(&self) -> bool {
        false
    }

    /// How its updates add up while they are hidden, if it goes with secure aggregation.
    fn hidden(&self) -> Option<&dyn Hidden<Self::Partial, Self::Update>> {
        None
    }

    /// How a round ends under a rule that needs every update, if the algorithm goes with such rules.
    fn stored(&self) -> Option<&dyn Stored<Self::Global>> {
        None
    }
}

/// Refuses samples whose labels are not on the devices, if anything is learned there.
pub(super) fn needs_labels(name: &str, data: &DataSpec, training: &Training) -> Result<(), String> {
    if data.labels == LabelsAt::Device || training.epochs == 0 {
        return Ok(());
    }
    Err(format!(
        "clients learn from their labels under {name}, and devices without labels have none; use fedmix, or set \
         training.epochs = 0 so that the server alone learns"
    ))
}
