//! `model.parameters`: a network of another framework, which programs of its users' own train.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use models::architecture::matches;
use models::params::foreign::{ForeignError, describe_foreign};
use models::{Architecture, OpaqueTensor};
use shared::data::sets::TRAINER;
use shared::data::{Augmentation, Partition};

use super::combinations::{Combinations, Shown};
use super::full_names::absolute;
use super::{DataTable, ModelOrigin, ModelTable, Raw, TaskName};
use crate::attack::Attack;

/// What `model.buffers` is where nothing is said.
const BUFFERS: &str = "*running_*";

/// The network of `model.parameters`, whose tensors are those of the file or were noted when the run began. Puts them, and that the
/// run begins with the file's values, into `model`. `None` if there is none, which is noted.
pub(super) fn architecture(model: &mut ModelTable, checks: &mut Combinations<'_>) -> Option<Architecture> {
    let given: Shown = ("model.parameters", "model.parameters".to_owned());
    let others = [
        ("model.name", model.name.is_some()),
        ("model.layers", model.layers.is_some()),
        ("model.norm", model.norm.is_some()),
        ("model.initialisation", model.initialisation.is_some()),
        ("model.fresh", model.fresh.is_some()),
        ("model.from.names", model.from.as_ref().is_some_and(|from| from.names.is_some())),
        ("model.adapters", model.adapters.lora.rank.is_some()),
    ];
    if let Some((key, _)) = others.into_iter().find(|(_, given)| *given) {
        let reason = "the file has all tensors of the network, and their values; leave one of the two out";
        checks.refuse(&[given, (key, key.to_owned())], reason);
        return None;
    }
    let (path, full) = match absolute("model.parameters", model.parameters.as_deref()?.into()) {
        Ok(found) => found,
        Err(error) => {
            checks.findings.add(error);
            return None;
        }
    };
    let tensors = match &model.tensors {
        Some(noted) => noted.iter().map(|text| text.parse()).collect::<Result<Vec<OpaqueTensor>, String>>(),
        None => described(&path, model.buffers.as_deref()),
    };
    let made = tensors.and_then(|tensors| {
        let name =
            path.file_stem().map_or_else(|| "own".to_owned(), |stem| stem.to_string_lossy().into_owned());
        let made = Architecture::of_tensors(name, tensors);
        made.parameter_specs().map_err(|error| error.to_string())?;
        Ok(made)
    });
    match made {
        Ok(made) => {
            let texts = made.tensors.iter().flatten().map(ToString::to_string);
            model.tensors = Some(texts.collect());
            model.from.take_if(|from| *from == ModelOrigin::default());
            model
                .from
                .get_or_insert_with(|| ModelOrigin { file: Some(full.clone()), ..ModelOrigin::default() });
            model.parameters = Some(full);
            Some(made)
        }
        Err(reason) => {
            let shown = ("model.parameters", format!("model.parameters = {full:?}"));
            checks.refuse(&[shown], &reason);
            None
        }
    }
}

/// The tensors of the file.
fn described(path: &Path, buffers: Option<&[String]>) -> Result<Vec<OpaqueTensor>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let tensors = describe_foreign(&mut BufReader::new(file)).map_err(|error| match error {
        ForeignError::Pickle => "it is a file of torch.save, which is not read here; write it with \
                                 safetensors.torch.save_file(model.state_dict(), \"init.safetensors\")"
            .to_owned(),
        error => error.to_string(),
    })?;
    let is_buffer = |name: &str| match buffers {
        Some(patterns) => patterns.iter().any(|pattern| matches(pattern, name)),
        None => matches(BUFFERS, name),
    };
    let tensor = |(name, shape, counts): (String, Vec<usize>, bool)| OpaqueTensor {
        is_buffer: counts || is_buffer(&name),
        name,
        shape,
    };
    Ok(tensors.into_iter().map(tensor).collect())
}

