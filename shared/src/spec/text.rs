//! How a specification travels: as TOML in the sections of a configuration, without what has its default.
//!
//! A device of an older version therefore takes part in every run that uses nothing it does not know, and refuses the others by
//! the name of the key. What only the server goes by ([`SERVER_KEYS`]) does not travel.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::data::label_column;
use super::{AlgorithmSpec, DataSpec, LabelsAt, Personalisation, RunSpec, SecureAggregation};
use crate::data::Preparation;
use crate::data::preparation::Normalisation;
use crate::id::RunId;
use crate::settings::{ReadError, SettingType, complete, read, without_defaults};

/// A specification as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecText(Arc<str>);

/// Why a specification cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// It is of a newer version, which has a key, an alternative, a layer or an algorithm that this one has not.
    #[error("this run uses `{key}`, which this version of edge-client does not know: update it")]
    Unknown {
        /// The full path of the key, and its value if that is what is not known.
        key: String,
    },
    /// A key that is known has a value that is not.
    #[error(
        "this run sets `{key}` to what this version of edge-client does not understand ({reason}): update it"
    )]
    Value {
        /// The full path of the key.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It is no TOML. The server is at fault.
    #[error("the server sent a specification that is no TOML: {reason}")]
    Syntax {
        /// What is wrong with it.
        reason: String,
    },
}

impl From<ReadError> for SpecError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Unknown { key, .. } => Self::Unknown { key },
            ReadError::Value { key, reason } => Self::Value { key, reason },
        }
    }
}

/// Keys of sections that travel which only the server goes by: section and name.
pub const SERVER_KEYS: &[(&str, &str)] = &[
    ("aggregation", "weights"),
    ("aggregation", "rule"),
    ("aggregation", "server-optimizer"),
    ("update", "max-abs"),
    ("evaluate", "every"),
    ("evaluate", "batch"),
    ("evaluate", "command"),
    ("evaluate", "inconsistency"),
    ("secure-aggregation", "patience"),
];

/// Those among them that a device goes by where it folds its update itself, before it hides it.
const DEVICES_FOLD: [&str; 2] = ["weights", "rule"];

/// `[run]`, with the run's identity.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    id: RunId,
    name: String,
    seed: i64,
    rounds: u32,
}

/// `[data]`, as far as it concerns devices.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Data {
    shape: Vec<usize>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    class_names: Vec<String>,
    #[serde(default, skip_serializing_if = "is_default")]
    labels: LabelsAt,
    #[serde(default, skip_serializing_if = "is_default")]
    normalisation: Normalisation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    features: Vec<String>,
}

