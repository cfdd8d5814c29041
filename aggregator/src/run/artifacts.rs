//! The artefacts of a run: model, best model, report.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use models::ParamSet;
use models::model_file::ModelFileError;
use shared::spec::SAMPLES_KEY;
use tracing::warn;

use super::error::disk;
use super::{Run, RunError};
use crate::storage::write_durably;

impl Run {
    /// What is learned of the model after the last closed round.
    pub fn current_model(&self) -> Result<ParamSet, RunError> {
        let global = match &self.resident {
            Some(state) => self.algorithm.restore(state.clone())?,
            None => self.load(self.closed)?,
        };
        Ok(self.algorithm.current_model(&global).clone())
    }

    /// Writes `model.safetensors`, after the checkpoint that it comes from, and `best.safetensors` if an earlier model was
    /// better. An ensemble was written when its last round closed.
    pub fn write_model(&mut self) -> Result<PathBuf, RunError> {
        self.checkpoint()?;
        let ensemble = self.directory.ensemble();
        if self.files.length(&ensemble).map_err(disk("look at", &ensemble))?.is_some() {
            return Ok(ensemble);
        }
        let path = self.directory.model();
        self.write_params(&path, &self.current_model()?, self.closed)?;
        let best = self.directory.best();
        match self.best_model() {
            Ok(Some((round, params))) => self.write_params(&best, &params, round)?,
            // One may be left from when the run was stopped.
            Ok(None) => self.files.remove(&best).map_err(disk("remove", &best))?,
            // The run's own model is whole, and must not be kept back.
            Err(error @ (RunError::Damaged { .. } | RunError::Removed { .. })) => {
                warn!("the best model is not written: {error}");
                self.files.remove(&best).map_err(disk("remove", &best))?;
            }
            Err(error) => return Err(error),
        }
        Ok(path)
    }

    /// The best of the models that were tested and the round that it was made in, unless that is the last one.
    pub fn best_model(&self) -> Result<Option<(u32, ParamSet)>, RunError> {
        let earlier = self.best().filter(|best| best.round < self.last_trained() && self.has_one_model());
        let Some(best) = earlier else { return Ok(None) };
        let global = self.load(best.round)?;
        Ok(Some((best.round, self.algorithm.current_model(&global).clone())))
    }

    /// Whether its clients make one model together: neither models of their own nor an ensemble.
    #[must_use]
    pub fn has_one_model(&self) -> bool {
        self.algorithm.personal().is_none() && self.algorithm.ensemble().is_none()
    }

    /// The last round that the model was trained in.
    #[must_use]
    pub fn last_trained(&self) -> u32 {
        self.records.iter().rfind(|record| !record.closing).map_or(self.closed, |record| record.round)
    }

    fn write_params(&self, path: &Path, params: &ParamSet, rounds: u32) -> Result<(), RunError> {
        let spec = &self.config.spec;
        let mut extra = BTreeMap::new();
        extra.insert("run".to_owned(), spec.name.clone());
        extra.insert("data".to_owned(), self.config.data.set.name.to_owned());
        extra.insert("rounds".to_owned(), rounds.to_string());
        if let Some(privacy) = self.privacy() {
            extra.insert("privacy".to_owned(), privacy);
        }
        // Samples must be prepared for the model as they were for training.
        let samples = serde_json::to_string(&spec.data).expect("numbers and names are JSON");
        extra.insert(SAMPLES_KEY.to_owned(), samples);
        let whole = spec.architecture.compose(params).map_err(models::ModelError::from)?;
        let (architecture, whole) = spec.architecture.merged(whole.into_owned());
        let written = write_durably(&*self.files, path, |out| {
            models::write_model(&architecture, &whole, &extra, out).map_err(std::io::Error::other)
        });
        written.map_err(|error| match error.downcast::<ModelFileError>() {
            Ok(error) => error.into(),
            Err(source) => disk("write", path)(source),
        })
    }

    /// Writes `report.html` and, if the run is `complete`, the marker of that. The marker comes last: a run without it is
    /// continued, and writes its model and report again.
    pub fn write_report(&self, page: &str, complete: bool) -> Result<PathBuf, RunError> {
        let path = self.directory.report();
        write_durably(&*self.files, &path, |out| out.write_all(page.as_bytes()))
            .map_err(disk("write", &path))?;
        if complete {
            // A simulation does not sync its steps. Folders are synced like files.
            let run = &self.directory;
            let root = run.root().to_owned();
            for place in
                [run.model(), run.best(), run.ensemble(), run.rounds(), run.config(), path.clone(), root]
            {
                if self.files.length(&place).map_err(disk("look at", &place))?.is_some() {
                    self.files.sync_file(&place).map_err(disk("sync", &place))?;
                }
            }
            let finished = self.directory.finished();
            write_durably(&*self.files, &finished, |_| Ok(())).map_err(disk("write", &finished))?;
        }
        Ok(path)
    }
}
