//! One layer of the configuration against the list of keys: unknown keys, types, ranges and names.

use std::collections::BTreeSet;
use std::ops::RangeBounds as _;

use models::OpaqueTensor;
use models::architecture::MAX_TENSORS;
use shared::algorithm::registry;
use shared::settings::{Key, Kind, MAX_LIST_LENGTH, model_names};
use toml::{Table, Value};

use super::findings::Findings;
use super::keys::KEYS;
use super::places::{Places, below};
use super::shown::{SHOWN, given, shortened};
use super::{ConfigError, Mistake, ModelOrigin, Origin, network, suggest};

/// Checks everything that can be said of each value alone, and takes out of `layer` what is not accepted. Keys may be
/// absent. `places` are the layer's.
pub(super) fn table(layer: &mut Table, places: &Places, findings: &mut Findings) {
    if let Some(key) = ["variants", "base"].into_iter().find(|key| layer.contains_key(*key)) {
        // Nothing else in the file is what it is taken for.
        let origin = places.origin(key).cloned().unwrap_or(Origin::Configuration);
        findings.add(ConfigError::Experiment { origin, key });
        findings.doubt("");
        layer.clear();
        return;
    }
    let first = findings.count();
    Check { places, findings }.inside(layer, "");
    findings.in_order_of_lines(first);
}

struct Check<'a> {
    places: &'a Places,
    findings: &'a mut Findings,
}

