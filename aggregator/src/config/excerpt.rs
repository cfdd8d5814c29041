//! Configurations that are written in parts within a larger file: an experiment has what its runs share in one table, and
//! what tells them apart in others.
//!
//! Every part is checked as a configuration file is, and mistakes are reported with their lines in the larger file.

use std::path::{Path, PathBuf};

use shared::id::RunId;
use shared::settings::table_of;
use toml::{Table, Value};

use super::layers::{self, Layers};
use super::overrides::{self, Override};
use super::paths::insert;
use super::places::{Places, below};
use super::{Config, ConfigErrors, Origin, Raw, validate};

/// A TOML file that holds parts of configurations.
#[derive(Debug)]
pub struct Document {
    path: PathBuf,
    text: String,
    table: Table,
    places: Places,
}

/// One table of a [`Document`] as a layer of a configuration, without the keys that are the larger file's own.
#[derive(Clone, Debug)]
pub struct Excerpt {
    path: PathBuf,
    table: Table,
    places: Places,
}

impl Document {
    /// Reads the file. All mistakes of its syntax are reported.
    pub fn read(path: &Path) -> Result<Self, ConfigErrors> {
        let text = layers::read(path)?;
        let (table, places) = layers::parsed(&text, path)?;
        Ok(Self { path: path.to_owned(), text, table, places })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its content.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Where the value at this path of names stands: `lab.toml:7`. The file alone if it is not there.
    #[must_use]
    pub fn place(&self, path: &[&str]) -> String {
        let origin = self.places.origin(&full(path));
        origin.map_or_else(|| self.path.display().to_string(), ToString::to_string)
    }

    /// The names in the table at this path, in the order of the file. Empty if there is no such table.
    #[must_use]
    pub fn names(&self, path: &[&str]) -> Vec<String> {
        let Some(table) = self.at(path) else { return Vec::new() };
        let prefix = full(path);
        let mut names: Vec<String> = table.keys().cloned().collect();
        names.sort_by_key(|name| self.places.position(&below(&prefix, name)));
        names
    }

    /// The table at this path without the keys in `own`. `None` if there is no such table.
    #[must_use]
    pub fn excerpt(&self, path: &[&str], own: &[&str]) -> Option<Excerpt> {
        let mut table = self.at(path)?.clone();
        for name in own {
            table.remove(*name);
        }
        Some(Excerpt { path: self.path.clone(), table, places: self.places.inside(&full(path)) })
    }

    /// A layer that sets one key, for which the value at this path of names stands in the file.
    #[must_use]
    pub fn setting(&self, path: &[&str], key: &str, value: Value) -> Excerpt {
        let mut table = Table::new();
        insert(&mut table, key, value);
        let origin = self.places.origin(&full(path)).cloned();
        let places = origin.map_or_else(Places::default, |origin| Places::all_at(&table, &origin));
        Excerpt { path: self.path.clone(), table, places }
    }

    fn at(&self, path: &[&str]) -> Option<&Table> {
        path.iter().try_fold(&self.table, |table, name| table.get(*name)?.as_table())
    }
}

fn full(path: &[&str]) -> String {
    path.iter().fold(String::new(), |prefix, name| below(&prefix, name))
}

impl Config {
    /// The configuration of these layers, the first one lowest, under the overrides: checked as
    /// [`read`](Self::read) does.
    pub fn of_excerpts(layers: &[Excerpt], overrides: &[String], run: RunId) -> Result<Self, ConfigErrors> {
        let mut joined = Layers::defaults();
        for excerpt in layers {
            let (table, places) = (excerpt.table.clone(), excerpt.places.clone());
            joined.lay(table, places, |table| layers::beside(table, &excerpt.path))?;
        }
        joined.override_with(overrides)?;
        validate::validate(joined.finish()?, validate::data_root().as_deref(), run)
    }
}

/// Where the uppermost of these layers under the overrides that sets this key does so; `None` if none does.
#[must_use]
pub fn origin(layers: &[Excerpt], overrides: &[String], key: &str) -> Option<Origin> {
    let in_override = |given: &String| match overrides::parse(given) {
        Ok(Override::Set(table)) => Places::in_override(given, &table).origin(key).cloned(),
        _ => None,
    };
    let in_layer = |layer: &Excerpt| layer.places.origin(key).cloned();
    overrides.iter().rev().find_map(in_override).or_else(|| layers.iter().rev().find_map(in_layer))
}

/// A key with its value in one configuration and in another one.
pub type Difference = (String, String, String);

/// What differs between two configurations, but for local paths and these keys.
#[must_use]
pub fn differences_beyond(first: &Raw, second: &Raw, own: &[&str]) -> Vec<Difference> {
    let mut found = differences(&first.without_local_paths(), &second.without_local_paths());
    found.retain(|(key, ..)| !own.contains(&key.as_str()));
    found
}

/// What differs between two configurations.
#[must_use]
pub fn differences(first: &Raw, second: &Raw) -> Vec<Difference> {
    let leaves = |raw: &Raw| {
        let mut found = Vec::new();
        collect(&table_of(raw), "", &mut found);
        found
    };
    let (first, second) = (leaves(first), leaves(second));
    let value = |leaves: &[(String, String)], key: &str| {
        let found = leaves.iter().find(|(other, _)| other == key);
        found.map_or_else(|| "unset".to_owned(), |(_, value)| value.clone())
    };
    let mut keys: Vec<&String> = first.iter().chain(&second).map(|(key, _)| key).collect();
    keys.sort();
    keys.dedup();
    let pairs = keys.into_iter().map(|key| (key.clone(), value(&first, key), value(&second, key)));
    pairs.filter(|(_, before, after)| before != after).collect()
}

/// [`differences`] in words: each key with the value before and after.
#[must_use]
pub fn in_words(differences: &[Difference]) -> String {
    let words = differences.iter().map(|(key, before, after)| format!("{key} {before} -> {after}"));
    words.collect::<Vec<_>>().join(", ")
}

fn collect(table: &Table, prefix: &str, into: &mut Vec<(String, String)>) {
    for (name, value) in table {
        let key = below(prefix, name);
        match value {
            Value::Table(inner) if !inner.is_empty() => collect(inner, &key, into),
            value => into.push((key, value.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId::from_bytes([1; 8]);

    fn document(text: &str) -> (tempfile::TempDir, Document) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("lab.toml");
        std::fs::write(&path, text).expect("a file in it");
        let document = Document::read(&path).expect("TOML");
        (folder, document)
    }

    #[test]
    fn layers_join_as_files_do() {
        let (_folder, document) = document(
            "[base]\ntraining.epochs = 2\ndata.partition.shards.per-client = 3\n\
             [b]\nnote = 'mine'\ntraining.batch = 5\n[a]\ndata.partition.iid = {}\n",
        );
        assert_eq!(document.names(&[]), ["base", "b", "a"], "in the order of the file");
        let layer = |name| document.excerpt(&[name], &["note"]).expect("a table");
        let layers = [layer("base"), layer("b"), layer("a")];
        let config = Config::of_excerpts(&layers, &["run.rounds=3".to_owned()], RUN).expect("valid");
        assert_eq!((config.spec.training.epochs, config.spec.training.batch, config.spec.rounds), (2, 5, 3));
        assert_eq!(config.data.partition, shared::data::Partition::Iid {});
        let without = Config::of_excerpts(&layers[..1], &[], RUN).expect("valid");
        let differences = differences(&without.effective, &config.effective);
        let said: Vec<_> = differences.iter().map(|(key, a, b)| format!("{key} {a} {b}")).collect();
        assert_eq!(
            said,
            [
                "data.partition.iid unset {}",
                "data.partition.shards.per-client 3 unset",
                "run.rounds 15 3",
                "training.batch 16 5"
            ]
        );
    }

    #[test]
    fn mistakes_have_their_lines_in_the_larger_file() {
        let (_folder, document) = document("[variants.x]\n\ntraining.epoch = 2\n\"a b\" = 1\n");
        let layer = document.excerpt(&["variants", "x"], &[]).expect("a table");
        let errors = Config::of_excerpts(&[layer], &[], RUN).expect_err("an unknown key");
        let text = errors.to_string();
        assert!(text.contains("lab.toml:3: unknown key `training.epoch`"), "{text}");
        assert!(text.contains("lab.toml:4"), "{text}");
        let setting = document.setting(&["variants", "x", "training"], "training.batch", Value::Integer(-1));
        let text = Config::of_excerpts(&[setting], &[], RUN).expect_err("a wrong value").to_string();
        assert!(text.contains("lab.toml:3: `training.batch` cannot be -1"), "{text}");
    }
}
