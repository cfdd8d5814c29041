//! Predictions of a trained model for each sample of a data set, and their accuracy.

mod ensemble;
mod error;
mod text;
mod text_error;

use std::fs::File;
use std::io::BufReader;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use models::{Architecture, Backend, Batch, Evaluation, Network, ParamSet, Prediction, read_model};
use shared::data::{Preparation, View};
use shared::personalisation::{Mix, Mixture, Personal};
use shared::prediction::{Row, Score, ValueError, ValueRow, predict_values};
use shared::spec::{DataSpec, SAMPLES_KEY};

use self::ensemble::{Ensemble, is_ensemble};

pub use error::PredictError;
pub use text_error::TextError;

/// Samples in one forward pass. It bounds memory and does not change the result.
pub(crate) const BATCH: usize = 256;
/// The same for an ensemble, each of whose members keeps what it has computed.
const BATCH_OF_ENSEMBLE: usize = 32;

/// Whether a model of `new` samples can replace one of `old` samples.
///
/// # Errors
/// [`PredictError::OtherSamples`] if the same numbers mean something else in the two.
pub fn interchangeable(old: &DataSpec, new: &DataSpec) -> Result<(), PredictError> {
    let what = if old.shape != new.shape {
        "the shapes of a sample"
    } else if old.class_names != new.class_names {
        "the names of the classes or their order"
    } else if !old.features.is_empty() && !new.features.is_empty() && old.features != new.features {
        "the columns of the features or their order"
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
    Ensemble(Box<Ensemble>),
}

/// A prediction, before it is known for what.
struct Made {
    class: u32,
    probabilities: Vec<f64>,
}

impl From<Prediction> for Made {
    fn from(prediction: Prediction) -> Self {
        let probabilities = prediction.probabilities.into_iter().map(f64::from).collect();
        Self { class: prediction.class, probabilities }
    }
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

/// The model's file, or where there is none the ensemble's, if `given` is the folder of a run, else `given`.
pub(crate) fn model_file(given: &Path) -> PathBuf {
    if !given.is_dir() {
        return given.to_owned();
    }
    let [model, ensemble] = ["model.safetensors", "ensemble.safetensors"].map(|name| given.join(name));
    if ensemble.is_file() && !model.is_file() { ensemble } else { model }
}

impl Predictor {
    /// Reads a model file or an ensemble, as a run leaves it, or the one in a run's folder.
    pub fn open(path: &Path, backend: &Backend) -> Result<Self, PredictError> {
        let path = &model_file(path);
        if is_ensemble(path) {
            let ensemble = Ensemble::open(path, &backend.on_cpu())?;
            let samples = ensemble.samples().clone();
            let preparation = samples.preparation.clone();
            return Ok(Self {
                answerer: Answerer::Ensemble(Box::new(ensemble)),
                samples: Some(samples),
                preparation,
            });
        }
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
            Answerer::Ensemble(ensemble) => ensemble.architecture(),
        }
    }

    /// The description of its samples, if the model's file has one.
    #[must_use]
    pub fn samples(&self) -> Option<&DataSpec> {
        self.samples.as_ref()
    }

    /// The names of the classes or of the numbers, if the model's file has them.
    #[must_use]
    pub fn class_names(&self) -> Vec<String> {
        let task = self.architecture().task;
        self.samples.as_ref().map(|samples| samples.output_names(task)).unwrap_or_default()
    }

    /// Predicts the numbers or the several labels of the samples in order, as [`predict_values`] does: of a model whose task is not
    /// classification.
    ///
    /// # Errors
    /// [`PredictError`] if the samples do not fit the model, or it says nothing of them.
    ///
    /// # Panics
    /// If the model's task is classification.
    pub fn values(
        &mut self,
        data: &View,
        row: &mut dyn FnMut(ValueRow) -> ControlFlow<()>,
    ) -> Result<Evaluation, PredictError> {
        let input = &self.architecture().input;
        if self.preparation.shape(data.shape()).ok().as_ref() != Some(input) {
            return Err(PredictError::Shape { expected: input.clone(), found: data.shape().to_vec() });
        }
        let Answerer::Global(network) = &mut self.answerer else {
            unreachable!("personal models and ensembles are of classification");
        };
        predict_values(network, &self.preparation, data, BATCH, row).map_err(|error| match error {
            ValueError::Samples(error) => error.into(),
            ValueError::Model(error) => PredictError::Network(error),
            ValueError::NotFinite { sample } => PredictError::NotFinite { sample },
        })
    }

    /// Predicts the classes of the samples of `data` in order and passes each prediction to `row`, which may break to end early. The
    /// score covers the rows passed.
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
        let size = if let Answerer::Ensemble(_) = self.answerer { BATCH_OF_ENSEMBLE } else { BATCH };
        for_each_batch(&preparation, &input, data, size, &mut |chunk, batch| {
            let (predictions, gates) = self.answerer.answer(batch, chunk)?;
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
    /// The predictions for a batch of the samples at these positions, and the weight of the global expert in each if there are two.
    fn answer(
        &mut self,
        batch: &Batch,
        positions: &[usize],
    ) -> Result<(Vec<Made>, Option<Vec<f32>>), PredictError> {
        match self {
            Self::Global(network) => {
                let predictions = models::predict(network, batch).map_err(PredictError::Network)?;
                Ok((predictions.into_iter().map(Made::from).collect(), None))
            }
            Self::Personal(mixture) => {
                let answer = mixture.answer(batch).map_err(PredictError::Network)?;
                let rows = answer.mixed.chunks_exact(mixture.architecture().classes);
                let prediction = |row: &[f32]| match mixture.mix() {
                    Mix::Logits => Prediction::from_logits(row),
                    Mix::Probabilities => Prediction::from_probabilities(row.to_vec()),
                };
                Ok((rows.map(|row| prediction(row).into()).collect(), Some(answer.weights)))
            }
            Self::Ensemble(ensemble) => Ok((ensemble.answer(batch, positions)?, None)),
        }
    }
}

/// The prediction for a sample.
fn row(
    sample: usize,
    Made { class, probabilities }: Made,
    label: Option<u32>,
    gate: Option<f32>,
) -> Result<Row, PredictError> {
    // A single value that is not a number makes every probability not a number.
    if !probabilities[class as usize].is_finite() {
        return Err(PredictError::NotFinite { sample });
    }
    Ok(Row { sample, class, probabilities, label, gate })
}

/// Handles a batch of the samples at these positions; may break to end early.
type OnBatch<'a> = dyn FnMut(&[usize], &Batch) -> Result<ControlFlow<()>, PredictError> + 'a;

/// Prepares the samples of `data` for a network with this input, and passes them to `work` in batches of `size`.
pub(crate) fn for_each_batch(
    preparation: &Preparation,
    input: &[usize],
    data: &View,
    size: usize,
    work: &mut OnBatch<'_>,
) -> Result<(), PredictError> {
    if preparation.shape(data.shape()).ok().as_deref() != Some(input) {
        return Err(PredictError::Shape { expected: input.to_vec(), found: data.shape().to_vec() });
    }
    let positions: Vec<usize> = (0..data.len()).collect();
    for chunk in positions.chunks(size) {
        if work(chunk, &preparation.batch(data, chunk, input)?)?.is_break() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;