/// Refuses what a network that is not run here cannot go with, and what only such a one goes with.
pub(super) fn check(raw: &Raw, checks: &mut Combinations<'_>) {
    let parameters: Shown = ("model.parameters", "model.parameters".to_owned());
    let set: Shown = ("data.set", format!("data.set = \"{}\"", raw.data.set));
    match (&raw.model.parameters, raw.data.set.is_of_trainers()) {
        (None, false) => return without(raw, checks),
        (None, true) => {
            let reason = "what trainers read is learned by a network of their framework: name the file of its tensors as \
                          model.parameters, or another data set";
            return checks.refuse(&[set], reason);
        }
        (Some(_), false) => {
            let reason = format!(
                "its trainers read the samples, and no data set is read here: leave data.set out, or say \"{}\"",
                TRAINER.name
            );
            return checks.refuse(&[parameters, set], &reason);
        }
        (Some(_), true) => {}
    }
    for key in engine_alone(raw) {
        let reason = "the network is trained and tested by programs of its users' own, which do that themselves or not at all: \
                      leave it out";
        checks.refuse(&[parameters.clone(), (key, key.to_owned())], reason);
    }
    let tested_here = raw.evaluate.every > 0 && raw.evaluate.command.is_some();
    let ends = raw.early_stopping.target.is_some() || raw.early_stopping.patience.is_some();
    if ends && !tested_here && !raw.early_stopping.metric.is_of_clients() {
        let end = ("early-stopping", "[early-stopping]".to_owned());
        let reason = "nothing tests the model on this machine: name a program that does as evaluate.command";
        checks.refuse(&[parameters, end], reason);
    }
}

/// The keys that were set and that our engine alone goes by.
fn engine_alone(raw: &Raw) -> Vec<&'static str> {
    let (data, none) = (&raw.data, DataTable::default());
    let set = [
        ("data.path", data.path.is_some()),
        ("data.max-samples", data.max_samples.is_some()),
        ("data.max-test-samples", data.max_test_samples.is_some()),
        ("data.partition", data.partition != Partition::Iid {}),
        ("data.label", data.label != none.label),
        ("data.targets", data.targets.is_some()),
        ("data.text", data.text.is_some()),
        ("data.features", data.features.is_some()),
        ("model.vocabulary", raw.model.vocabulary.is_some()),
        ("model.projection", raw.model.projection.is_some()),
        ("model.task", raw.model.task != TaskName::default()),
        ("data.on-error", data.on_error != none.on_error),
        ("data.validation", data.validation.is_some()),
        ("data.pooled", data.pooled),
        ("data.labels", data.labels != none.labels),
        ("data.labelled", data.labelled.is_some()),
        ("data.normalise", data.normalise != none.normalise),
        ("augment", raw.augment != Augmentation::default()),
        ("training.chunks", raw.training.chunks > 1),
        ("training.schedule-by-step", raw.training.schedule_by_step),
        ("training.keep-optimizer", raw.training.keep_optimizer),
        ("training.measure.alignment", raw.training.measure.alignment),
        ("evaluate.hold-out", raw.evaluate.hold_out > 0.0),
        ("evaluate.by-class", raw.evaluate.by_class),
        ("personalisation.method", raw.personalisation.method.is_some()),
        ("simulation.attack.label-flip", matches!(raw.simulation.attack, Attack::LabelFlip { .. })),
    ];
    set.into_iter().filter(|(_, set)| *set).map(|(key, _)| key).collect()
}

/// Refuses what goes with such a network alone.
fn without(raw: &Raw, checks: &mut Combinations<'_>) {
    let given = [
        ("model.buffers", raw.model.buffers.is_some()),
        ("model.tensors", raw.model.tensors.is_some()),
        ("evaluate.command", raw.evaluate.command.is_some()),
        ("simulation.trainer", raw.simulation.trainer.is_some()),
    ];
    for (key, _) in given.into_iter().filter(|(_, given)| *given) {
        let reason = "it goes with a network of another framework, which model.parameters names: leave it out, or name one";
        checks.refuse(&[(key, key.to_owned())], reason);
    }
}