/// `[connection]`, as far as it concerns devices.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Connection {
    heartbeat: f64,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl SpecText {
    /// The text of a specification.
    ///
    /// # Panics
    /// Never: TOML can express every value of a specification.
    #[must_use]
    pub fn of(spec: &RunSpec) -> Self {
        let run =
            Run { id: spec.run, name: spec.name.clone(), seed: spec.seed.cast_signed(), rounds: spec.rounds };
        let Preparation { augmentation, normalisation } = spec.data.preparation.clone();
        let data = Data {
            shape: spec.data.shape.clone(),
            class_names: spec.data.class_names.clone(),
            labels: spec.data.labels,
            normalisation,
            text: spec.data.text.clone(),
            features: spec.data.features.clone(),
        };
        let AlgorithmSpec { name, parameters } = spec.algorithm.clone();
        let mut text = Table::from_iter([
            ("run".to_owned(), value(&run)),
            ("data".to_owned(), value(&data)),
            ("augment".to_owned(), without_defaults(&augmentation).into()),
            ("model".to_owned(), value(&spec.architecture)),
            ("training".to_owned(), without_defaults(&spec.training).into()),
            ("algorithm".to_owned(), Table::from_iter([(name, parameters.into())]).into()),
            ("aggregation".to_owned(), without_defaults(&spec.aggregation).into()),
            ("update".to_owned(), without_defaults(&spec.update).into()),
            ("evaluate".to_owned(), without_defaults(&spec.evaluate).into()),
            ("connection".to_owned(), value(&Connection { heartbeat: spec.heartbeat.as_secs_f64() })),
        ]);
        if spec.personalised().is_some() {
            text.insert("personalisation".to_owned(), without_defaults(&*spec.personalisation).into());
        }
        if spec.secure.enabled {
            text.insert("secure-aggregation".to_owned(), without_defaults(&spec.secure).into());
        }
        if let Some(noise) = &spec.device_noise {
            text.insert("device-noise".to_owned(), value(noise));
        }
        for (section, key) in SERVER_KEYS {
            if spec.secure.enabled && DEVICES_FOLD.contains(key) {
                continue;
            }
            if let Some(Value::Table(section)) = text.get_mut(*section) {
                section.remove(*key);
            }
        }
        text.retain(|_, section| section.as_table().is_none_or(|section| !section.is_empty()));
        Self(toml::to_string(&text).expect("a table of TOML values is TOML").into())
    }

    /// The text itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The specification, as far as the algorithm's own hyper-parameters are not concerned
    /// ([`registry::build`](crate::algorithm::registry::build) reads them).
    pub fn read(&self) -> Result<RunSpec, SpecError> {
        let mut text: Table = self
            .0
            .parse()
            .map_err(|error: toml::de::Error| SpecError::Syntax { reason: error.message().to_owned() })?;
        let run: Run = required(&mut text, "run")?;
        let data: Data = required(&mut text, "data")?;
        let Connection { heartbeat } = required(&mut text, "connection")?;
        let algorithm: Table = required(&mut text, "algorithm")?;
        let Some((name, Value::Table(parameters))) = algorithm.into_iter().next() else {
            return Err(missing("algorithm"));
        };
        let spec = RunSpec {
            run: run.id,
            name: run.name,
            seed: run.seed.cast_unsigned(),
            rounds: run.rounds,
            data: DataSpec {
                shape: data.shape,
                class_names: data.class_names,
                preparation: Preparation {
                    augmentation: section(&mut text, "augment")?,
                    normalisation: data.normalisation,
                },
                labels: data.labels,
                column: label_column(),
                text: data.text,
                features: data.features,
            },
            architecture: required(&mut text, "model")?,
            training: section(&mut text, "training")?,
            algorithm: AlgorithmSpec { name, parameters },
            aggregation: section(&mut text, "aggregation")?,
            update: section(&mut text, "update")?,
            evaluate: section(&mut text, "evaluate")?,
            personalisation: Box::new(section::<Personalisation>(&mut text, "personalisation")?),
            secure: section::<SecureAggregation>(&mut text, "secure-aggregation")?,
            device_noise: match text.remove("device-noise") {
                Some(noise) => Some(read(&noise, "device-noise")?),
                None => None,
            },
            heartbeat: heartbeat_of(heartbeat)?,
        };
        match text.into_iter().next() {
            None => Ok(spec),
            Some((name, value)) => Err(SpecError::Unknown { key: first_key(name, &value) }),
        }
    }
}

/// More seconds than a `Duration` holds are as good as never.
fn heartbeat_of(seconds: f64) -> Result<Duration, SpecError> {
    match Duration::try_from_secs_f64(seconds) {
        Ok(heartbeat) => Ok(heartbeat),
        Err(_) if seconds > 0.0 => Ok(Duration::MAX),
        Err(error) => {
            Err(SpecError::Value { key: "connection.heartbeat".to_owned(), reason: error.to_string() })
        }
    }
}

