//! The registry: algorithms by their names in the configuration.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Algorithm, ErasedAlgorithm};
use crate::settings::{ReadError, read};
use crate::spec::{AlgorithmSpec, RunSpec, SpecError, SpecText};

pub use super::ALGORITHMS;

/// A registered algorithm.
pub struct Entry {
    /// Its name in the configuration.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    build: fn(toml::Table) -> Result<Box<dyn ErasedAlgorithm>, RegistryError>,
    complete: fn(toml::Table) -> Result<toml::Table, RegistryError>,
    to_postcard: fn(toml::Table) -> Option<Vec<u8>>,
    from_postcard: fn(&[u8]) -> Option<toml::Table>,
}

/// Why an algorithm cannot be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RegistryError {
    /// No algorithm has this name.
    #[error("there is no algorithm `{name}`; there are: {}", names().join(", "))]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// The algorithm has no such hyper-parameter, or one of another kind.
    #[error("[algorithm.{name}]: {source}")]
    Key {
        /// The algorithm.
        name: String,
        /// What is not known or not understood.
        source: ReadError,
    },
    /// The hyper-parameters do not make sense.
    #[error("[algorithm.{name}]: {reason}")]
    Table {
        /// The algorithm.
        name: String,
        /// What is wrong with them.
        reason: String,
    },
}

impl From<RegistryError> for SpecError {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Unknown { name } => Self::Unknown { key: format!("algorithm.{name}") },
            RegistryError::Key { source, .. } => source.into(),
            RegistryError::Table { name, reason } => Self::Value { key: format!("algorithm.{name}"), reason },
        }
    }
}

pub(super) const fn entry<A: Algorithm>(summary: &'static str) -> Entry {
    Entry {
        name: A::NAME,
        summary,
        build: |table| {
            let algorithm: A = read_as(A::NAME, table)?;
            algorithm
                .validate()
                .map_err(|reason| RegistryError::Table { name: A::NAME.to_owned(), reason })?;
            Ok(Box::new(algorithm))
        },
        complete: |table| complete_as::<A>(A::NAME, table),
        to_postcard: |table| {
            let whole = postcard::to_stdvec(&read_as::<A>(A::NAME, table).ok()?).ok()?;
            whole.strip_suffix(A::later().as_slice()).map(<[u8]>::to_vec)
        },
        from_postcard: |bytes| match postcard::take_from_bytes::<A>(&[bytes, &A::later()].concat()) {
            Ok((algorithm, [])) => toml::Table::try_from(algorithm).ok(),
            _ => None,
        },
    }
}

fn read_as<A: DeserializeOwned>(name: &str, table: toml::Table) -> Result<A, RegistryError> {
    read(&toml::Value::Table(table), &format!("algorithm.{name}"))
        .map_err(|source| RegistryError::Key { name: name.to_owned(), source })
}

fn complete_as<A: Serialize + DeserializeOwned>(
    name: &str,
    table: toml::Table,
) -> Result<toml::Table, RegistryError> {
    let complete = toml::Table::try_from(read_as::<A>(name, table)?);
    complete.map_err(|error| RegistryError::Table { name: name.to_owned(), reason: error.to_string() })
}

/// The registered names.
#[must_use]
pub fn names() -> Vec<&'static str> {
    ALGORITHMS.iter().map(|entry| entry.name).collect()
}

/// The algorithm of this name with its default hyper-parameters: which capabilities it has does not depend on them.
pub fn by_default(name: &str) -> Result<Box<dyn ErasedAlgorithm>, RegistryError> {
    build(&specify(name, toml::Table::new())?)
}

fn find(name: &str) -> Result<&'static Entry, RegistryError> {
    let found = ALGORITHMS.iter().find(|entry| entry.name == name);
    found.ok_or_else(|| RegistryError::Unknown { name: name.to_owned() })
}

/// The specification of algorithm `name` with the hyper-parameters in `table`. Those that are the defaults are left out of it.
pub fn specify(name: &str, table: toml::Table) -> Result<AlgorithmSpec, RegistryError> {
    let entry = find(name)?;
    (entry.build)(table.clone())?;
    let (mut parameters, defaults) = ((entry.complete)(table)?, (entry.complete)(toml::Table::new())?);
    parameters.retain(|key, value| defaults.get(key) != Some(value));
    Ok(AlgorithmSpec { name: name.to_owned(), parameters })
}

/// The hyper-parameters in `table` with the defaults of algorithm `name` for those that are not.
pub fn complete(name: &str, table: toml::Table) -> Result<toml::Table, RegistryError> {
    (find(name)?.complete)(table)
}

