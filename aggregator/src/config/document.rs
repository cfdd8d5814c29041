//! A configuration as a TOML document for people: every key, what it is, and what it is set to.

use std::fmt::Write as _;

use models::shape::spelled;
use shared::algorithm::registry;
use shared::settings::{Key, Kind, table_of, without_defaults};
use toml::{Table, Value};

use super::keys::KEYS;
use super::paths::value_at;
use super::{Raw, network};

/// Column at which comments begin, where the line leaves room.
const COMMENT: usize = 36;

impl Raw {
    /// The configuration as TOML with every key explicit and explained. Reading it back gives the same `Raw`. Keys
    /// that are unset stand there as comments that say what that means.
    ///
    /// # Panics
    /// Never: TOML can express every value of a `Raw`.
    #[must_use]
    pub fn to_toml(&self) -> String {
        self.explained(self)
    }

    /// What it says that is not so by default, as TOML, without what `given` leaves unset and was derived. Two versions of the program of
    /// which one knows more keys say the same of it.
    ///
    /// # Panics
    /// Never: TOML can express every value of a `Raw`.
    #[must_use]
    pub fn stated(&self, given: &Self) -> String {
        let (mut stated, given) = (without_defaults(self), table_of(given));
        for key in KEYS.iter().filter(|key| key.unset.is_some() && value_at(&given, &key.path).is_none()) {
            remove(&mut stated, &key.path);
        }
        let algorithm = self.algorithm.iter().map(|(name, table)| {
            let said =
                registry::specify(name, table.clone()).map_or_else(|_| table.clone(), |spec| spec.parameters);
            (name.clone(), Value::Table(said))
        });
        stated.insert("algorithm".to_owned(), Value::Table(algorithm.collect()));
        toml::to_string(&stated).expect("a table of TOML values is TOML")
    }

    /// The same for people, who change it and run it: what `given` leaves unset, and was derived from it, stands there as a
    /// comment, so that it follows the keys that are changed.
    ///
    /// # Panics
    /// Never: as [`to_toml`](Self::to_toml).
    #[must_use]
    pub fn explained(&self, given: &Self) -> String {
        let (table, given) = (table_of(self), table_of(given));
        let mut text = format!(
            "# Effective configuration of a federated run, written by aggregator {}.\n\
             # Every key is optional: what is left out has the default value.\n",
            env!("CARGO_PKG_VERSION")
        );
        let mut section = "";
        for key in KEYS.iter() {
            let (first, rest) = key.path.split_once('.').unwrap_or((&key.path, ""));
            if key.kind == Kind::Algorithm {
                text.push_str(&algorithm(self, key));
                continue;
            }
            if section != first {
                section = first;
                let _ = write!(text, "\n[{section}]\n");
            }
            if let (Kind::Network, Some(Value::Table(layers))) = (key.kind, value_at(&table, &key.path)) {
                let _ = writeln!(text, "# {}", key.says);
                text.push_str(&network::document(layers));
                continue;
            }
            let value = value_at(&table, &key.path).map(|value| shown(key, value));
            let line = match (value, key.unset) {
                (Some(value), Some(_)) if value_at(&given, &key.path).is_none() => {
                    format!("# {rest} = {value}")
                }
                (Some(value), _) => format!("{rest} = {value}"),
                (None, Some(_)) => format!("# {rest} ="),
                // Another alternative of a choice stands in its place.
                (None, None) => continue,
            };
            let more = match (key.unset, others(key)) {
                (Some(unset), _) => format!("; unset: {unset}"),
                (None, Some(others)) => format!("; or {others}"),
                (None, None) => String::new(),
            };
            let _ = writeln!(text, "{line:<COMMENT$} # {}{more}", key.says);
        }
        text
    }
}

/// Removes what stands at a path, and the tables that are empty then.
fn remove(table: &mut Table, path: &str) {
    let Some((first, rest)) = path.split_once('.') else {
        table.remove(path);
        return;
    };
    if let Some(Value::Table(inner)) = table.get_mut(first) {
        remove(inner, rest);
        if inner.is_empty() {
            table.remove(first);
        }
    }
}

/// A value as people write it: a shape with an x between its sides.
fn shown(key: &Key, value: &Value) -> Value {
    match (key.kind, value) {
        (Kind::Shape, Value::Array(sides)) => Value::String(spelled(sides)),
        _ => value.clone(),
    }
}

/// The other alternatives, if the key is that of the default one.
fn others(key: &Key) -> Option<String> {
    let (choice, name) = key.path.rsplit_once('.')?;
    let (first, others) = KEYS.alternatives(choice)?.split_first()?;
    let others = others.iter().map(|other| other.name).collect::<Vec<_>>().join(", ");
    (first.name == name).then_some(others)
}

