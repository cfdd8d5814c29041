//! From `[model]` to the network that is learned.

use models::architecture::matches;
use models::{Architecture, BUILT_INS, Frozen, Norm, ParameterKind, Variant};
use shared::data::{DataSet, byte_tokens};
use toml::Table;

use super::combinations::{Combinations, Shown};
use super::samples::Samples;
use super::{ConfigError, ModelOrigin, ModelTable, nearest_of, network, own_network};

/// `None` if there is none, which is noted. Puts the number of classes into the layers of `model`.
pub(super) fn architecture(
    model: &mut ModelTable,
    set: &'static DataSet,
    samples: &Samples,
    checks: &mut Combinations<'_>,
) -> Option<Architecture> {
    let keys = [
        "model.name",
        "model.layers",
        "model.parameters",
        "model.norm",
        "model.initialisation",
        "model.vocabulary",
        "model.projection",
        "data.set",
    ];
    if keys.iter().any(|key| checks.findings.is_doubtful(key)) {
        return None;
    }
    if model.parameters.is_some() {
        let made = own_network::architecture(model, checks)?;
        let given = ("model.parameters", format!("the model {}", made.name));
        return frozen(made, model.freeze.as_deref(), given, checks);
    }
    let given = model.vocabulary.map(|tokens| ("model.vocabulary", format!("model.vocabulary = {tokens}")));
    let bytes = samples.reading.text.as_ref().map(|_| byte_tokens::VOCABULARY);
    if let Some(given) = given.clone().filter(|_| bytes.is_some()) {
        let reason = "the tokens of such texts are their bytes; leave it out";
        checks.refuse(&[("data.text", "data.text".to_owned()), given], reason);
        return None;
    }
    let vocabulary = bytes.or(model.vocabulary.map(|tokens| tokens as usize));
    let projection = model.projection.map(|length| length as usize);
    let variant = Variant { norm: model.norm, initialisation: model.initialisation, vocabulary, projection };
    let made = match (&model.name, &mut model.layers) {
        (Some(name), None) => named(name, variant, (set, samples), checks),
        (None, Some(layers)) => written(layers, variant, (set, samples), checks),
        (name, _) => {
            let given = ["model.name", "model.layers"].map(|key| (key, key.to_owned()));
            let reason = match name {
                Some(_) => "the one names a network and the other is one; leave one of them out",
                None => "neither is given; name a model, as in --set model.name=cnn-small",
            };
            checks.refuse(&given, reason);
            None
        }
    }?;
    let made = Architecture { task: model.learned(), ..made };
    let given = match &model.name {
        Some(name) => ("model.name", format!("model.name = {name:?}")),
        None => ("model.layers", "model.layers".to_owned()),
    };
    if let Err(error) = made.parameter_specs() {
        let task = ("model.task", format!("model.task = {:?}", made.task.name()));
        checks.refuse(&[given, task], &error.to_string());
        return None;
    }
    let fits = predicts_labels(&made, set, given.clone(), checks)
        && reads_texts(&made, samples, given.clone(), checks);
    if let Some(rank) = model.adapters.lora.rank {
        let adapted = adapted(&made, rank as usize, model, given, checks)?;
        return fits.then_some(adapted);
    }
    let frozen = frozen(made, model.freeze.as_deref(), given, checks)?;
    fits.then_some(frozen)
}

/// The network with adapters of this rank, which learn alone but for what is drawn (`model.fresh`); `None` if it cannot have them,
/// which is noted.
fn adapted(
    made: &Architecture,
    rank: usize,
    model: &ModelTable,
    given: Shown,
    checks: &mut Combinations<'_>,
) -> Option<Architecture> {
    let lora = ("model.adapters.lora.rank", format!("model.adapters.lora.rank = {rank}"));
    if let Some(freeze) = &model.freeze {
        let freeze = ("model.freeze", format!("model.freeze = {freeze:?}"));
        let reason =
            "with adapters all is frozen but them, and what model.fresh names; leave model.freeze out";
        checks.refuse(&[lora, freeze], reason);
        return None;
    }
    if model.from.as_ref().is_none_or(|from| *from == ModelOrigin::default()) {
        let reason =
            "adapters learn beside a model that knows something already: give model.from, or leave them out";
        checks.refuse(&[lora, ("model.from", "no model.from".to_owned())], reason);
        return None;
    }
    let fresh = model.fresh.as_deref().unwrap_or_default();
    let learned = |name: &str| fresh.iter().any(|pattern| matches(pattern, name));
    let all = ["*".to_owned()];
    let on = model.adapters.lora.on.as_deref().unwrap_or(&all);
    match made.with_adapters(rank, on, &learned) {
        Ok(adapted) => Some(adapted),
        Err(error) => {
            checks.refuse(&[given, lora], &error.to_string());
            None
        }
    }
}

