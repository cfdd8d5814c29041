//! From `[model]` to the network that is learned.

use models::Architecture;

use super::combinations::Combinations;
use super::samples::Samples;
use super::{ConfigError, DataSet, ModelTable, network};

/// `None` if there is none, which is noted. Puts the number of classes into the layers of `model`.
pub(super) fn architecture(
    model: &mut ModelTable,
    set: DataSet,
    samples: &Samples,
    checks: &mut Combinations<'_>,
) -> Option<Architecture> {
    if ["model", "data.set"].iter().any(|key| checks.findings.is_doubtful(key)) {
        return None;
    }
    match (&model.name, &mut model.layers) {
        (Some(name), None) => {
            let found = Architecture::by_name(name, &samples.prepared, samples.classes);
            let note = |source| {
                let (origin, name) = (checks.origin("model.name"), name.clone());
                let (shape, source) = (samples.prepared.clone(), Box::new(source));
                checks.findings.add(ConfigError::Model { origin, name, set, shape, source });
            };
            found.map_err(note).ok()
        }
        (None, Some(layers)) => {
            network::resolve_classes(layers, samples.classes);
            let made = network::architecture(layers, &samples.prepared, samples.classes);
            let made = made.map_err(|reason| checks.findings.add(ConfigError::Internal { reason })).ok()?;
            if let Err(source) = made.parameter_specs() {
                let (origin, layer) = network::place(&made, &source, checks.places);
                let (shape, source) = (samples.prepared.clone(), Box::new(source));
                checks.findings.add(ConfigError::Network { origin, layer, set, shape, source });
                return None;
            }
            Some(made)
        }
        (name, _) => {
            let given = ["model.name", "model.layers"].map(|key| (key, key.to_owned()));
            let reason = match name {
                Some(_) => "the one names a network and the other is one; leave one of them out",
                None => "neither is given; name a model, as in --set model.name=cnn-small",
            };
            checks.refuse(&given, reason);
            None
        }
    }
}
