//! Federated algorithms as values.
//!
//! An algorithm's hyper-parameters are its fields, its two halves are the methods of [`Algorithm`] in the order in which one
//! round runs them, and everything that crosses the network or survives a round is one of its associated types. What one
//! algorithm alone needs is a [capability] that it returns, not a method of all.
//!
//! Most algorithms differ from federated averaging at the client alone. Such an algorithm is an [`Objective`]: one method. Its
//! server half is that of [`aggregation`](crate::aggregation), whose settings it combines with as [`combinations`] says. An algorithm
//! of one round whose models are kept side by side is a [`OneShot`]: what a client learns, and how all of them answer.
//!
//! # Adding an algorithm
//!
//! 1. A file in this folder with both halves, its citation and its update equation.
//! 2. A `mod` line and an entry in [`ALGORITHMS`], both in this file.
//! 3. A row in `combinations.md`: which settings it goes with. A test holds the row against
//!    [`INCOMPATIBLE`](Algorithm::INCOMPATIBLE).
//!
//! The tests that walk through the registry then cover it: wire formats, cancelled training, hostile updates, partial results
//! that travel, whole runs with crashes.
//!
//! # Where further kinds of algorithms go
//!
//! *Local optimisers.* The optimiser of the local steps belongs to the run, not to an algorithm: an alternative of
//! `training.optimizer`, by which [`Client::epochs`] makes its learner. An algorithm that assumes plain SGD, as SCAFFOLD's control
//! variates do, names it as incompatible ([`Setting::AdaptiveSteps`]); all others train with it unchanged. Moments that survive a
//! round are client state and rest beside `Local`, where the device's own buffers are (`kept.rs`).
//!
//! *Several passes over the clients in one round* (Mime's full gradient before the local steps). Passes are a capability: the
//! algorithm returns their number and, for each but the last, what the server makes of the partial result of that pass. A pass
//! is broadcast, train, fold and merge with the same associated types, so that `Broadcast` and `Update` of such an algorithm
//! are enums with a variant for each pass. The task message names the pass; without the capability there is one.
//!
//! *Control of what is sent* (a mask, a low-rank factor). A codec that the run chooses stands between `Update` and the record
//! that travels, after [`Algorithm::train`] and before [`Algorithm::check`]: in [`outgoing`](crate::outgoing), which all updates pass and which
//! has those of `update.precision` and `update.top-k`. What it leaves out is client state and rests beside `Local` (`error_feedback.rs`). An algorithm that never sends some tensors leaves them out of its update, as buffers that stay on the device
//! are left out today ([`Client::delta`]), and [`Round::template`] says what the server expects.
//!
//! # A complete algorithm
//!
//! Federated statistics: every client reports the mean label of its data as a one-element tensor, the
//! server keeps the mean over all clients weighted by samples. Nothing is trained, everything else is real.
//!
//! ```
//! use models::params::{Array, ParamSet};
//! use serde::{Deserialize, Serialize};
//! use shared::aggregation::{ExactSum, MergeError};
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
//!     fn current_model<'a>(&self, global: &'a ParamSet) -> &'a ParamSet {
//!         global
//!     }
//!     fn broadcast(&self, _global: &ParamSet) {}
//!     fn train(&self, client: &mut Client<'_>, (): (), (): &mut ()) -> Result<ParamSet, TrainError> {
//!         let data = client.data;
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
//!     fn fold(&self, partial: &mut ExactSum, contribution: Contribution<ParamSet>, _round: &Round<'_>) {
//!         partial.add(&contribution.update, contribution.weight);
//!     }
//!     fn merge(&self, into: &mut ExactSum, other: ExactSum) -> Result<(), MergeError> {
//!         into.merge(&other)
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
//! # let round = Round { number: 1, failed: 0, spec: &spec, template: &template, scale, clients: 2, private: None };
//! let mut partial = MeanLabel {}.begin(&round);
//! for (weight, value) in [(3, 8.0), (1, 4.0)] {
//! #   let client = ClientId::virtual_client(0, &spec.root_seed());
//! #   let report = TrainReport::default();
//!     MeanLabel {}.fold(&mut partial, Contribution { client, weight, report, update: one(value) }, &round);
//! }
//! MeanLabel {}.close(&mut global, partial, &round).unwrap();
//! assert_eq!(global, one(7.0));
//! ```

mod aggregate_error;
pub mod answering;
pub mod capability;
mod class_counts;
mod client;
mod client_needs;
pub mod combinations;
mod erased;
mod error_feedback;
pub(crate) mod frozen_features;
pub mod hidden;
mod interface;
mod kept;
mod measure;
pub mod membership;
mod objective;
pub mod registry;
mod round;
mod server_model;
mod side_by_side;
mod train_error;
pub mod trainer;
mod trainer_error;
mod unlabelled;

pub mod ensemble;
pub mod fafi;
pub mod fedavg;
pub mod fedetf;
pub mod fedmatch;
pub mod fedmix;
pub mod fednova;
pub mod fedproto;
pub mod fedprox;
pub mod fedsgd;
pub mod local;
pub mod moon;
pub mod scaffold;

use registry::{Entry, entry};

pub use aggregate_error::{AggregateError, Closed};
pub use answering::{Answering, Fusion, Head, Noise};
pub use capability::{Hidden, Personal, Stored, Supervised};
pub use client::{Client, Drawn, Workbench};
pub use client_needs::ClientNeeds;
pub use combinations::{Conflict, Incompatible, Setting, Settings};
pub use erased::{Checked, Deployed, ErasedAlgorithm, Global, Partial, TakeIn, Trained};
pub use interface::Algorithm;
pub use objective::Objective;
pub use round::{Contribution, Round};
pub use server_model::ServerModel;
pub use side_by_side::{OneShot, SideBySide};
pub use train_error::TrainError;
pub use trainer::Trainer;
pub use trainer_error::TrainerError;

/// All algorithms of this build.
pub const ALGORITHMS: &[Entry] = &[
    entry::<fedavg::FedAvg>(
        "federated averaging: local epochs, then the weighted mean (McMahan et al. 2017)",
    ),
    entry::<fedsgd::FedSgd>("one full-batch gradient step per round (McMahan et al. 2017)"),
    entry::<fedprox::FedProx>("local training pulled back to the global model (Li et al. 2020)"),
    entry::<scaffold::Scaffold>("control variates against client drift (Karimireddy et al. 2020)"),
    entry::<fednova::FedNova>("updates normalised by their numbers of steps (Wang et al. 2020)"),
    entry::<moon::Moon>("representations held near the global model's (Li et al. 2021)"),
    entry::<fedetf::FedEtf>(
        "a fixed classifier, the same for all clients, and a loss balanced by their classes (Li et al. 2023)",
    ),
    entry::<fedmix::FedMix>(
        "pseudo-labels for devices without labels; the server has some (Wang et al. 2022)",
    ),
    entry::<fedmatch::FedMatch>(
        "one part for the server's labels, one for devices without, which help each other (Jeong et al. 2021)",
    ),
    entry::<SideBySide<fafi::Fafi>>(
        "one round, whose models are kept side by side and fused in use (Zeng et al. 2025)",
    ),
    entry::<SideBySide<fedproto::FedProto>>(
        "one round of plain training; mean features of the classes stand for them (Tan et al. 2022, its first round)",
    ),
    entry::<SideBySide<ensemble::Ensemble>>(
        "one round of plain training; the clients' models answer together, the usual baseline of one-shot methods (Guha et al. 2019)",
    ),
    entry::<local::Local>("every client alone, the baseline without a federation"),
];
