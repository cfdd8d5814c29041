//! Predictions of a trained model for each sample of a data set, and their accuracy.

mod text;

use std::fs::File;
use std::io::{self, BufReader};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use models::params::codec::TensorStream;
use models::{
    Architecture, Backend, Batch, BatchError, Limits, ModelError, ModelFileError, Network, ParamSet,
    Prediction, read_model,
};
use shared::data::{DataError, Preparation, View};
use shared::personalisation::{Incoherent, Misfit, Mix, Mixture};
use shared::prediction::{Row, Score};
use shared::shape::spelled;
use shared::spec::{DataSpec, ENSEMBLE_KEY, SAMPLES_KEY};
use thiserror::Error;

use crate::personal::Personal;

pub use text::TextError;

/// Samples in one forward pass. It bounds memory and does not change the result.
const BATCH: usize = 256;

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
    /// The file holds many models.
    #[error(
        "{} is an ensemble, which answers at the lab: `aggregator predict` and `aggregator evaluate` use it; name the \
         model.safetensors that a run of another algorithm has left",
        path.display()
    )]
    Ensemble {
        /// The file.
        path: PathBuf,
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

/// Whether a model of `new` samples can replace one of `old` samples.
///
/// # Errors
/// [`PredictError::OtherSamples`] if the same numbers mean something else in the two.
pub fn interchangeable(old: &DataSpec, new: &DataSpec) -> Result<(), PredictError> {
    let what = if old.shape != new.shape {
        "the shapes of a sample"
    } else if old.class_names != new.class_names {
        "the names of the classes or their order"
    } else if old.preparation.normalisation != new.preparation.normalisation {
        "the normalisations"
    } else {
        return Ok(());
    };
    Err(PredictError::OtherSamples { what })
}

/// A trained model for predictions.
#[derive(Debug)]
pub struct Predictor {
    answerer: Answerer,
    samples: Option<DataSpec>,
    preparation: Preparation,
}

#[derive(Debug)]
enum Answerer {
    Global(Box<Network>),
    Personal(Box<Mixture>),
}

/// A global model's file.
#[derive(Debug)]
pub struct GlobalModel {
    /// The network.
    pub architecture: Architecture,
    /// Its parameters.
    pub params: ParamSet,
    /// The description of its samples, if the file has one.
    pub samples: Option<DataSpec>,
}

impl GlobalModel {
    /// Reads a model file, as a run leaves it.
    pub fn open(path: &Path) -> Result<Self, PredictError> {
        let file =
            File::open(path).map_err(|error| PredictError::Open { path: path.to_path_buf(), error })?;
        let (architecture, params, metadata) = read_model(&mut BufReader::new(file)).map_err(|problem| {
            let path = path.to_path_buf();
            if is_ensemble(&path) {
                PredictError::Ensemble { path }
            } else {
                PredictError::Model { path, problem }
            }
        })?;
        let samples =
            metadata.get(SAMPLES_KEY).map(|json| serde_json::from_str::<DataSpec>(json)).transpose();
        let samples =
            samples.map_err(|problem| PredictError::Samples { path: path.to_path_buf(), problem })?;
        if let Some(tensor) = params.first_non_finite() {
            return Err(PredictError::Diverged { tensor: tensor.to_owned() });
        }
        Ok(Self { architecture, params, samples })
    }
}

/// The model's file if `given` is the folder of a run, else `given`.
fn model_file(given: &Path) -> PathBuf {
    if given.is_dir() { given.join("model.safetensors") } else { given.to_owned() }
}

/// Whether a file, which is not a model, describes itself as an ensemble.
fn is_ensemble(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let described = TensorStream::open_described(BufReader::new(file), Limits::default());
    described.is_ok_and(|(_, metadata)| metadata.contains_key(ENSEMBLE_KEY))
}

impl Predictor {
    /// Reads a model file, as a run leaves it.
    pub fn open(path: &Path, backend: &Backend) -> Result<Self, PredictError> {
        let path = &model_file(path);
        let GlobalModel { architecture, params, samples } = GlobalModel::open(path)?;
        let network = Network::new(&architecture, &params, backend).map_err(PredictError::Network)?;
        let preparation = samples.as_ref().map(|spec| spec.preparation.clone()).unwrap_or_default();
        Ok(Self { answerer: Answerer::Global(Box::new(network)), samples, preparation })
    }

    /// Predicts with a personal model.
    pub fn personal(personal: &Personal, backend: &Backend) -> Result<Self, PredictError> {
        let mixture = Mixture::new(&personal.model, backend)?;
        let preparation = personal.samples.preparation.clone();
        let samples = Some(personal.samples.clone());
        Ok(Self { answerer: Answerer::Personal(Box::new(mixture)), samples, preparation })
    }

    /// The architecture of the model.
    #[must_use]
    pub fn architecture(&self) -> &Architecture {
        match &self.answerer {
            Answerer::Global(network) => network.architecture(),
            Answerer::Personal(mixture) => mixture.architecture(),
        }
    }

    /// The description of its samples, if the model's file has one.
    #[must_use]
    pub fn samples(&self) -> Option<&DataSpec> {
        self.samples.as_ref()
    }

    /// The names of the classes, if the model's file has them.
    #[must_use]
    pub fn class_names(&self) -> &[String] {
        self.samples.as_ref().map_or(&[], |samples| &samples.class_names)
    }

    /// Predicts the samples of `data` in order and passes each prediction to `row`, which may break to end early. The score covers
    /// the rows passed.
    pub fn predict(
        &mut self,
        data: &View,
        row: &mut dyn FnMut(Row) -> ControlFlow<()>,
    ) -> Result<Score, PredictError> {
        let mut score = Score::default();
        let preparation = self.preparation.clone();
        let input = self.architecture().input.clone();
        let (expected, found) = (self.architecture().classes, data.classes());
        if found > expected {
            return Err(PredictError::Classes { expected, found });
        }
        for_each_batch(&preparation, &input, data, &mut |chunk, batch| {
            let (predictions, gates) = self.answerer.answer(batch).map_err(PredictError::Network)?;
            let each = predictions.len() / chunk.len();
            for (at, prediction) in predictions.into_iter().enumerate() {
                let gate = gates.as_ref().map(|gates| gates[at]);
                let made = self::row(chunk[at / each], prediction, batch.y().get(at).copied(), gate)?;
                score.add(&made);
                if row(made).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(score)
    }
}

impl Answerer {
    /// The predictions for a batch, and the weight of the global expert in each if there are two.
    fn answer(&mut self, batch: &Batch) -> Result<(Vec<Prediction>, Option<Vec<f32>>), ModelError> {
        match self {
            Self::Global(network) => Ok((models::predict(network, batch)?, None)),
            Self::Personal(mixture) => {
                let answer = mixture.answer(batch)?;
                let rows = answer.mixed.chunks_exact(mixture.architecture().classes);
                let predictions = match mixture.mix() {
                    Mix::Logits => rows.map(Prediction::from_logits).collect(),
                    Mix::Probabilities => {
                        rows.map(|row| Prediction::from_probabilities(row.to_vec())).collect()
                    }
                };
                Ok((predictions, Some(answer.weights)))
            }
        }
    }
}

/// The prediction for a sample.
fn row(
    sample: usize,
    prediction: Prediction,
    label: Option<u32>,
    gate: Option<f32>,
) -> Result<Row, PredictError> {
    let class = prediction.class;
    // A single value that is not a number makes every probability not a number.
    if !prediction.probabilities[class as usize].is_finite() {
        return Err(PredictError::NotFinite { sample });
    }
    let probabilities = prediction.probabilities.into_iter().map(f64::from).collect();
    Ok(Row { sample, class, probabilities, label, gate })
}

/// Handles a batch of the samples at these positions; may break to end early.
type OnBatch<'a> = dyn FnMut(&[usize], &Batch) -> Result<ControlFlow<()>, PredictError> + 'a;

/// Prepares the samples of `data` for a network with this input, and passes them to `work` batch by batch.
pub(crate) fn for_each_batch(
    preparation: &Preparation,
    input: &[usize],
    data: &View,
    work: &mut OnBatch<'_>,
) -> Result<(), PredictError> {
    if preparation.shape(data.shape()).ok().as_deref() != Some(input) {
        return Err(PredictError::Shape { expected: input.to_vec(), found: data.shape().to_vec() });
    }
    let positions: Vec<usize> = (0..data.len()).collect();
    for chunk in positions.chunks(BATCH) {
        if work(chunk, &preparation.batch(data, chunk, input)?)?.is_break() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
