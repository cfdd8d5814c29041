//! One layer of the configuration against the list of keys: unknown keys, types, ranges and names.

use std::ops::Bound::{Excluded, Included};

use shared::algorithm::registry;
use toml::{Table, Value};

use super::keys::{self, CHOICES, Key, Kind};
use super::{ConfigError, Origin, suggest};

/// Checks everything that can be said of each value alone. Keys may be absent.
pub(super) fn table(layer: &Table, origin: &Origin) -> Result<(), ConfigError> {
    inside(layer, "", origin)
}

fn inside(layer: &Table, path: &str, origin: &Origin) -> Result<(), ConfigError> {
    for (name, value) in layer {
        let full = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        // A quoted name with a dot only looks like a path.
        let known = !name.contains('.');
        if let Some(key) = keys::find(&full).filter(|_| known) {
            leaf(key, value, origin)?;
            continue;
        }
        let children = keys::children(&full);
        if children.is_empty() || !known {
            let siblings = keys::children(path);
            return Err(ConfigError::UnknownKey {
                origin: origin.clone(),
                key: full,
                given: given(value),
                suggestion: suggest::key(name, &siblings),
                accepted: siblings.into_iter().map(str::to_owned).collect(),
            });
        }
        let Value::Table(inner) = value else {
            let accepted = if CHOICES.contains(&full.as_str()) { "a table with one of" } else { "a table with" };
            return Err(ConfigError::WrongType {
                origin: origin.clone(),
                key: full,
                given: given(value),
                accepted: format!("{accepted} {}", children.join(", ")),
            });
        };
        // Unknown names first: they explain a second alternative better than its being the second.
        inside(inner, &full, origin)?;
        if CHOICES.contains(&full.as_str()) {
            alternatives(inner, &full, &children, origin)?;
        }
    }
    Ok(())
}

fn alternatives(inner: &Table, key: &str, accepted: &[&str], origin: &Origin) -> Result<(), ConfigError> {
    if inner.len() <= 1 {
        return Ok(());
    }
    Err(ConfigError::Alternatives {
        origin: origin.clone(),
        key: key.to_owned(),
        given: inner.keys().cloned().collect(),
        accepted: accepted.iter().map(|&name| name.to_owned()).collect(),
    })
}

fn leaf(key: &Key, value: &Value, origin: &Origin) -> Result<(), ConfigError> {
    let wrong_type = || ConfigError::WrongType {
        origin: origin.clone(),
        key: key.path.to_owned(),
        given: given(value),
        accepted: key.kind.accepts(),
    };
    let in_range = match (key.kind, value) {
        (Kind::Whole(low, high), Value::Integer(number)) => (low..=high).contains(number),
        (Kind::Number(low, high), Value::Integer(number)) => (low, high).contains(*number as f64),
        (Kind::Number(low, high), Value::Float(number)) => (low, high).contains(*number),
        (Kind::Text(limit), Value::String(text)) => {
            (1..=limit).contains(&text.chars().count()) && !text.contains(char::is_control)
        }
        (Kind::OneOf(names), Value::String(text)) => return name(key.path, text, names, origin),
        (Kind::Model, Value::String(text)) => return name(key.path, text, &keys::model_names(), origin),
        (Kind::Empty, Value::Table(inner)) => match inner.iter().next() {
            None => true,
            Some((name, value)) => {
                return Err(ConfigError::UnknownKey {
                    origin: origin.clone(),
                    key: format!("{}.{name}", key.path),
                    given: given(value),
                    accepted: vec!["nothing".to_owned()],
                    suggestion: None,
                });
            }
        },
        (Kind::Algorithm, Value::Table(inner)) => return algorithm(inner, origin),
        _ => return Err(wrong_type()),
    };
    if in_range {
        return Ok(());
    }
    Err(ConfigError::OutOfRange {
        origin: origin.clone(),
        key: key.path.to_owned(),
        given: shortened(value),
        accepted: key.kind.accepts(),
    })
}

/// The names and number of algorithms; their hyper-parameters are their own business.
fn algorithm(inner: &Table, origin: &Origin) -> Result<(), ConfigError> {
    for (given_name, value) in inner {
        name("algorithm", given_name, &registry::names(), origin)?;
        if !value.is_table() {
            return Err(ConfigError::WrongType {
                origin: origin.clone(),
                key: format!("algorithm.{given_name}"),
                given: given(value),
                accepted: "a table with the algorithm's hyper-parameters, {} for its defaults".to_owned(),
            });
        }
    }
    alternatives(inner, "algorithm", &registry::names(), origin)
}

fn name(key: &str, given: &str, names: &[&str], origin: &Origin) -> Result<(), ConfigError> {
    if names.contains(&given) {
        return Ok(());
    }
    Err(ConfigError::UnknownName {
        origin: origin.clone(),
        key: key.to_owned(),
        given: given.chars().take(SHOWN).collect(),
        suggestion: suggest::nearest(given, names.iter().copied()),
        accepted: names.iter().map(|&name| name.to_owned()).collect(),
    })
}

/// Characters of a value that a message shows.
const SHOWN: usize = 60;

fn shortened(value: &Value) -> String {
    let text = value.to_string().replace(['\n', '\r'], " ");
    if text.chars().count() <= SHOWN { text } else { text.chars().take(SHOWN).chain("...".chars()).collect() }
}

fn given(value: &Value) -> String {
    let kind = match value {
        Value::String(_) => "a text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a fractional number",
        Value::Boolean(_) => "a truth value",
        Value::Datetime(_) => "a date or time",
        Value::Array(_) => "an array",
        Value::Table(_) => "a table",
    };
    format!("{} ({kind})", shortened(value))
}

trait Contains {
    fn contains(&self, number: f64) -> bool;
}

impl Contains for (std::ops::Bound<f64>, std::ops::Bound<f64>) {
    /// NaN is in no range.
    fn contains(&self, number: f64) -> bool {
        let above = match self.0 {
            Included(low) => number >= low,
            Excluded(low) => number > low,
            std::ops::Bound::Unbounded => !number.is_nan(),
        };
        let below = match self.1 {
            Included(high) => number <= high,
            Excluded(high) => number < high,
            std::ops::Bound::Unbounded => !number.is_nan(),
        };
        above && below
    }
}
