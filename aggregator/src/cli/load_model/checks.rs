//! Whether a model is whole, and whether samples are what it was trained for.

use std::path::Path;

use models::Architecture;
use models::shape::spelled;
use shared::data::Dataset;
use shared::spec::DataSpec;

use super::Usable;
use crate::cli::exit::Failure;

impl Usable {
    /// Refuses a configuration that names classes or columns otherwise than this model, of the file at `path`: it knows them by their
    /// place. Data may have the first of its classes alone.
    pub(super) fn check_names(&self, path: &Path, configured: &DataSpec) -> Result<(), Failure> {
        let Some(its) = self.samples() else { return Ok(()) };
        let of = |key: &str, its: &[String], configured: &[String]| {
            Failure::Environment(format!(
                "the model {} knows {} by their place, and {key} says {}: name the same in the same order, or use the configuration \
                 of its run",
                path.display(),
                its.join(", "),
                configured.join(", ")
            ))
        };
        let (names, named) = (&its.class_names, &configured.class_names);
        if !names.is_empty() && !names.starts_with(named) {
            let is_classes = self.architecture().task.is_classification();
            return Err(of(if is_classes { "data.class-names" } else { "data.targets" }, names, named));
        }
        let (names, named) = (&its.features, &configured.features);
        if !names.is_empty() && !named.is_empty() && names != named {
            return Err(of("data.features", names, named));
        }
        Ok(())
    }

    /// Refuses samples that this model, of the file at `path`, cannot take.
    pub(super) fn check(&self, path: &Path, dataset: &Dataset) -> Result<(), Failure> {
        let architecture = self.architecture();
        let prepared = self.preparation().shape(dataset.shape()).ok();
        if prepared.as_ref() != Some(&architecture.input) {
            return Err(other_shape(path, &architecture.input, dataset.shape()));
        }
        if dataset.classes() > architecture.classes {
            return Err(Failure::Environment(format!(
                "the model {} tells {} classes apart, and the data has {}: name the data that it was trained for, or another \
                 model",
                path.display(),
                architecture.classes,
                dataset.classes()
            )));
        }
        Ok(())
    }
}

/// Refuses what no run leaves, at `path`: a network of which a part is elsewhere, and samples that cannot be prepared for it.
pub(super) fn check_whole(
    path: &Path,
    architecture: &Architecture,
    samples: Option<&DataSpec>,
) -> Result<(), Failure> {
    let refused = |reason: &str| Err(Failure::file("use the model", path, reason));
    if architecture.frozen.is_some() {
        return refused(
            "its network has frozen tensors that are elsewhere, and the models that runs leave are whole: take the file that a \
             run has left",
        );
    }
    let prepared = samples.map(|samples| samples.preparation.shape(&samples.shape));
    match prepared {
        Some(Err(error)) => refused(&format!(
            "what it says of its samples is of none ({error}): take the file that a run has left"
        )),
        Some(Ok(shape)) if shape != architecture.input => refused(&format!(
            "its network takes samples of shape {}, and those that it was trained on are said to have {} when they are prepared: \
             take the file that a run has left",
            spelled(&architecture.input),
            spelled(&shape)
        )),
        _ => Ok(()),
    }
}

fn other_shape(model: &Path, takes: &[usize], has: &[usize]) -> Failure {
    Failure::Environment(format!(
        "the model {} takes samples of shape {}, these have {}: name other data or another model",
        model.display(),
        spelled(takes),
        spelled(has)
    ))
}
