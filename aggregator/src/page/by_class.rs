//! Results by class of the models that a run has left: computed once when it is complete, and written down for its page.

use models::{Evaluation, ParamSet, PerClass};
use shared::by_class::MOST_CLASSES;
use tracing::warn;

use crate::data::EvaluateError;
use crate::ensemble::{EnsembleError, Question};
use crate::report::by_class::ModelByClass;
use crate::run::directory::RunDirectory;
use crate::run::{Run, RunError, disk};
use crate::storage::FileLayer;
use crate::storage::checksum::write_checked;

/// Why the results by class are not known.
#[derive(Debug, thiserror::Error)]
pub enum ByClassError {
    /// The model cannot be tested.
    #[error(transparent)]
    Evaluate(#[from] EvaluateError),
    /// The ensemble cannot be tested.
    #[error(transparent)]
    Ensemble(#[from] EnsembleError),
    /// The run's files.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Tests the last and the best model of a run, whose models are written, on the server's test set. A run without one has no results,
/// and neither has one whose model diverged, or tells more than 1,000 classes apart.
pub fn note(run: &Run) -> Result<(), ByClassError> {
    let mut models = Vec::new();
    let architecture = &run.spec().architecture;
    let few = architecture.classes <= MOST_CLASSES && architecture.task.is_classification();
    let mut add = |best, round, (evaluation, found): (Evaluation, PerClass)| {
        if evaluation.loss.is_finite() && evaluation.samples > 0 {
            models.push(ModelByClass { best, round, evaluation, found });
        }
    };
    if let Some(tests) = run.tests.as_ref().filter(|_| few) {
        let of = |params: &ParamSet| tests.evaluate_by_class(&run.spec().architecture, params, &run.backend);
        if let Some(bundle) = run.bundle()? {
            let chosen = bundle.manifest.answering.fusion;
            let question = Question { fusions: &[chosen], ..tests.question() };
            let ((by, _), found) = bundle.evaluate_by_class(&question, chosen)?;
            let evaluation = by.get(&chosen).copied().unwrap_or_default();
            add(false, run.last_trained(), (evaluation, found));
        } else if run.has_one_model() {
            add(false, run.last_trained(), of(&run.current_model()?)?);
            if let Some((round, params)) = run.best_model()? {
                add(true, round, of(&params)?);
            }
        }
    }
    let (files, path) = (run.files(), run.directory().by_class());
    if models.is_empty() {
        return Ok(files.remove(&path).map_err(disk("remove", &path))?);
    }
    let json = serde_json::to_vec(&models).expect("numbers are JSON");
    Ok(write_checked(&*files, &path, |out| out.write_all(&json)).map_err(disk("write", &path))?)
}

/// The results as they were written down; none if there are none. What is damaged is reported, and does without.
pub(super) fn read(files: &dyn FileLayer, directory: &RunDirectory) -> Vec<ModelByClass> {
    let read = super::read_json(files, &directory.by_class());
    read.unwrap_or_else(|error| {
        warn!("the report does without results by class: {error}");
        None
    })
    .unwrap_or_default()
}