/// The algorithm that `spec` names.
pub fn build(spec: &AlgorithmSpec) -> Result<Box<dyn ErasedAlgorithm>, RegistryError> {
    (find(&spec.name)?.build)(spec.parameters.clone())
}

/// The specification that a server has sent, with an algorithm that this version knows.
pub fn read_spec(text: &SpecText) -> Result<RunSpec, SpecError> {
    let spec = text.read()?;
    build(&spec.algorithm)?;
    Ok(spec)
}

/// The hyper-parameters of `spec` by their positions, as they travelled before protocol version 6. `None` if this version does not
/// know them.
pub(crate) fn to_postcard(spec: &AlgorithmSpec) -> Option<Vec<u8>> {
    (find(&spec.name).ok()?.to_postcard)(spec.parameters.clone())
}

/// What [`to_postcard`] made.
pub(crate) fn from_postcard(name: &str, parameters: &[u8]) -> Option<AlgorithmSpec> {
    specify(name, (find(name).ok()?.from_postcard)(parameters)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_builds_from_its_defaults_and_survives_the_wire() {
        for entry in ALGORITHMS {
            assert_eq!(by_default(entry.name).expect(entry.name).name(), entry.name);
            assert!(!entry.summary.is_empty() && entry.name == entry.name.to_lowercase());
        }
    }

    #[test]
    fn complete_tables_have_every_key_and_mean_the_same() {
        #[derive(Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
        struct Knobs {
            mu: f64,
            warm_up: u32,
        }
        impl Default for Knobs {
            fn default() -> Self {
                Self { mu: 0.1, warm_up: 3 }
            }
        }
        let table = |text: &str| text.parse::<toml::Table>().expect(text);
        assert_eq!(complete_as::<Knobs>("x", table("mu = 2")), Ok(table("mu = 2.0\nwarm-up = 3")));
        let unknown = complete_as::<Knobs>("x", table("nu = 2")).expect_err("there is no nu");
        assert!(unknown.to_string().contains("algorithm.x.nu"), "{unknown}");
        for entry in ALGORITHMS {
            let complete = complete(entry.name, toml::Table::new()).expect(entry.name);
            assert_eq!(specify(entry.name, complete), specify(entry.name, toml::Table::new()));
        }
    }

    #[test]
    fn what_earlier_peers_do_not_know_is_left_out_at_its_default_and_refused_otherwise() {
        let fafi = |text: &str| specify("fafi", text.parse().expect("TOML")).expect("settings");
        let usual = to_postcard(&fafi("contrast = 0.5")).expect("it has the usual prototypes");
        // Four numbers and the fusion.
        assert_eq!(usual.len(), 4 * 8 + 1);
        assert_eq!(from_postcard("fafi", &usual), Some(fafi("contrast = 0.5")));
        for newer in ["prototype-temperature = 0.5", "noise.mean = 0.5", "noise.deviation = 2"] {
            assert_eq!(to_postcard(&fafi(newer)), None, "{newer}");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names = names();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALGORITHMS.len());
    }

    #[test]
    fn mistakes_are_named() {
        let unknown = specify("fedvag", toml::Table::new()).expect_err("no such algorithm").to_string();
        assert!(unknown.contains("fedvag") && unknown.contains("fedavg"), "{unknown}");
        let table = toml::Table::from_iter([("mu".to_owned(), toml::Value::Float(0.1))]);
        let key = specify("fedavg", table).expect_err("fedavg has no mu").to_string();
        assert!(key.contains("mu") && key.contains("fedavg"), "{key}");
        for (name, key, value) in [
            ("fedprox", "mu", -1.0),
            ("moon", "mu", f64::NAN),
            ("moon", "tau", 0.0),
            ("fedetf", "scale", 0.0),
            ("fafi", "contrast", -1.0),
            ("fafi", "temperature", 0.0),
        ] {
            let table = toml::Table::from_iter([(key.to_owned(), toml::Value::Float(value))]);
            let reason = specify(name, table).expect_err("out of range").to_string();
            assert!(
                reason.contains(name) && reason.contains(key) && reason.contains(&value.to_string()),
                "{reason}"
            );
        }
        let parameters = "nu = 1".parse().expect("TOML");
        let error =
            build(&AlgorithmSpec { name: "fedprox".to_owned(), parameters }).err().expect("it has no nu");
        assert_eq!(SpecError::from(error), SpecError::Unknown { key: "algorithm.fedprox.nu".to_owned() });
    }
}
