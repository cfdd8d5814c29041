//! One layer of the configuration against the list of keys: unknown keys, types, ranges and names.

use std::ops::Bound::{Excluded, Included};

use shared::algorithm::registry;
use toml::{Table, Value};

use super::keys::{self, CHOICES, Key, Kind};
use super::{ConfigError, Mistake, Origin, suggest};

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
            let suggestion = suggest::key(name, &siblings);
            return Err(refused(ConfigError::UnknownKey, origin, &full, given(value), &siblings, suggestion));
        }
        let Value::Table(inner) = value else {
            let accepted =
                if CHOICES.contains(&full.as_str()) { "a table with one of" } else { "a table with" };
            let accepted = format!("{accepted} {}", children.join(", "));
            return Err(refused(ConfigError::WrongType, origin, &full, given(value), &[&accepted], None));
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
    let given = inner.keys().map(String::as_str).collect::<Vec<_>>().join(" and ");
    Err(refused(ConfigError::Alternatives, origin, key, given, accepted, None))
}

fn leaf(key: &Key, value: &Value, origin: &Origin) -> Result<(), ConfigError> {
    let in_range = match (key.kind, value) {
        (Kind::Whole(low, high), Value::Integer(number)) => (low..=high).contains(number),
        (Kind::Number(low, high), Value::Integer(number)) => (low, high).contains(*number as f64),
        (Kind::Number(low, high), Value::Float(number)) => (low, high).contains(*number),
        (Kind::Text(limit), Value::String(text)) => is_text(text, limit),
        (Kind::FolderName(limit), Value::String(text)) => {
            is_text(text, limit) && !text.contains(['/', '\\']) && !text.starts_with('.')
        }
        (Kind::OneOf(names), Value::String(text)) => return name(key.path, text, names, origin),
        (Kind::Model, Value::String(text)) => return name(key.path, text, &keys::model_names(), origin),
        (Kind::Empty, Value::Table(inner)) => match inner.iter().next() {
            None => true,
            Some((name, value)) => {
                let full = format!("{}.{name}", key.path);
                return Err(refused(
                    ConfigError::UnknownKey,
                    origin,
                    &full,
                    given(value),
                    &["nothing"],
                    None,
                ));
            }
        },
        (Kind::Algorithm, Value::Table(inner)) => return algorithm(inner, origin),
        _ => {
            let accepted = key.kind.accepts();
            return Err(refused(ConfigError::WrongType, origin, key.path, given(value), &[&accepted], None));
        }
    };
    if in_range {
        return Ok(());
    }
    Err(refused(ConfigError::OutOfRange, origin, key.path, shortened(value), &[&key.kind.accepts()], None))
}

fn is_text(text: &str, limit: usize) -> bool {
    (1..=limit).contains(&text.chars().count()) && !text.contains(char::is_control)
}

/// The names and number of algorithms; their hyper-parameters are their own business.
fn algorithm(inner: &Table, origin: &Origin) -> Result<(), ConfigError> {
    for (given_name, value) in inner {
        name("algorithm", given_name, &registry::names(), origin)?;
        if !value.is_table() {
            let full = format!("algorithm.{given_name}");
            let accepted = "a table with the algorithm's hyper-parameters, {} for its defaults";
            return Err(refused(ConfigError::WrongType, origin, &full, given(value), &[accepted], None));
        }
    }
    alternatives(inner, "algorithm", &registry::names(), origin)
}

fn name(key: &str, given: &str, names: &[&str], origin: &Origin) -> Result<(), ConfigError> {
    if names.contains(&given) {
        return Ok(());
    }
    let suggestion = suggest::nearest(given, names.iter().copied());
    Err(refused(
        ConfigError::UnknownName,
        origin,
        key,
        given.chars().take(SHOWN).collect(),
        names,
        suggestion,
    ))
}

fn refused(
    kind: fn(Box<Mistake>) -> ConfigError,
    origin: &Origin,
    key: &str,
    given: String,
    accepted: &[&str],
    suggestion: Option<String>,
) -> ConfigError {
    let accepted = accepted.iter().map(|&name| name.to_owned()).collect();
    // A key is as long as its file allows; a message is not.
    let key = if key.chars().count() <= 2 * SHOWN {
        key.to_owned()
    } else {
        key.chars().take(2 * SHOWN).chain("...".chars()).collect()
    };
    kind(Box::new(Mistake { origin: origin.clone(), key, given, accepted, suggestion }))
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
