//! The keys of a configuration that have another value than by default.

use shared::settings::{Kind, table_of};
use toml::Value;

use super::keys::KEYS;
use super::{Raw, value_at};

/// A key that has another value than by default.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    /// Its full path.
    pub key: &'static str,
    /// What it is, in one line.
    pub says: &'static str,
    /// Its value.
    pub value: Value,
}

impl Changed {
    /// All such keys of this configuration, in the order in which they are written. Neither the run's name, nor where files lie, nor the
    /// layers of a network, which fill a page of their own.
    #[must_use]
    pub fn of(effective: &Raw) -> Vec<Self> {
        let (table, defaults) = (table_of(effective), table_of(&Raw::default()));
        let shown = KEYS.iter().filter(|key| {
            !matches!(key.kind, Kind::Network | Kind::Empty)
                && !["run.name", "data.path"].contains(&&*key.path)
        });
        let changed = shown.filter_map(|key| {
            let value = value_at(&table, &key.path)?;
            (value_at(&defaults, &key.path) != Some(value)).then(|| Self {
                key: &key.path,
                says: key.says,
                value: value.clone(),
            })
        });
        changed.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_another_value_than_by_default_is_changed_and_a_name_is_not() {
        let of = |given: &[&str]| {
            let given: Vec<String> = given.iter().map(|&given| given.to_owned()).collect();
            Changed::of(&Raw::layered(None, &given).expect("overrides that can be read"))
        };
        assert_eq!(of(&["run.name=mine", "training.batch=16"]), [], "16 is the default");
        let changed = of(&["training.epochs=7", "run.seed=3", "data.partition.shards.per-client=2"]);
        let said: Vec<String> =
            changed.iter().map(|changed| format!("{} {}", changed.key, changed.value)).collect();
        assert_eq!(said, ["run.seed 3", "data.partition.shards.per-client 2", "training.epochs 7"]);
    }
}
