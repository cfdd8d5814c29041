//! What is learned: parameter sets, architectures, losses, optimisers, seeded initialisation and metrics.
//!
//! The crate knows no clients, rounds or sockets. A network is a value ([`Architecture`]), its parameters are another
//! ([`ParamSet`]), and a [`Learner`] brings the two together on a [`Backend`]:
//!
//! ```
//! use models::{Architecture, Backend, Batch, Learner, Sgd, evaluate};
//! use rand_chacha::ChaCha8Rng;
//! use rand_chacha::rand_core::SeedableRng;
//!
//! // Four points in the plane; the class is the sign of the first coordinate.
//! let x = vec![1.0, 0.3, 0.7, -0.9, -1.1, 0.2, -0.8, -0.4];
//! let batch = Batch::new(x, [4, 2], vec![0, 0, 1, 1])?;
//!
//! let architecture = Architecture::by_name("linear", &[2], 2)?;
//! // One generator per tensor. A real seed would be derived from the name; two tensors need no more than its length.
//! let params = architecture.initialise(|name| ChaCha8Rng::seed_from_u64(name.len() as u64))?;
//!
//! let sgd = Sgd { rate: 0.5, momentum: 0.9, decay: 0.0 };
//! let mut learner = Learner::new(&architecture, &params, sgd, &Backend::cpu())?;
//! let first = learner.step(&batch)?;
//! for _ in 0..20 {
//!     learner.step(&batch)?;
//! }
//! let evaluation = evaluate(learner.network(), [&batch])?;
//! assert_eq!(evaluation.accuracy, 1.0);
//! assert!(evaluation.loss < f64::from(first));
//!
//! // What was learned, as a difference by name: this is what a federated client sends.
//! let update = learner.params()?.difference(&params)?;
//! assert_eq!(update.names().collect::<Vec<_>>(), ["head.fc.bias", "head.fc.weight"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! On the CPU everything is deterministic: the same inputs give the same bytes, whatever the number of threads.

// A test that unwraps fails as it should, and closed forms are compared exactly where they are exact.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::float_cmp))]

mod adam;
pub mod architecture;
mod batch;
mod candle;
mod contrast;
mod correction;
mod cpu;
mod device;
mod engine;
mod error;
mod kernels;
mod loss;
mod masks;
mod metrics;
mod mode;
pub mod model_file;
mod network;
pub mod params;
mod peak;
mod prototypes;
pub mod pseudo_label;
mod sgd;
mod threads;
mod token;
mod train;

pub use adam::Adam;
pub use architecture::{
    Architecture, ArchitectureError, BUILT_INS, BuiltIn, Initial, Initialisation, Layer, Norm, ParameterKind,
    ParameterSpec, Variant,
};
pub use batch::{Batch, BatchError};
pub use contrast::{mean_cosine, model_contrast};
pub use correction::Correction;
pub use device::Backend;
pub use engine::OutputGradients;
pub use error::ModelError;
pub use kernels::vectorised;
pub use loss::cross_entropy;
pub use masks::Masks;
pub use metrics::{Evaluation, Prediction, evaluate, largest, predict};
pub use mode::Mode;
pub use model_file::{ModelFileError, read_model, write_model};
pub use network::Network;
pub use params::codec::{self, DecodeError, Limits};
pub use params::{Array, LayoutId, Mismatch, MismatchKind, ParamSet, Precision, ShapeError};
pub use peak::product_peak;
pub use prototypes::{PrototypeLoss, PrototypeTerms, Prototyped, separation, supervised_contrast};
pub use sgd::Sgd;
pub use train::{Learner, Loss, LossGradients, Term};
