//! Federated algorithms as values.
//!
//! An algorithm's hyper-parameters are its fields, its two halves are the methods of [`Algorithm`] in the
//! order in which one round runs them, and everything that crosses the network or survives a round is one of
//! its associated types. Adding an algorithm is one file with both halves and one line in the
//! [registry](registry::ALGORITHMS); the registry's tests then cover it.
//!
//! Most algorithms differ from federated averaging at the client alone. Such a one is an [`Objective`]: one method. Its
//! server half is that of [`aggregation`](crate::aggregation), whose settings it combines with as [`combinations`] says.
//!
//! # A complete algorithm
//!
//! Federated statistics: every client reports the mean label of its data as a one-element tensor, the
//! server keeps the mean over all clients weighted by samples. Nothing is trained, everything else is real.
//!
//! ```
//! use models::params::{Array, ParamSet};
//! use serde::{Deserialize, Serialize};
//! use shared::aggregation::ExactSum;
//! use shared::algorithm::{AggregateError, Algorithm, Client, Contribution, Round, TrainError};
//! use shared::message::Rejection;
//!
//! #[derive(Serialize, Deserialize)]
//! struct MeanLabel {}
//!
//! impl Algorithm for MeanLabel {
//!     const NAME: &'static str = "mean-label";
//!     type Global = ParamSet;
//!     type Local = ();
//!     type Broadcast = ();
//!     type Update = ParamSet;
//!     type Partial = ExactSum;
//!
//!     fn init(&self, params: ParamSet) -> ParamSet {
//!         params
//!     }
//!     fn published<'a>(&self, global: &'a ParamSet) -> &'a ParamSet {
//!         global
//!     }
//!     fn broadcast(&self, _global: &ParamSet) {}
//!     fn train(&self, client: &mut Client<'_>, (): (), (): &mut ()) -> Result<ParamSet, TrainError> {
//!         let data = client.data();
//!         let sum: u32 = (0..data.len()).flat_map(|i| data.labels_of(i)).sum();
//!         let mut update = ParamSet::new();
//!         update.insert("mean", Array::new(vec![1], vec![sum as f32 / data.len() as f32]).expect("one value"));
//!         Ok(update)
//!     }
//!     fn check(&self, round: &Round<'_>, update: &ParamSet) -> Result<(), Rejection> {
//!         round.check(update)
//!     }
//!     fn begin(&self, round: &Round<'_>) -> ExactSum {
//!         ExactSum::new(round.template, round.scale)
//!     }
//!     fn fold(&self, partial: &mut ExactSum, contribution: Contribution<ParamSet>) {
//!         partial.add(&contribution.update, contribution.weight);
//!     }
//!     fn merge(&self, into: &mut ExactSum, other: ExactSum) {
//!         into.merge(&other);
//!     }
//!     fn close(&self, global: &mut ParamSet, partial: ExactSum, _round: &Round<'_>) -> Result<(), AggregateError> {
//!         *global = partial.mean()?;
//!         Ok(())
//!     }
//! }
//!
//! // Two clients with 1 and 3 samples and mean labels 4 and 8, folded in any order, average to 7.
//! # use shared::aggregation::{Scale, Template, Weights};
//! # use shared::id::ClientId;
//! # use shared::message::TrainReport;
//! # let one = |v: f32| { let mut p = ParamSet::new(); p.insert("mean", Array::new(vec![1], vec![v]).unwrap()); p };
//! let mut global = MeanLabel {}.init(one(0.0));
//! # let spec = shared::spec::RunSpec::example("mean-label");
//! # let template = Template::of(&global);
//! # let scale = Scale::agree(10.0, 3, 2);
//! # let round = Round { number: 1, spec: &spec, template: &template, scale, clients: 2 };
//! let mut partial = MeanLabel {}.begin(&round);
//! for (weight, value) in [(3, 8.0), (1, 4.0)] {
//! #   let client = ClientId::virtual_client(0, &spec.root_seed());
//! #   let report = TrainReport::default();
//!     MeanLabel {}.fold(&mut partial, Contribution { client, weight, report, update: one(value) });
//! }
//! MeanLabel {}.close(&mut global, partial, &round).unwrap();
//! assert_eq!(global, one(7.0));
//! ```

mod client;
pub mod combinations;
mod erased;
pub mod fafi;
mod fedavg;
mod fedmatch;
mod fedmix;
mod fednova;
mod fedprox;
mod fedsgd;
mod local;
mod measure;
mod moon;
mod objective;
pub mod registry;
mod round;
mod scaffold;
mod server_model;
mod train_error;
mod unlabelled;

