//! Personal models: what a device makes of the global model for itself.
//!
//! PFL-MoE (Guo, Mei, Tang, Tian and Li, APWeb-WAIM 2021, arXiv 2012.15589). Stage 1 is any federated run. Stages 2 and 3 are
//! this module, on the device alone:
//!
//! ```text
//! split   the device's samples into an expert's part (75 %) and a gate's part (25 %)
//! FT      all parameters, from the global ones, learn on the expert's part
//! FB      the extractor theta_E is frozen; all that stands on it, theta_Ci, learns on its activations a = E(x)
//! MF      FB's model mixed with the global one, gate on the input       g = sigmoid(w . x + b)
//! MFE     FB's model mixed with the global one, gate on the activations g = sigmoid(w . a + b)
//! fixed   FB's model mixed with the global one, g = 1/2: the control
//! mix     y = g y_global + (1 - g) y_local, of logits or of probabilities
//! ```
//!
//! The gate learns on its own part, by cross-entropy of `y`, while everything else is frozen. It begins with `g = 1/2`.
//!
//! | module | what it does |
//! |---|---|
//! | [`crate::spec::personalisation`] | what the configuration says, and which models it fits |
//! | [`split`] | which samples are the expert's and which the gate's |
//! | [`features`] | activations of the frozen extractor |
//! | `device` | whose model it is going to be |
//! | `experts` | stages 2 and 3: what the methods need |
//! | `fine_tune` | how parameters learn on |
//! | [`gate`] | how much the global model counts |
//! | [`mixture`] | a personal model that answers |
//! | [`mod@file`] | the file that it is kept in |
//! | [`scores`] | local and global test |
//! | [`pipeline`] | all of it, in a device's turn |
//!
//! FT augments its samples as the run's training does. The activations that FB and the gates learn from are computed once, of
//! samples prepared as for a test; with `personalisation.augment` in every epoch, of samples augmented anew, as the official
//! program (guobbin/PFL-MoE) does.
//!
//! Nothing here leaves the device but the [measurements](scores::Scores) that the settings allow.

mod device;
mod experts;
pub mod features;
pub mod file;
mod fine_tune;
pub mod gate;
pub mod mixture;
pub mod pipeline;
pub mod scores;
pub mod split;

use std::ops::ControlFlow;

use models::{ArchitectureError, BatchError, ModelError};

use crate::data::PreparationError;
use crate::task::Progress;

pub use crate::spec::personalisation::{
    GateTraining, Method, Methods, Mix, Personalisation, Reports, Tuning, Unfit,
};
pub use device::Device;
pub use file::{Personal, PersonalError};
pub use gate::Gate;
pub use mixture::{Answer, Incoherent, Misfit, Mixture, PersonalModel};
pub use pipeline::{Outcome, personalise};
pub use scores::{Scores, Tally};
pub use split::LocalSplit;

/// Why there is no personal model.
#[derive(Debug, thiserror::Error)]
pub enum PersonaliseError {
    /// The model cannot be run or trained: shapes, device, diverged loss.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The data cannot be made into a batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The run's preparation does not suit the data: the server's fault, since it accepted the data's shape.
    #[error("the samples cannot be prepared as the run asks: {0}")]
    Preparation(#[from] PreparationError),
    /// The method does not fit the model: the server's fault, since it checked the configuration.
    #[error(transparent)]
    Unfit(#[from] Unfit),
    /// What was learned became infinite or not a number, in the last step at the latest: a model of it answers nothing.
    #[error(
        "its {part} is no longer made of finite numbers: training diverged; lower the rates of [personalisation]"
    )]
    Diverged {
        /// What of the model: `gate`, or the parameter.
        part: String,
    },
    /// It was told to stop: a newer round, or the client is leaving.
    #[error("personalisation was cancelled")]
    Cancelled,
}

impl From<ArchitectureError> for PersonaliseError {
    fn from(error: ArchitectureError) -> Self {
        Self::Model(error.into())
    }
}

/// The steps of a personalisation, for progress reports.
struct Steps<'a> {
    progress: Progress,
    monitor: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
}

impl Steps<'_> {
    /// One more is done.
    fn advance(&mut self) -> Result<(), PersonaliseError> {
        self.progress.done += 1;
        self.check()
    }

    /// Nothing to count was done, and it may be time to stop.
    fn check(&mut self) -> Result<(), PersonaliseError> {
        if (self.monitor)(self.progress).is_break() { Err(PersonaliseError::Cancelled) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