fn algorithm(raw: &Raw, key: &Key) -> String {
    let document = Table::from_iter([(&key.path, &raw.algorithm)].map(|(name, table)| {
        let table = table.iter().map(|(name, table)| (name.clone(), Value::Table(table.clone())));
        (name.clone(), Value::Table(table.collect()))
    }));
    let document = toml::to_string(&document).expect("a table of tables of TOML values is TOML");
    format!("\n# {}\n{document}", key.says)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use shared::data::partition::Empty;
    use shared::data::{Partition, sets};
    use shared::spec::ModelFormat;

    use super::*;
    use crate::config::Config;
    use shared::id::RunId;
    use shared::spec::Optimizer;

    fn read_back(text: &str) -> Raw {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("effective.toml");
        std::fs::write(&path, text).expect("a file in it");
        Raw::layered(Some(&path), &[]).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn what_is_stated_is_what_is_not_so_by_default() {
        let stated = |overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
            let given = Raw::layered(None, &overrides).expect("its keys exist");
            let config = Config::validate(&given, RunId::from_bytes([1; 8])).expect("it makes sense");
            config.effective.without_local_paths().stated(&given)
        };
        assert_eq!(stated(&[]), "[algorithm.fedavg]\n");
        assert_eq!(stated(&["run.rounds=7"]), "[algorithm.fedavg]\n\n[run]\nrounds = 7\n");
        assert_eq!(stated(&["algorithm.scaffold={}"]), "[algorithm.scaffold]\n");
        let median = stated(&["aggregation.rule.median={}", "aggregation.weights=uniform"]);
        assert!(median.contains("[aggregation.rule.median]"), "{median}");
    }

    #[test]
    fn every_key_is_there_once() {
        let text = Raw::default().to_toml();
        let mut section = "";
        let mut stated = Vec::new();
        for line in text.lines() {
            if let Some(name) = line.strip_prefix('[') {
                section = name.trim_end_matches(']');
            } else if let Some((name, _)) = line.trim_start_matches("# ").split_once(" =") {
                stated.push(format!("{section}.{name}"));
            }
        }
        let default = table_of(&Raw::default());
        let another = |key: &Key| key.unset.is_none() && value_at(&default, &key.path).is_none();
        let expected = KEYS.iter().filter(|key| key.kind != Kind::Algorithm && !another(key));
        assert_eq!(stated, expected.map(|key| key.path.as_str()).collect::<Vec<_>>(), "{text}");
        assert!(text.contains("[algorithm.fedavg]") && text.contains(env!("CARGO_PKG_VERSION")), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 130), "{text}");
    }

    #[test]
    fn what_was_derived_is_a_comment_for_people() {
        let given = Raw::default();
        let mut raw = given.clone();
        raw.round.min_clients_to_start = Some(7);
        let text = raw.explained(&given);
        let line = text.lines().find(|line| line.contains("start = ")).expect("it is shown");
        assert!(
            line.starts_with("# min-clients-to-start = 7 ") && line.ends_with("unset: data.clients"),
            "{line}"
        );
        assert_eq!(read_back(&text), given, "and follows data.clients if that is changed");
        assert_eq!(read_back(&raw.to_toml()), raw, "a run's own configuration leaves nothing open");
    }

    #[test]
    fn the_default_reads_back() {
        assert_eq!(read_back(&Raw::default().to_toml()), Raw::default());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn any_configuration_reads_back(
            name in "[^\\p{Cc}/\\\\.][^\\p{Cc}/\\\\]{0,59}",
            seed in 0..=i64::MAX,
            (rate, alpha, fraction) in (1e-12..1e12_f64, 1e-6..1e6_f64, 0.0..=1.0_f64),
            limit in proptest::option::of(1..=u32::MAX),
            broadcast in proptest::option::of(proptest::sample::select(vec![ModelFormat::F32, ModelFormat::F16, ModelFormat::BF16, ModelFormat::Int8])),
            partition in 0..6,
        ) {
            let mut raw = Raw::default();
            raw.run.name = Some(name);
            raw.run.seed = seed;
            raw.data.set = &sets::FASHION_MNIST;
            raw.data.path = Some("/data\\ \"x\" # not a comment".to_owned());
            raw.data.max_samples = limit;
            raw.data.partition = match partition {
                0 => Partition::Iid {},
                1 => Partition::Shards { per_client: 3 },
                2 => Partition::Dirichlet { alpha, empty: Empty::Absent },
                3 => Partition::DirichletCapped { alpha, min: 7 },
                4 => Partition::Quantity { alpha, min: 7 },
                _ => Partition::Classes { per_client: 3 },
            };
            raw.training.optimizer = Optimizer::Sgd { learning_rate: rate, momentum: 0.5, weight_decay: 1e-5 };
            raw.round.fraction = fraction;
            raw.update.broadcast = broadcast;
            raw.algorithm = [("fedsgd".to_owned(), Table::new())].into();
            prop_assert_eq!(read_back(&raw.to_toml()), raw);
        }
    }
}