impl Check<'_> {
    fn inside(&mut self, layer: &mut Table, path: &str) {
        layer.retain(|name, value| self.entry(name, value, path));
    }

    /// Whether the entry is accepted.
    fn entry(&mut self, name: &str, value: &mut Value, path: &str) -> bool {
        let full = below(path, name);
        if let Some(key) = KEYS.find(&full) {
            return self.leaf(key, value);
        }
        let children = KEYS.children(&full);
        if children.is_empty() {
            self.unknown(name, value, path);
            return false;
        }
        let choice = KEYS.alternatives(&full).is_some();
        let Value::Table(inner) = value else {
            let accepted = if choice { "a table with one of" } else { "a table with" };
            let mut accepted = format!("{accepted} {}", children.join(", "));
            let mut suggestion = if choice { alternative(&full, value, &children) } else { None };
            if full == ModelOrigin::KEY {
                accepted.push_str(", or ");
                accepted.push_str(ModelOrigin::SHORT);
                suggestion = value.as_str().and_then(ModelOrigin::short);
            }
            return self.refuse(ConfigError::WrongType, &full, given(value), &[&accepted], suggestion);
        };
        // Unknown names first: they explain a second alternative better than its being the second.
        self.inside(inner, &full);
        !choice || self.one_alternative(inner, &full, &children)
    }

    fn unknown(&mut self, name: &str, value: &Value, path: &str) {
        let siblings = KEYS.children(path);
        let suggestion = suggest::key(path, name, &siblings);
        let meant = suggestion
            .as_ref()
            .map(|meant| if siblings.contains(&meant.as_str()) { below(path, meant) } else { meant.clone() });
        self.refuse(ConfigError::UnknownKey, &below(path, name), given(value), &siblings, suggestion);
        if let Some(meant) = meant {
            self.findings.doubt(&meant);
        }
    }

    fn one_alternative(&mut self, inner: &Table, key: &str, accepted: &[&str]) -> bool {
        if inner.len() <= 1 {
            return true;
        }
        let given = inner.keys().map(String::as_str).collect::<Vec<_>>().join(" and ");
        self.refuse(ConfigError::Alternatives, key, given, accepted, None)
    }

    fn leaf(&mut self, key: &Key, value: &mut Value) -> bool {
        if let (Kind::Shape, Some(shape)) = (key.kind, spelled_out(value)) {
            *value = shape;
        }
        let in_range = match (key.kind, &mut *value) {
            (Kind::Whole(low, high), Value::Integer(number)) => (low..=high).contains(number),
            (Kind::Number(low, high), Value::Integer(number)) => (low, high).contains(&(*number as f64)),
            (Kind::Number(low, high), Value::Float(number)) => (low, high).contains(number),
            (Kind::Numbers, Value::Array(values)) => {
                let finite = |value: &Value| match value {
                    Value::Integer(_) => true,
                    Value::Float(number) => number.is_finite(),
                    _ => false,
                };
                (1..=MAX_LIST_LENGTH).contains(&values.len()) && values.iter().all(finite)
            }
            (Kind::Shape, Value::Array(values)) => {
                let side = |value: &Value| matches!(value, Value::Integer(1..=65_536));
                (1..=8).contains(&values.len()) && values.iter().all(side)
            }
            (Kind::Names, Value::Array(values)) => {
                let names: BTreeSet<&str> = values.iter().filter_map(Value::as_str).collect();
                (1..=MAX_LIST_LENGTH).contains(&values.len())
                    && names.len() == values.len()
                    && names.into_iter().all(|name| Kind::is_text(name, 200))
            }
            (Kind::Tensors, Value::Array(values)) => {
                let is_tensor =
                    |value: &Value| value.as_str().is_some_and(|text| text.parse::<OpaqueTensor>().is_ok());
                (1..=MAX_TENSORS).contains(&values.len()) && values.iter().all(is_tensor)
            }
            (Kind::Text(limit), Value::String(text)) => Kind::is_text(text, limit),
            (Kind::FolderName(limit), Value::String(text)) => Kind::is_folder_name(text, limit),
            (Kind::Flag, Value::Boolean(_)) => true,
            (Kind::OneOf(names) | Kind::SomeOf(names), Value::String(text)) => {
                return self.name(&key.path, &key.path, text, names);
            }
            (Kind::SomeOf(names), Value::Array(values)) => {
                let given: BTreeSet<&str> = values.iter().filter_map(Value::as_str).collect();
                if let Some(unknown) = given.iter().find(|name| !names.contains(name)) {
                    return self.name(&key.path, &key.path, unknown, names);
                }
                !values.is_empty() && given.len() == values.len()
            }
            (Kind::Model, Value::String(text)) => {
                return self.name(&key.path, &key.path, text, &model_names());
            }
            (Kind::Network, value) => return self.network(value),
            (Kind::Empty, Value::Table(inner)) => {
                inner.retain(|name, value| {
                    let full = below(&key.path, name);
                    self.refuse(ConfigError::UnknownKey, &full, given(value), &["nothing"], None)
                });
                return true;
            }
            (Kind::Algorithm, Value::Table(inner)) => return self.algorithm(inner),
            _ => {
                let names = registry::names().join(", ");
                let accepted = match key.kind {
                    Kind::Algorithm => format!("{}, with NAME one of {names}", key.kind.accepts()),
                    kind => kind.accepts(),
                };
                let suggestion = match key.kind {
                    Kind::Algorithm => alternative(&key.path, value, &registry::names()),
                    _ => None,
                };
                return self.refuse(
                    ConfigError::WrongType,
                    &key.path,
                    given(value),
                    &[&accepted],
                    suggestion,
                );
            }
        };
        in_range
            || self.refuse(ConfigError::OutOfRange, &key.path, shortened(value), &[&key.kind.accepts()], None)
    }

    /// Completes a network, so that nothing of it depends on what is not said.
    fn network(&mut self, value: &mut Value) -> bool {
        let complete = network::complete(value, self.places, self.findings);
        match complete {
            Some(complete) => *value = Value::Table(complete),
            None => self.findings.doubt("model.layers"),
        }
        value.is_table()
    }

    /// The names and number of algorithms; their hyper-parameters are their own business.
    fn algorithm(&mut self, inner: &mut Table) -> bool {
        inner.retain(|name, value| {
            let full = below("algorithm", name);
            if !self.name("algorithm", &full, name, &registry::names()) {
                return false;
            }
            let accepted = "a table with the algorithm's hyper-parameters, {} for its defaults";
            value.is_table() || self.refuse(ConfigError::WrongType, &full, given(value), &[accepted], None)
        });
        self.one_alternative(inner, "algorithm", &registry::names())
    }

    /// `place` is the key whose line it stands in.
    fn name(&mut self, key: &str, place: &str, given: &str, names: &[&str]) -> bool {
        if names.contains(&given) {
            return true;
        }
        let elsewhere = if key == "algorithm" { suggest::axis(given).map(str::to_owned) } else { None };
        let suggestion = elsewhere.or_else(|| suggest::nearest(given, names.iter().copied()));
        let given = given.chars().take(SHOWN).collect();
        self.refuse_at(place, ConfigError::UnknownName, key, given, names, suggestion)
    }

    /// Notes a mistake; always false.
    fn refuse(
        &mut self,
        kind: fn(Box<Mistake>) -> ConfigError,
        key: &str,
        given: String,
        accepted: &[&str],
        suggestion: Option<String>,
    ) -> bool {
        self.refuse_at(key, kind, key, given, accepted, suggestion)
    }

    fn refuse_at(
        &mut self,
        place: &str,
        kind: fn(Box<Mistake>) -> ConfigError,
        key: &str,
        given: String,
        accepted: &[&str],
        suggestion: Option<String>,
    ) -> bool {
        self.findings.doubt(place);
        let origin = self.places.origin(place).cloned().unwrap_or(Origin::Configuration);
        let accepted = accepted.iter().map(|&name| name.to_owned()).collect();
        // A key is as long as its file allows; a message is not.
        let key = if key.chars().count() <= 2 * SHOWN {
            key.to_owned()
        } else {
            key.chars().take(2 * SHOWN).chain("...".chars()).collect()
        };
        self.findings.add(kind(Box::new(Mistake { origin, key, given, accepted, suggestion })));
        false
    }
}

/// How to write the alternative that `value` names where its table should stand.
fn alternative(key: &str, value: &Value, names: &[&str]) -> Option<String> {
    let name = suggest::nearest(value.as_str()?, names.iter().copied())?;
    Some(format!("{key}.{name} = {{}}"))
}

/// A shape that is written as people say it, `3x32x32` or, of a row of a table, `13`, as the list that it is.
fn spelled_out(value: &Value) -> Option<Value> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Integer(side) => side.to_string(),
        _ => return None,
    };
    let sides = models::shape::parse(&text).ok()?;
    Some(Value::Array(sides.into_iter().map(|side| Value::Integer(side.cast_signed() as i64)).collect()))
}