use models::Architecture;
use models::params::{Mismatch, ParamSet};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::aggregation::{EmptySum, NotAChain, StoredError, StoredUpdates};
use crate::message::Rejection;
use crate::record::ToRecord;
use crate::spec::{DataSpec, LabelsAt, RunSpec, Training};

pub use client::{Client, Drawn, Workbench};
pub use combinations::{Conflict, Incompatible, Setting, Settings};
pub use erased::{Checked, ErasedAlgorithm, Global, Partial, Trained};
pub use fafi::{Answering, Fafi, Fusion};
pub use fedavg::FedAvg;
pub use fedmatch::FedMatch;
pub use fedmix::{FedMix, Perturbation};
pub use fednova::FedNova;
pub use fedprox::FedProx;
pub use fedsgd::FedSgd;
pub use local::Local;
pub use moon::Moon;
pub use objective::Objective;
pub use round::{Contribution, Round};
pub use scaffold::Scaffold;
pub use server_model::ServerModel;
pub use train_error::TrainError;

/// A federated algorithm: both halves of it.
///
/// The server's half never sees a clock, a socket or a file, the client's half sees the device through
/// [`Client`] alone. Methods stand in the order in which one round runs them.
pub trait Algorithm: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Its name in the configuration: `[algorithm.NAME]`.
    const NAME: &'static str;
    /// What it makes no sense with.
    const INCOMPATIBLE: &'static [Incompatible] = &[];

    /// Whether the server's own training on labelled samples is a step of it, in place of something that is mixed in: before
    /// the first round and at the end of each, from [`published`](Self::published).
    const SUPERVISED: bool = false;

    /// Kept by the server between rounds; checkpointed.
    type Global: ToRecord + Send + 'static;
    /// Kept by the client between rounds; never leaves the device.
    type Local: ToRecord + Default;
    /// Server to client, the same for the whole cohort: it is encoded once, however many clients there are.
    type Broadcast: ToRecord;
    /// Client to server.
    type Update: ToRecord;
    /// What a set of updates folds into: mergeable, and free of their order.
    type Partial: Send + 'static;

    /// Refuses hyper-parameters that make no sense, with the name of the parameter and what is accepted.
    fn validate(&self) -> Result<(), String> {
        Ok(())
    }

    /// Refuses samples that clients cannot learn from under it, with the reason and what to do instead. Most algorithms learn
    /// from labels, which a device does not have whose labels are at the server.
    fn check_data(&self, data: &DataSpec, training: &Training) -> Result<(), String> {
        needs_labels(Self::NAME, data, training)
    }

    /// The network that it learns if this one is configured, or why it cannot.
    fn network(&self, configured: Architecture) -> Result<Architecture, String> {
        Ok(configured)
    }

    /// The server's state before the first round. The server alone initialises parameters.
    fn init(&self, params: ParamSet) -> Self::Global;

    /// The model that the server would publish now: what is evaluated and saved.
    fn published<'a>(&self, global: &'a Self::Global) -> &'a ParamSet;

    /// What the cohort is sent when a round opens.
    fn broadcast(&self, global: &Self::Global) -> Self::Broadcast;

    /// The client's work: from the broadcast to the update.
    fn train(
        &self,
        client: &mut Client<'_>,
        received: Self::Broadcast,
        local: &mut Self::Local,
    ) -> Result<Self::Update, TrainError>;

    /// Is the update believable? Asked before anything of it is used.
    fn check(&self, round: &Round<'_>, update: &Self::Update) -> Result<(), Rejection>;

    /// The partial result of no updates.
    fn begin(&self, round: &Round<'_>) -> Self::Partial;

    /// Folds one checked update in.
    fn fold(&self, partial: &mut Self::Partial, contribution: Contribution<Self::Update>);

    /// Folds another partial result of the same round in.
    fn merge(&self, into: &mut Self::Partial, other: Self::Partial);

    /// Takes in what accepted updates say that holds although their round came to nothing for want of others: their clients were
    /// told that they count, and what these keep has changed with them. The [model](Self::published) stays. By default there is
    /// nothing of the kind.
    fn close_void(
        &self,
        global: &mut Self::Global,
        partial: Self::Partial,
        round: &Round<'_>,
    ) -> Result<(), AggregateError> {
        let _ = (global, partial, round);
        Ok(())
    }

    /// The model that clients are to go on from, if it may be mixed with others: the mean of what they have learned and not,
    /// for example, one of several tensors that belong together. `None` if nothing can be mixed with it.
    fn mixed<'a>(&self, global: &'a mut Self::Global) -> Option<&'a mut ParamSet> {
        let _ = global;
        None
    }

    /// Takes in what the server's own training has made of [`published`](Self::published), if it is
    /// [a step](Self::SUPERVISED) of this algorithm.
    fn supervised(&self, global: &mut Self::Global, trained: ParamSet) -> Result<(), AggregateError> {
        let _ = (global, trained);
        Err(AggregateError::NotSupervised)
    }

    /// Ends the round: the folded updates become the new state.
    fn close(
        &self,
        global: &mut Self::Global,
        partial: Self::Partial,
        round: &Round<'_>,
    ) -> Result<(), AggregateError>;

    /// Whether nothing can be made of an update before all are there. Then none is folded: they are kept on disk, and
    /// the round ends with [`close_stored`](Self::close_stored) in place of [`close`](Self::close).
    fn needs_every_update(&self, spec: &RunSpec) -> bool {
        let _ = spec;
        false
    }

    /// Ends the round: the stored updates, at least one, become the new state.
    fn close_stored(
        &self,
        global: &mut Self::Global,
        updates: &mut dyn StoredUpdates,
        round: &Round<'_>,
    ) -> Result<(), AggregateError> {
        let _ = (global, updates, round);
        Err(AggregateError::Folded)
    }

    /// The model that a client uses that was sent this and keeps that: what it tests on its own data. `None` if clients are
    /// sent no model.
    fn used<'a>(&self, received: &'a Self::Broadcast, local: &'a Self::Local) -> Option<&'a ParamSet> {
        let _ = (received, local);
        None
    }

    /// Whether clients deploy models of their own, so that these are tested in place of the global one.
    fn is_personal(&self) -> bool {
        false
    }

    /// How its result answers, if that is no model but those of the clients side by side. Then the server's state is not
    /// tested, and every update that has tensors is the difference to what [`published`](Self::published) gives of a member
    /// of the ensemble.
    fn ensemble(&self) -> Option<Answering> {
        None
    }

    /// The model that the client with this update would deploy, if it is not the global one.
    fn deployed(&self, global: &Self::Global, update: Self::Update) -> Option<ParamSet> {
        let _ = (global, update);
        None
    }
}