impl From<String> for SpecText {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

fn value<T: Serialize>(section: &T) -> Value {
    Value::try_from(section).expect("numbers, texts, lists and tables of these are TOML")
}

/// A section that has no default.
fn required<T: serde::de::DeserializeOwned>(text: &mut Table, name: &str) -> Result<T, SpecError> {
    let section = text.remove(name).ok_or_else(|| missing(name))?;
    Ok(read(&section, name)?)
}

fn missing(section: &str) -> SpecError {
    SpecError::Value { key: section.to_owned(), reason: "it is missing".to_owned() }
}

/// A section with defaults.
fn section<T>(text: &mut Table, name: &str) -> Result<T, SpecError>
where
    T: SettingType + Default + Serialize + serde::de::DeserializeOwned,
{
    let given = match text.remove(name) {
        Some(Value::Table(given)) => given,
        Some(_) => return Err(SpecError::Unknown { key: name.to_owned() }),
        None => Table::new(),
    };
    Ok(read(&Value::Table(complete::<T>(given)), name)?)
}

/// The path of the first key in what stands at `path`.
fn first_key(path: String, value: &Value) -> String {
    match value.as_table().and_then(|table| table.iter().next()) {
        Some((name, value)) => first_key(format!("{path}.{name}"), value),
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use models::{AdamSettings, Sgd};

    use super::*;
    use crate::aggregation::{Aggregation, Buffers, Rule};
    use crate::schedule::Schedule;
    use crate::spec::personalisation::{Method, Methods};
    use crate::spec::{Evaluation, Optimizer, Training, Update};

    fn written(spec: &RunSpec) -> Table {
        SpecText::of(spec).as_str().parse().expect("TOML")
    }

    #[test]
    fn what_has_its_default_does_not_travel() {
        let spec = RunSpec { training: Training::default(), ..RunSpec::example("fedavg") };
        let text = written(&spec);
        let sections: Vec<&str> = text.keys().map(String::as_str).collect();
        assert_eq!(sections, ["algorithm", "connection", "data", "model", "run"]);
        assert_eq!(SpecText::of(&spec).read(), Ok(spec));
    }

    #[test]
    fn what_is_set_travels_and_what_the_server_alone_goes_by_does_not() {
        let spec = RunSpec {
            seed: u64::MAX,
            training: Training {
                schedule: Schedule::Cosine { min_factor: 0.0 },
                optimizer: Sgd { rate: 0.1, momentum: 0.9, decay: 0.0 }.into(),
                clip_norm: Some(1.5),
                chunks: 4,
                ..Training::default()
            },
            aggregation: Aggregation {
                rule: Rule::Median {},
                buffers: Buffers::Local,
                ..Aggregation::default()
            },
            update: Update { max_abs: 7.0, ..Update::default() },
            evaluate: Evaluation { every: 9, on_clients_every: 2, ..Evaluation::default() },
            personalisation: Box::new(Personalisation {
                method: Some(Methods(vec![Method::Mf, Method::Ft])),
                ..Personalisation::default()
            }),
            ..RunSpec::example("fedavg")
        };
        let text = written(&spec);
        let section = |name: &str| text[name].as_table().expect(name).clone();
        let table = |text: &str| text.parse::<Table>().expect(text);
        assert_eq!(
            section("training"),
            table(
                "clip-norm = 1.5\nchunks = 4\nschedule.cosine = {}\noptimizer.sgd = { learning-rate = 0.1, momentum = 0.9 }"
            )
        );
        assert_eq!(section("aggregation"), table("buffers = 'local'"));
        assert_eq!(section("evaluate"), table("on-clients-every = 2"));
        assert_eq!(section("personalisation"), table("method = ['mf', 'ft']"));
        assert!(!text.contains_key("update"));
        let read = SpecText::of(&spec).read().expect("its own text");
        let told = RunSpec {
            aggregation: Aggregation { rule: Rule::Mean {}, ..spec.aggregation },
            update: Update::default(),
            evaluate: Evaluation { every: 1, ..spec.evaluate },
            ..spec
        };
        assert_eq!(read, told);
        assert_eq!(SpecText::of(&read), SpecText::of(&told));
    }

    /// What a server of the version after this one may say.
    #[test]
    fn what_a_newer_version_brings_is_refused_by_its_name() {
        let spec = RunSpec { training: Training::default(), ..RunSpec::example("fedavg") };
        for (added, key) in [
            ("[privacy]\nclip = 1.0", "privacy.clip"),
            ("[training]\nfreeze = ['extractor']", "training.freeze"),
            ("[training.optimizer.lamb]\nbeta1 = 0.9", "training.optimizer.lamb"),
            ("[training.optimizer.sgd]\ndampening = 0.5", "training.optimizer.sgd.dampening"),
            ("[update]\nprecision = 'int2'", "update.precision = \"int2\""),
            ("[personalisation]\nhead.warm-up = 1", "personalisation.head.warm-up"),
            ("[augment]\ncut-mix = 0.5", "augment.cut-mix"),
        ] {
            let text = SpecText::from(format!("{}\n{added}\n", SpecText::of(&spec).as_str()));
            assert_eq!(text.read(), Err(SpecError::Unknown { key: key.to_owned() }), "{added}");
        }
        let mut text = written(&spec);
        text["model"]["head"] = Value::Array(vec![Value::String("capsules".to_owned())]);
        let text = SpecText::from(toml::to_string(&text).expect("TOML"));
        assert_eq!(text.read(), Err(SpecError::Unknown { key: "model.head[0] = \"capsules\"".to_owned() }));
        let said = text.read().unwrap_err().to_string();
        assert!(said.contains("does not know: update it"), "{said}");
    }

    #[test]
    fn an_optimizer_is_what_the_engine_takes() {
        let sgd = Sgd { rate: 0.5, momentum: 0.25, decay: 0.125 };
        let adam = AdamSettings { rate: 0.5, beta1: 0.25, beta2: 0.75, epsilon: 0.125, decay: 0.0625 };
        for optimizer in [
            models::Optimizer::Sgd(sgd),
            models::Optimizer::Nesterov(sgd),
            models::Optimizer::Adam(adam),
            models::Optimizer::AdamW(adam),
        ] {
            assert_eq!(Optimizer::from(optimizer).to_engine(), optimizer);
        }
    }
}
