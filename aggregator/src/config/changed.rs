//! The keys that make a configuration another one than the default: those without which it would not be the same.
//!
//! An effective configuration has a value for every key, also for those that follow from others, such as `round.min-clients-to-start`,
//! which is `data.clients` unless it is set. Such keys are not changed: what is left out here is found again by validation.

use std::path::Path;

use shared::id::RunId;
use shared::settings::table_of;
use toml::{Table, Value};

use super::keys::KEYS;
use super::places::below;
use super::{Config, Raw, value_at};

/// Keys that tell no configuration from another: names, places, what is noted of the model that a run begins with, and the layers of a
/// network, which fill a page of their own.
const UNSAID: [&str; 5] =
    ["run.name", "data.path", "model.layers", "model.from.in-round", "model.from.digest"];

/// A key that has another value than by default.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// Its full path.
    pub key: String,
    /// What it is, in one line; empty of an algorithm's own.
    pub says: &'static str,
    /// Its value; of an alternative without keys an empty table.
    pub value: Value,
}

impl Changed {
    /// The changed keys of an effective configuration, sorted by name. Left out are the `UNSAID` keys and the name of the algorithm,
    /// which stands beside the name of a run.
    #[must_use]
    pub fn of(effective: &Raw) -> Vec<Self> {
        let mut table = table_of(effective);
        drop_defaults(&mut table, &table_of(&Raw::default()), "");
        // Under another version's rules it may not be what it was: then all that is not default is said.
        if is_same(&table, effective) {
            reduce(&mut table.clone(), "", &mut table, effective);
        }
        let mut changed = Vec::new();
        collect(&table, "", &mut changed);
        changed.sort_by(|a: &Self, b| a.key.cmp(&b.key));
        changed
    }
}

fn is_unsaid(key: &str) -> bool {
    UNSAID
        .iter()
        .any(|unsaid| key == *unsaid || key.strip_prefix(unsaid).is_some_and(|rest| rest.starts_with('.')))
}

/// Whether this table, laid over the defaults, makes the effective configuration.
fn is_same(table: &Table, effective: &Raw) -> bool {
    let text = table.to_string();
    let read = Raw::of_text(&text, Path::new("config.toml"));
    let config = read.and_then(|raw| Config::validate(&raw, RunId::from_bytes([0; 8])));
    config.is_ok_and(|config| config.effective == *effective)
}

/// Takes out what is the same in both, and tables that hold nothing else.
fn drop_defaults(table: &mut Table, defaults: &Table, above: &str) {
    table.retain(|name, value| {
        let key = below(above, name);
        if is_unsaid(&key) {
            return true;
        }
        match (value, defaults.get(name)) {
            (value, Some(default)) if value == default => false,
            (Value::Table(inner), Some(Value::Table(defaults))) => {
                drop_defaults(inner, defaults, &key);
                true
            }
            _ => true,
        }
    });
}

/// Takes out of `whole` what is found again without it: every entry of `table`, which stands there at `above`, or what is in it.
fn reduce(table: &mut Table, above: &str, whole: &mut Table, effective: &Raw) {
    for (name, value) in table.iter_mut() {
        let key = below(above, name);
        if UNSAID.iter().any(|unsaid| *unsaid == key) {
            continue;
        }
        let has_unsaid = UNSAID
            .iter()
            .any(|unsaid| unsaid.starts_with(&format!("{key}.")) && value_at(whole, unsaid).is_some());
        let mut without = whole.clone();
        remove(&mut without, &key);
        if !has_unsaid && is_same(&without, effective) {
            *whole = without;
        } else if let Value::Table(inner) = value {
            reduce(inner, &key, whole, effective);
        }
    }
}

/// Takes the value at `path` out; a table that then holds nothing stays.
fn remove(table: &mut Table, path: &str) {
    match path.split_once('.') {
        None => drop(table.remove(path)),
        Some((name, rest)) => {
            if let Some(Value::Table(inner)) = table.get_mut(name) {
                remove(inner, rest);
            }
        }
    }
}

fn collect(table: &Table, above: &str, into: &mut Vec<Changed>) {
    for (name, value) in table {
        let key = below(above, name);
        match value {
            Value::Table(inner) if !inner.is_empty() => collect(inner, &key, into),
            // What is chosen by an empty table has a dot in its name; other empty tables are sections of which nothing is left.
            Value::Table(_) if above.is_empty() || above == "algorithm" => {}
            _ if is_unsaid(&key) => {}
            value => into.push(Changed { says: says(&key), value: value.clone(), key }),
        }
    }
}

/// What the key is, or the nearest one above it that is described.
fn says(key: &str) -> &'static str {
    let above =
        |path: &str| key.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let found = KEYS.iter().filter(|known| above(&known.path)).max_by_key(|known| known.path.len());
    found.map_or("", |known| known.says)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(given: &[&str]) -> Vec<String> {
        let given: Vec<String> = given.iter().map(|&given| given.to_owned()).collect();
        let raw = Raw::layered(None, &given).expect("overrides that can be read");
        let config = Config::validate(&raw, RunId::from_bytes([1; 8])).expect("a valid configuration");
        let changed = Changed::of(&config.effective);
        changed.iter().map(|changed| format!("{} {}", changed.key, changed.value)).collect()
    }

    #[test]
    fn what_has_another_value_than_by_default_is_changed_and_what_follows_from_it_is_not() {
        assert_eq!(said(&["run.name=mine", "training.batch=16"]), [""; 0], "16 is the default");
        assert_eq!(
            said(&["training.epochs=7", "run.seed=3", "data.partition.shards.per-client=3"]),
            ["data.partition.shards.per-client 3", "run.seed 3", "training.epochs 7"]
        );
        assert_eq!(said(&["data.clients=4"]), ["data.clients 4"], "and all of them are waited for");
        assert_eq!(said(&["data.clients=4", "round.min-clients-to-start=3"]).len(), 2);
        assert_eq!(
            said(&["model.name=linear", "update.precision=f16"]),
            ["model.name \"linear\"", "update.precision \"f16\""]
        );
    }

    #[test]
    fn an_algorithm_is_named_by_its_keys_alone_and_a_choice_without_keys_by_its_own() {
        assert_eq!(said(&["algorithm.fafi={}"]), [""; 0]);
        assert_eq!(said(&["algorithm.fedprox.mu=0.5"]), ["algorithm.fedprox.mu 0.5"]);
        assert_eq!(
            said(&["aggregation.rule.median={}", "aggregation.weights=uniform"]),
            ["aggregation.rule.median {}", "aggregation.weights \"uniform\""]
        );
    }
}