/// Whether devices have the labels that are learned from, if anything is learned there.
fn needs_labels(name: &str, data: &DataSpec, training: &Training) -> Result<(), String> {
    if data.labels == LabelsAt::Device || training.epochs == 0 {
        return Ok(());
    }
    Err(format!(
        "clients learn from their labels under {name}, and devices without labels have none; use fedmix, or set \
         training.epochs = 0 so that the server alone learns"
    ))
}

/// Why a round could not be closed. Updates were checked, so a mismatch here is our bug.
#[derive(Debug, thiserror::Error)]
pub enum AggregateError {
    /// Nothing was folded.
    #[error(transparent)]
    Empty(#[from] EmptySum),
    /// The folded result does not fit the server's state.
    #[error("internal error: the folded update does not fit the server's state: {0}")]
    Mismatch(#[from] Mismatch),
    /// Stored updates were given to an algorithm that folds them: our bug.
    #[error("internal error: this algorithm folds updates and was given stored ones; please report this")]
    Folded,
    /// Fewer updates than the rule needs. A configuration is refused under which a round may close with so few, so this
    /// is our bug.
    #[error(
        "internal error: {found} updates were accepted, and the rule {rule} needs at least {least}: this configuration \
         should have been refused; raise round.count.min"
    )]
    TooFew {
        /// The rule's name.
        rule: &'static str,
        /// How many it needs.
        least: usize,
        /// How many there are.
        found: usize,
    },
    /// What clients have learned is to be mixed, and this algorithm has no model to mix. A configuration that asks for it is
    /// refused, so this is our bug.
    #[error("internal error: this algorithm has no model to mix: the configuration should have been refused")]
    NoMixture,
    /// The server's own training was given to an algorithm of which it is no step: our bug.
    #[error("internal error: the server's own training is no step of this algorithm; please report this")]
    NotSupervised,
    /// The units of this network cannot be matched. A configuration with it is refused, so this is our bug.
    #[error("internal error: {0}: this configuration should have been refused; use another aggregation.rule")]
    NotAChain(#[from] NotAChain),
    /// An update that was stored cannot be read again.
    #[error(transparent)]
    Stored(#[from] StoredError),
    /// The new state holds a value that is not finite.
    #[error("tensor `{tensor}` of the new global model is not finite: lower the learning rate")]
    NotFinite {
        /// The tensor.
        tensor: String,
    },
}
