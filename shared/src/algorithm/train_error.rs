//! Why local training gave no update.

use models::{BatchError, ModelError};

use super::trainer_error::TrainerError;
use crate::data::PreparationError;

/// Why local training gave no update.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// The model cannot be trained: shapes, device, diverged loss.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The data cannot be made into a batch.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The run's preparation does not suit the data: the server's fault, since it accepted the data's shape.
    #[error("the samples cannot be prepared as the run asks: {0}")]
    Preparation(#[from] PreparationError),
    /// What the algorithm itself does to samples does not suit these values: the device's owner can scale them.
    #[error("the samples do not suit the run: {0}")]
    Unsuited(String),
    /// The broadcast is not what this algorithm sends: the server's fault.
    #[error("the server's broadcast cannot be used: {0}")]
    Broadcast(String),
    /// The client's stored state is not what this algorithm keeps.
    #[error("the stored client state cannot be used: {0}; remove it to start afresh")]
    Local(String),
    /// The run asks for tests of a model that its algorithm does not send: the server's fault.
    #[error("the server asks to test a model, and its algorithm sends none")]
    NoModel,
    /// The program of the device's owner that trains has failed.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// Training was told to stop: a newer round, or the client is leaving.
    #[error("training was cancelled")]
    Cancelled,
}
