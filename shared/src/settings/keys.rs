//! All keys of a table and of the tables in it, by their full paths.

use super::{Alternative, Entry, Kind, SettingType, Shape};

/// One key.
#[derive(Clone, Debug)]
pub struct Key {
    /// Its full path, such as `round.min-updates`.
    pub path: String,
    /// What it accepts.
    pub kind: Kind,
    /// What it is, in one line.
    pub says: &'static str,
    /// What it means if it is absent; `None` if it has a default.
    pub unset: Option<&'static str>,
}

/// The keys of a configuration, in the order in which they are written.
#[derive(Debug)]
pub struct Keys {
    all: Vec<Key>,
    choices: Vec<(String, Vec<Alternative>)>,
    renamed: Vec<(String, String)>,
}

impl Keys {
    /// The keys of a table.
    #[must_use]
    pub fn of<T: SettingType>() -> Self {
        let mut keys = Self { all: Vec::new(), choices: Vec::new(), renamed: Vec::new() };
        keys.add(String::new(), T::shape(), ("", None, None));
        keys
    }

    fn add(
        &mut self,
        path: String,
        shape: Shape,
        (says, unset, was): (&'static str, Option<&'static str>, Option<&str>),
    ) {
        let was = was.map(|was| if was.contains('.') { was.to_owned() } else { below(above(&path), was) });
        self.renamed.extend(was.map(|was| (was, path.clone())));
        match shape {
            Shape::Value(kind) => self.all.push(Key { path, kind, says, unset }),
            Shape::Table(entries) => self.add_all(&path, entries),
            Shape::Choice(alternatives) => {
                for Alternative { name, says, entries, .. } in alternatives.clone() {
                    let path = below(&path, name);
                    if entries.is_empty() {
                        self.all.push(Key { path, kind: Kind::Empty, says, unset: None });
                    } else {
                        self.add_all(&path, entries);
                    }
                }
                self.choices.push((path, alternatives));
            }
        }
    }

    fn add_all(&mut self, path: &str, entries: Vec<Entry>) {
        for Entry { name, shape, says, unset, was } in entries {
            self.add(below(path, &name), shape, (says, unset, was));
        }
    }

    /// Every key.
    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        self.all.iter()
    }

    /// The key with this full path.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<&Key> {
        self.all.iter().find(|key| key.path == path)
    }

    /// What can stand in table `path` (`""` is the whole configuration), in order, each once. Empty if no key begins with it.
    #[must_use]
    pub fn children(&self, path: &str) -> Vec<&str> {
        let mut children = Vec::new();
        for key in &self.all {
            let below = match path {
                "" => Some(key.path.as_str()),
                _ => key.path.strip_prefix(path).and_then(|rest| rest.strip_prefix('.')),
            };
            if let Some(child) = below.and_then(|below| below.split('.').next())
                && !children.contains(&child)
            {
                children.push(child);
            }
        }
        children
    }

    /// The alternatives of the table with this path, if it holds exactly one of several.
    #[must_use]
    pub fn alternatives(&self, path: &str) -> Option<&[Alternative]> {
        self.choices.iter().find(|(choice, _)| choice == path).map(|(_, all)| all.as_slice())
    }

    /// Keys and tables that had another name before, outer tables first: the path before (in tables of today's names) and today's.
    pub fn renamed(&self) -> impl Iterator<Item = (&str, &str)> {
        self.renamed.iter().map(|(was, is)| (was.as_str(), is.as_str()))
    }
}

/// The full path of `name` in table `path`.
fn below(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn above(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(above, _)| above)
}
