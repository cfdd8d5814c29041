//! Errors of predictions.

use std::io;
use std::path::PathBuf;

use models::shape::spelled;
use models::{BatchError, ModelError, ModelFileError};
use shared::data::DataError;
use shared::id::ClientId;
use shared::personalisation::{Incoherent, Misfit};
use thiserror::Error;

use super::TextError;

/// Why there are no predictions.
#[derive(Debug, Error)]
pub enum PredictError {
    /// The model file cannot be opened.
    #[error("cannot open the model {}: {error}; name the model.safetensors that a run has left", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The model file cannot be used.
    #[error("{}", path.display())]
    Model {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        problem: ModelFileError,
    },
    /// The file holds many models, where one is needed.
    #[error(
        "{} is an ensemble, which predict uses as it is: name the model.safetensors that a run of another algorithm has left",
        path.display()
    )]
    Ensemble {
        /// The file.
        path: PathBuf,
    },
    /// The file says that it is an ensemble, and is none that can be used.
    #[error("{} is no ensemble: {reason}; name the ensemble.safetensors that a run has left, or copy it again", path.display())]
    NotAnEnsemble {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A member of the ensemble computes no finite numbers.
    #[error(
        "the ensemble's member of client {client} gives features or answers that are not finite: its operator leaves it out with \
         `aggregator ensemble drop ENSEMBLE --client {client}`"
    )]
    Member {
        /// The member's client.
        client: ClientId,
    },
    /// The model file does not say in an understandable way how samples are prepared.
    #[error("{}: how its samples are prepared cannot be understood; was it written by a newer version of this program?", path.display())]
    Samples {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        problem: serde_json::Error,
    },
    /// The data cannot be used.
    #[error("the data cannot be used")]
    Data(#[from] DataError),
    /// The data's samples have another shape than the model takes.
    #[error(
        "the model takes samples of shape {}, these have {}: name the data that it was trained for, or another model",
        spelled(expected),
        spelled(found)
    )]
    Shape {
        /// Shape of one sample in the model.
        expected: Vec<usize>,
        /// Shape of one sample in the data.
        found: Vec<usize>,
    },
    /// An output of the model is not a number.
    #[error(
        "the model's output for sample {sample} is not a number: its training diverged, use another model"
    )]
    NotFinite {
        /// The sample's position in the data.
        sample: usize,
    },
    /// A text cannot be asked about.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The samples cannot be made into a batch: our bug.
    #[error("internal error: a batch cannot be made; please report this")]
    Batch(#[from] BatchError),
    /// The network cannot be run: out of memory, or our bug.
    #[error("the network cannot be run")]
    Network(#[source] ModelError),
    /// The personal model cannot be run. What is read from a file was checked, so this is our bug.
    #[error("internal error: the personal model cannot be run; please report this")]
    Personal(#[from] Incoherent),
    /// A newer global model is of another network than the personal one.
    #[error(transparent)]
    Misfit(#[from] Misfit),
    /// A newer global model is of other samples than the personal one.
    #[error(
        "the new global model was trained on other samples than the personal one: {what} differ, and the personal head would \
         misunderstand it; the personal model is kept as it was. Take part in a run of the new model to get a personal one"
    )]
    OtherSamples {
        /// What differs.
        what: &'static str,
    },
    /// The parameters of a model file are not numbers.
    #[error(
        "tensor `{tensor}` of the model holds a value that is not a number: its training diverged, use another model"
    )]
    Diverged {
        /// The tensor.
        tensor: String,
    },
    /// The device's samples are not those that its personal model was made of.
    #[error(
        "the personal model was made of {expected} samples, of which it knows those held out for tests by their place, and \
         here are {found}: name the data as it was then, or take part in a run again"
    )]
    OtherNumber {
        /// How many it was made of, with those held out.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// The data has more classes than the model.
    #[error(
        "the data has {found} classes and the model tells {expected} apart: name the data that it was trained for"
    )]
    Classes {
        /// Number of classes of the model.
        expected: usize,
        /// Number of classes of the data.
        found: usize,
    },
}
