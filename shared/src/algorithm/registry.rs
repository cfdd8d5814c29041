//! The registry: algorithms by their names in the configuration.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Algorithm, ErasedAlgorithm};
use crate::spec::AlgorithmSpec;

pub use super::ALGORITHMS;

/// A registered algorithm.
pub struct Entry {
    /// Its name in the configuration.
    pub name: &'static str,
    /// What it is, in one line.
    pub summary: &'static str,
    from_toml: fn(toml::Table) -> Result<Vec<u8>, String>,
    complete: fn(toml::Table) -> Result<toml::Table, String>,
    from_spec: fn(&[u8]) -> Option<Box<dyn ErasedAlgorithm>>,
}

/// Why an algorithm could not be had.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum RegistryError {
    /// No algorithm has this name.
    #[error("there is no algorithm `{name}`; there are: {}", names().join(", "))]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// The table's keys do not fit the algorithm.
    #[error("[algorithm.{name}]: {reason}")]
    Table {
        /// The algorithm.
        name: String,
        /// What is wrong with the table.
        reason: String,
    },
    /// The specification's parameters do not fit the algorithm: the other side has another version of it.
    #[error(
        "the parameters of algorithm `{name}` do not decode: client and aggregator are of different versions"
    )]
    Parameters {
        /// The algorithm.
        name: String,
    },
}

pub(super) const fn entry<A: Algorithm>(summary: &'static str) -> Entry {
    Entry {
        name: A::NAME,
        summary,
        from_toml: |table| {
            let algorithm: A = read(table)?;
            algorithm.validate()?;
            postcard::to_stdvec(&algorithm).map_err(|error| error.to_string())
        },
        complete: complete_as::<A>,
        from_spec: |bytes| match postcard::take_from_bytes::<A>(bytes) {
            Ok((algorithm, [])) if algorithm.validate().is_ok() => Some(Box::new(algorithm)),
            _ => None,
        },
    }
}

fn read<A: DeserializeOwned>(table: toml::Table) -> Result<A, String> {
    table.try_into().map_err(|error: toml::de::Error| error.message().to_owned())
}

fn complete_as<A: Serialize + DeserializeOwned>(table: toml::Table) -> Result<toml::Table, String> {
    toml::Table::try_from(read::<A>(table)?).map_err(|error| error.to_string())
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

/// The specification of algorithm `name` with the hyper-parameters in `table`.
pub fn specify(name: &str, table: toml::Table) -> Result<AlgorithmSpec, RegistryError> {
    let parameters = (find(name)?.from_toml)(table)
        .map_err(|reason| RegistryError::Table { name: name.to_owned(), reason })?;
    Ok(AlgorithmSpec { name: name.to_owned(), parameters })
}

/// The hyper-parameters in `table` with the defaults of algorithm `name` for those that are not.
pub fn complete(name: &str, table: toml::Table) -> Result<toml::Table, RegistryError> {
    (find(name)?.complete)(table).map_err(|reason| RegistryError::Table { name: name.to_owned(), reason })
}

/// The algorithm that `spec` names.
pub fn build(spec: &AlgorithmSpec) -> Result<Box<dyn ErasedAlgorithm>, RegistryError> {
    (find(&spec.name)?.from_spec)(&spec.parameters)
        .ok_or_else(|| RegistryError::Parameters { name: spec.name.clone() })
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
        assert_eq!(complete_as::<Knobs>(table("mu = 2")), Ok(table("mu = 2.0\nwarm-up = 3")));
        assert!(complete_as::<Knobs>(table("nu = 2")).is_err_and(|reason| reason.contains("nu")));
        for entry in ALGORITHMS {
            let complete = complete(entry.name, toml::Table::new()).expect(entry.name);
            assert_eq!(specify(entry.name, complete), specify(entry.name, toml::Table::new()));
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
        let spec = AlgorithmSpec { name: "fedavg".to_owned(), parameters: vec![1] };
        assert_eq!(build(&spec).err(), Some(RegistryError::Parameters { name: "fedavg".to_owned() }));
    }
}