/// The network with what `model.freeze` names frozen; `None` if it names what is not there, or all, which is noted.
fn frozen(
    made: Architecture,
    patterns: Option<&[String]>,
    given: Shown,
    checks: &mut Combinations<'_>,
) -> Option<Architecture> {
    /// Names that are offered for one.
    const NEAREST: usize = 3;
    let Some(patterns) = patterns else { return Some(made) };
    if checks.findings.is_doubtful("model.freeze") {
        return None;
    }
    let specs = made.all_parameter_specs().unwrap_or_default();
    let names = || specs.iter().map(|spec| spec.name.as_str());
    let mut sound = true;
    for pattern in patterns.iter().filter(|pattern| !names().any(|name| matches(pattern, name))) {
        let nearest = nearest_of(pattern, names(), NEAREST).join(", ");
        let freeze = ("model.freeze", format!("model.freeze = [.. {pattern:?} ..]"));
        let reason = format!("no parameter of the model has such a name; nearest are {nearest}");
        checks.refuse(&[given.clone(), freeze], &reason);
        sound = false;
    }
    let made = Architecture { frozen: Some(Frozen::named(patterns.to_vec())), ..made };
    let learned = made.parameter_specs().unwrap_or_default();
    if sound && learned.iter().all(|spec| spec.kind == ParameterKind::Buffer) {
        let reason =
            "nothing is left to learn; leave the head out of it, as in model.freeze = [\"extractor.*\"]";
        checks.refuse(&[given, ("model.freeze", format!("model.freeze = {patterns:?}"))], reason);
        sound = false;
    }
    sound.then_some(made)
}

fn named(
    name: &str,
    variant: Variant,
    (set, samples): (&'static DataSet, &Samples),
    checks: &mut Combinations<'_>,
) -> Option<Architecture> {
    let has_norm = BUILT_INS.iter().any(|built_in| built_in.name == name && built_in.norm.is_some());
    if let Some(norm) = variant.norm.filter(|_| !has_norm) {
        let have = BUILT_INS.iter().filter(|built_in| built_in.norm.is_some()).map(|built_in| built_in.name);
        let have = have.collect::<Vec<_>>().join(" and ");
        let reason =
            format!("it has no normalisation to choose; {have} have (--set model.norm= takes it back)");
        checks.refuse(&[("model.name", format!("model.name = {name:?}")), shown(norm)], &reason);
        return None;
    }
    let found = Architecture::variant(name, &samples.prepared, samples.classes, variant);
    let note = |source| {
        let (origin, name) = (checks.origin("model.name"), name.to_owned());
        let (shape, source) = (samples.prepared.clone(), Box::new(source));
        checks.findings.add(ConfigError::Model { origin, name, set, shape, source });
    };
    found.map_err(note).ok()
}

fn written(
    layers: &mut Table,
    variant: Variant,
    (set, samples): (&'static DataSet, &Samples),
    checks: &mut Combinations<'_>,
) -> Option<Architecture> {
    if let Some(norm) = variant.norm {
        let reason = "the layers say themselves where they are normalised; leave model.norm out";
        checks.refuse(&[("model.layers", "model.layers".to_owned()), shown(norm)], reason);
        return None;
    }
    if let Some(length) = variant.projection {
        let projection = ("model.projection", format!("model.projection = {length}"));
        let reason = "the layers say themselves what is projected, as model.layers.projection; leave model.projection out";
        checks.refuse(&[("model.layers", "model.layers".to_owned()), projection], reason);
        return None;
    }
    network::resolve_classes(layers, samples.classes);
    let initialisation = variant.initialisation.unwrap_or_default();
    let made = network::architecture(layers, &samples.prepared, samples.classes, initialisation);
    let made = made.map_err(|reason| checks.findings.add(ConfigError::Internal { reason })).ok()?;
    if let Err(source) = made.parameter_specs() {
        let (origin, layer) = network::place(&made, &source, checks.places);
        let (shape, source) = (samples.prepared.clone(), Box::new(source));
        checks.findings.add(ConfigError::Network { origin, layer, set, shape, source });
        return None;
    }
    Some(made)
}

/// Whether the network makes a prediction for each label of a sample, as far as it is known how many there are before samples are
/// read; if not, it is noted.
fn predicts_labels(made: &Architecture, set: &DataSet, given: Shown, checks: &mut Combinations<'_>) -> bool {
    let (Some(labels), Ok(predictions)) = (set.labels_each, made.predictions()) else { return true };
    if labels > 1 && made.looks_ahead() {
        // The label at a position is the token at the next one.
        let reason = "its attention sees later positions, which in a text are the labels: set causal = true in each attention";
        checks.refuse(&[given, ("data.set", format!("data.set = \"{set}\""))], reason);
        return false;
    }
    if predictions == labels || !made.task.is_classification() {
        return true;
    }
    let classes = made.classes;
    let reason = if labels == 1 {
        format!(
            "a sample has one label, and the last layer of the model's head gives the shape [{predictions}, {classes}], which is \
             {predictions} predictions: it needs [{classes}]; put \"flatten\" before it"
        )
    } else {
        format!(
            "a sample of text has a label at each of its {labels} positions, and the last layer of the model's head gives \
             {predictions} predictions: it needs the shape [{labels}, {classes}], as model.name = \"char-lstm\" has, or layers of \
             embedding, lstm and linear"
        )
    };
    checks.refuse(&[given, ("data.set", format!("data.set = \"{set}\""))], &reason);
    false
}

/// Whether the network reads the texts of a column, if there is one; if not, it is noted.
fn reads_texts(made: &Architecture, samples: &Samples, given: Shown, checks: &mut Combinations<'_>) -> bool {
    let Some(column) = &samples.reading.text else { return true };
    if made.vocabulary().is_some_and(|tokens| tokens >= byte_tokens::VOCABULARY) {
        return true;
    }
    let reason = format!(
        "texts are read by an embedding of {} tokens, as model.name = \"text-transformer\" has it, or as the first of the layers",
        byte_tokens::VOCABULARY
    );
    checks.refuse(&[given, ("data.text", format!("data.text = {column:?}"))], &reason);
    false
}

fn shown(norm: Norm) -> (&'static str, String) {
    ("model.norm", format!("model.norm = {norm:?}").to_lowercase())
}
