//! The model that answers: kept loaded, and loaded again when its file has changed.

use std::path::PathBuf;
use std::time::SystemTime;

use models::Backend;
use shared::id::RunId;
use tracing::warn;

use crate::predict::{PredictError, Predictor, model_file};
use crate::store::{PersonalModels, StoreError};

/// Where the model comes from.
#[derive(Clone, Debug)]
pub enum Origin {
    /// A file, as a run leaves it.
    File(PathBuf),
    /// The device's personal model: of one run, or the last made.
    Personal(PersonalModels, Option<RunId>),
}

/// Why there is no model to answer with.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file cannot be used.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// There is no personal model, or it cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What a change of the model shows in.
type Mark = Option<(PathBuf, SystemTime, u64)>;

/// A model in use.
#[derive(Debug)]
pub struct Loaded {
    origin: Origin,
    backend: Backend,
    mark: Mark,
    predictor: Predictor,
}

impl Origin {
    /// The file as it is now; `None` if it is not there.
    fn mark(&self) -> Mark {
        let path = match self {
            Self::File(path) => model_file(path),
            Self::Personal(models, run) => models.path(run.or_else(|| models.latest())?),
        };
        let metadata = path.metadata().ok()?;
        Some((path, metadata.modified().ok()?, metadata.len()))
    }

    fn load(&self, backend: &Backend) -> Result<Predictor, LoadError> {
        Ok(match self {
            Self::File(path) => Predictor::open(path, backend)?,
            Self::Personal(models, run) => Predictor::personal(&models.open(*run)?, backend)?,
        })
    }
}

impl Loaded {
    /// Loads the model.
    ///
    /// # Errors
    /// [`LoadError`]
    pub fn new(origin: Origin, backend: Backend) -> Result<Self, LoadError> {
        // Before the file is read: a newer one that comes in between is loaded again.
        let mark = origin.mark();
        let predictor = origin.load(&backend)?;
        Ok(Self { origin, backend, mark, predictor })
    }

    /// The newest model. One that cannot be read, or is just being replaced, leaves the former in use.
    pub fn newest(&mut self) -> &mut Predictor {
        let mark = self.origin.mark();
        if mark.is_some() && mark != self.mark {
            match self.origin.load(&self.backend) {
                Ok(predictor) => self.predictor = predictor,
                Err(error) => warn!("the newer model cannot be used, the former answers: {error}"),
            }
            self.mark = mark;
        }
        &mut self.predictor
    }
}
