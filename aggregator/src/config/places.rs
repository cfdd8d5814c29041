//! Where each key was given: the line of a file, or an override.

use std::collections::BTreeMap;
use std::path::Path;

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::Origin;

/// Where the keys of one layer, or of several joined ones, were given. Tables are keys as well, and so are the items of
/// arrays: `key[0]` is the first.
#[derive(Clone, Debug, Default)]
pub(super) struct Places(BTreeMap<String, Origin>);

impl Places {
    /// The lines of a file with this text. Empty if it is not TOML.
    pub(super) fn in_file(path: &Path, text: &str) -> Self {
        let lines = Lines::of(text);
        let mut places = BTreeMap::new();
        if let Ok(document) = DeTable::parse(text) {
            let mut note = |key: String, offset: usize| {
                places.insert(key, Origin::File { path: path.to_owned(), line: lines.line(offset) });
            };
            collect(document.get_ref(), "", &mut note);
        }
        Self(places)
    }

    /// One override, whose text is `given` and which sets `layer`.
    pub(super) fn in_override(given: &str, layer: &Table) -> Self {
        Self::all_at(layer, &Origin::Override(given.to_owned()))
    }

    /// All keys of `layer` stand where `origin` says.
    pub(super) fn all_at(layer: &Table, origin: &Origin) -> Self {
        let mut places = BTreeMap::new();
        for (name, value) in layer {
            collect_at(value, below("", name), origin, &mut places);
        }
        Self(places)
    }

    /// What stands in the table `prefix`, by its keys in there.
    pub(super) fn inside(&self, prefix: &str) -> Self {
        if prefix.is_empty() {
            return self.clone();
        }
        let within = |(key, origin): (&String, &Origin)| {
            let rest = key.strip_prefix(prefix)?.strip_prefix('.')?;
            Some((rest.to_owned(), origin.clone()))
        };
        Self(self.0.iter().filter_map(within).collect())
    }

    /// The line of a key in its file; what has none comes first.
    pub(super) fn position(&self, key: &str) -> usize {
        match self.0.get(key) {
            Some(Origin::File { line, .. }) => *line,
            _ => 0,
        }
    }

    /// Follows a key that has another name now, and what stands in it.
    pub(super) fn rename(&mut self, was: &str, is: &str) {
        let places = std::mem::take(&mut self.0).into_iter();
        self.0 = places.map(|(key, origin)| (follow(&key, was, is).unwrap_or(key), origin)).collect();
    }

    /// Lays a later layer over this one.
    pub(super) fn lay_over(&mut self, layer: Self) {
        self.0.extend(layer.0);
    }

    /// Forgets a key that was taken back to unset.
    pub(super) fn unset(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// Where `key` was given last; `None` if it has its default.
    pub(super) fn origin(&self, key: &str) -> Option<&Origin> {
        self.0.get(key)
    }
}

fn collect_at(value: &Value, path: String, origin: &Origin, places: &mut BTreeMap<String, Origin>) {
    match value {
        Value::Table(table) => {
            for (name, value) in table {
                collect_at(value, below(&path, name), origin, places);
            }
        }
        Value::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                collect_at(value, format!("{path}[{index}]"), origin, places);
            }
        }
        _ => {}
    }
    places.insert(path, origin.clone());
}

/// The full path of `name` in table `path`. A name that is no bare key is quoted: a dot in it
/// makes no path, and a line break no line.
pub(super) fn below(path: &str, name: &str) -> String {
    let bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
    let name = if bare { name.to_owned() } else { format!("{name:?}") };
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

fn collect(table: &DeTable<'_>, path: &str, note: &mut impl FnMut(String, usize)) {
    for (name, value) in table {
        let key = below(path, name.get_ref());
        note(key.clone(), name.span().start);
        inside(value, &key, note);
    }
}

fn inside(value: &Spanned<DeValue<'_>>, key: &str, note: &mut impl FnMut(String, usize)) {
    match value.get_ref() {
        DeValue::Table(table) => collect(table, key, note),
        DeValue::Array(list) => {
            for (index, value) in list.iter().enumerate() {
                let key = format!("{key}[{index}]");
                note(key.clone(), value.span().start);
                inside(value, &key, note);
            }
        }
        _ => {}
    }
}

/// The lines of a text.
pub(super) struct Lines<'a> {
    text: &'a str,
    /// Where each line begins, in bytes.
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        let after_breaks = text.match_indices('\n').map(|(offset, _)| offset + 1);
        Self { text, starts: std::iter::once(0).chain(after_breaks).collect() }
    }

    /// The line of the byte at `offset`, counted from 1.
    pub(super) fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|&start| start <= offset)
    }

    /// Its column in characters, counted from 1.
    pub(super) fn column(&self, offset: usize) -> usize {
        let start = self.starts[self.line(offset) - 1];
        self.text.get(start..offset).map_or(1, |before| before.chars().count() + 1)
    }
}

/// `path` with its beginning `was` renamed to `is`; `None` if it does not begin with that key.
pub(super) fn follow(path: &str, was: &str, is: &str) -> Option<String> {
    let rest = path.strip_prefix(was).filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']))?;
    Some(format!("{is}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(places: &Places, key: &str) -> Option<usize> {
        match places.origin(key)? {
            Origin::File { line, .. } => Some(*line),
            other => panic!("{other} is no file"),
        }
    }

    #[test]
    fn every_spelling_of_a_key_has_its_line() {
        let text = "run.name = \"x\"\n\n[training]\nepochs = 1\noptimizer = { sgd = {\n  rate = 1,\n} }\n\
                    [data.partition]\nshards.per-client = 2\n[\"a.b\"]\n";
        let places = Places::in_file(Path::new("lab.toml"), text);
        for (key, expected) in [
            ("run.name", 1),
            ("training", 3),
            ("training.epochs", 4),
            ("training.optimizer", 5),
            ("training.optimizer.sgd.rate", 6),
            ("data.partition", 8),
            ("data.partition.shards.per-client", 9),
            ("\"a.b\"", 10),
        ] {
            assert_eq!(line(&places, key), Some(expected), "{key}");
        }
        assert_eq!(line(&places, "a.b"), None);
    }

    #[test]
    fn lines_and_columns_count_from_one_and_in_characters() {
        let lines = Lines::of("ab\nüx\n");
        let at = |offset| (lines.line(offset), lines.column(offset));
        assert_eq!([0, 2, 3, 5, 7].map(at), [(1, 1), (1, 3), (2, 1), (2, 2), (3, 1)]);
    }
}
