//! Models and training: parameter sets, architectures, losses, optimisers, seeded initialisation and evaluation.
//!
//! The crate knows no clients, rounds or sockets. An [`Architecture`] describes a network, a [`ParamSet`] holds its parameters,
//! and a [`Learner`] trains it on a [`Backend`]:
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
//! // One generator per tensor. Real code derives its seed from the whole name; for two tensors its length will do.
//! let params = architecture.initialise(|name| ChaCha8Rng::seed_from_u64(name.len() as u64))?;
//!
//! let sgd = Sgd { rate: 0.5, momentum: 0.9, decay: 0.0 };
//! let mut learner = Learner::new(&architecture, &params, sgd, &Backend::cpu())?;
//! let first = learner.step(&batch)?;
//! for _ in 0..20 {
//!     learner.step(&batch)?;
//! }
//! let evaluation = evaluate(learner.network(), [&batch])?;
//! assert_eq!(evaluation.accuracy, Some(1.0));
//! assert!(evaluation.loss < f64::from(first));
//!
//! // The difference of the parameters, by name: the update that a federated client sends.
//! let update = learner.params()?.difference(&params)?;
//! assert_eq!(update.names().collect::<Vec<_>>(), ["head.fc.bias", "head.fc.weight"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! On the CPU everything is deterministic: the same inputs give the same bytes for any number of threads, and with
//! AVX2, AVX-512 and NEON.
//!
//! | module | contents |
//! |---|---|
//! | [`architecture`] | networks as lists of layers: shapes, limits, initial values, frozen parameters, built-in models |
//! | [`params`] | tensors by name, their arithmetic and their encoding |
//! | [`compression`] | sets of parameters in 8 and 4 bits a value |
//! | `network`, `engine` | a network on a device, and the interface of the two engines |
//! | `cpu`, `kernels` | the engine for CPUs and its inner loops |
//! | `int8` | the engine for predictions with 8-bit integers, on CPUs |
//! | `candle` | the engine for CUDA devices, in programs with the feature `cuda`; in tests a second implementation |
//! | `train`, `optimizer`, `sgd`, `adam`, `loss` | steps of gradient descent |
//! | `task`, `targets`, `objective` | what is learned, and by which loss: one class, several labels or numbers |
//! | `evaluate`, `per_class`, `deviation` | loss and accuracy, in all and by class, and what else is measured; predictions |
//! | `kept_features` | features of samples under a frozen extractor, computed once |
//! | [`shape`] | the spelling of a shape |
//! | `contrast`, `prototypes`, [`pseudo_label`] | losses of particular algorithms |

// Tests may unwrap, and compare floats exactly where the closed form is exact.
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::float_cmp))]

mod adam;
pub mod architecture;
mod batch;
#[cfg(any(test, feature = "cuda"))]
mod candle;
pub mod compression;
mod contrast;
mod correction;
mod cpu;
mod deviation;
mod device;
mod dropout_masks;
mod engine;
mod error;
mod evaluate;
mod gemm_rate;
mod int8;
mod kept_features;
mod kernels;
mod loss;
mod mode;
pub mod model_file;
mod network;
mod objective;
mod optimizer;
pub mod params;
mod per_class;
mod prototypes;
pub mod pseudo_label;
mod sgd;
pub mod shape;
mod spinning;
mod targets;
mod task;
mod token;
mod train;

pub use adam::Adam;
pub use architecture::{
    Architecture, ArchitectureError, BUILT_INS, BuiltIn, DecayOn, Frozen, FrozenError, Initial,
    Initialisation, Layer, Norm, OpaqueTensor, ParameterKind, ParameterSpec, Variant,
};
pub use batch::{Batch, BatchError};
pub use contrast::{mean_cosine, model_contrast};
pub use correction::Correction;
pub use cpu::memory::{NetworkMemory, Use};
pub use deviation::{Deviation, Measure};
pub use device::Backend;
pub use dropout_masks::Masks;
pub use engine::OutputGradients;
pub use error::ModelError;
pub use evaluate::{
    Evaluation, Prediction, answer, argmax, evaluate, evaluate_by_class, evaluate_one, predict,
};
pub use gemm_rate::peak_gemm_rate;
pub use kept_features::{KEPT_FEATURES_LIMIT, KeptFeatures, Source};
pub use kernels::vectorised;
pub use loss::cross_entropy;
pub use mode::Mode;
pub use model_file::{ModelFileError, read_model, write_model};
pub use network::Network;
pub use optimizer::{AdamSettings, Optimizer, OptimizerState};
pub use params::codec::{self, DecodeError, Limits};
pub use params::{Array, LayoutId, Mismatch, MismatchKind, ParamSet, Precision, ShapeError};
pub use per_class::{Bin, ClassResult, PerClass};
pub use prototypes::{PrototypeLoss, PrototypeTerms, Prototyped, separation, supervised_contrast};
pub use sgd::Sgd;
pub use targets::Targets;
pub use task::Task;
pub use train::{Learner, Loss, LossGradients, Term};
