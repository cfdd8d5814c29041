//! Reading layers: from what people write to the complete form in which an architecture is stored.

use std::collections::{BTreeMap, BTreeSet};

use models::architecture::{MAX_NAME, MAX_NESTING, is_adapter};
use toml::{Table, Value};

use super::kinds::{self, Absent, Accepts, CLASSES, Field, LayerKind, SAME};
use super::spot::Spot;
use crate::config::findings::Findings;
use crate::config::places::Places;
use crate::config::shown::{SHOWN, given as described, shortened};
use crate::config::{ConfigError, Mistake, suggest};

/// The names of the parts, in the order of the network. The projection alone may be absent.
pub(super) const PARTS: [&str; 3] = ["extractor", "projection", "head"];

/// Completes a network: a list, whose last linear layer begins the head, or a table of parts. The result is always a
/// table of the three parts, in which every layer has its name and all its settings; "classes" alone is left, for the data
/// set to say. Reading the result again gives the same. Mistakes are noted, all of them, and then there is no result.
pub(in crate::config) fn complete(value: &Value, places: &Places, findings: &mut Findings) -> Option<Table> {
    let before = findings.count();
    let mut reader = Reader { places, findings, names: BTreeSet::new(), numbers: BTreeMap::new() };
    let root = Spot::root();
    let mut parts = Table::from_iter(PARTS.map(|part| (part.to_owned(), Value::Array(Vec::new()))));
    match value {
        Value::Array(list) => {
            let (extractor, head) = list.split_at(reader.head(list, &root));
            parts.insert("head".to_owned(), reader.part(head, &root, extractor.len()));
            parts.insert("extractor".to_owned(), reader.part(extractor, &root, 0));
        }
        Value::Table(table) => parts.extend(reader.parts(table, &root)),
        other => {
            let accepted = ["a list of layers", "a table of such lists: extractor, projection and head"];
            reader.refuse(ConfigError::WrongType, &root, described(other), &accepted, None);
        }
    }
    (findings.count() == before).then_some(parts)
}

struct Reader<'a> {
    places: &'a Places,
    findings: &'a mut Findings,
    /// The names that were given in the part that is read.
    names: BTreeSet<String>,
    /// How many layers there have an automatic name, by what it begins with.
    numbers: BTreeMap<&'static str, usize>,
}

impl Reader<'_> {
    /// Where the head of a network that is one list begins.
    fn head(&mut self, list: &[Value], root: &Spot) -> usize {
        let is_linear = |layer: &Value| layer.as_table().is_some_and(|layer| layer.contains_key("linear"));
        list.iter().rposition(is_linear).unwrap_or_else(|| {
            let accepted =
                ["a linear layer, with which the head begins; or name extractor = [...] and head = [...]"];
            let shown = shortened(&Value::Array(list.to_vec()));
            self.refuse(ConfigError::Missing, root, shown, &accepted, None);
            0
        })
    }

    fn parts(&mut self, table: &Table, root: &Spot) -> Table {
        for (name, value) in table.iter().filter(|(name, _)| !PARTS.contains(&name.as_str())) {
            let suggestion = suggest::nearest(name, PARTS);
            self.refuse(ConfigError::UnknownKey, &root.below(name), described(value), &PARTS, suggestion);
        }
        let mut parts = Table::new();
        for part in PARTS {
            match table.get(part) {
                Some(Value::Array(list)) => {
                    parts.insert(part.to_owned(), self.part(list, &root.below(part), 0));
                }
                Some(other) => self.wrong_type(&root.below(part), other, Accepts::Layers),
                None if part == "projection" => {}
                None => {
                    let given = shortened(&Value::Table(table.clone()));
                    let accepted = format!("{part} ({})", Accepts::Layers.says());
                    self.refuse(ConfigError::Missing, root, given, &[&accepted], None);
                }
            }
        }
        parts
    }

    /// The layers of one part, of which the first has the position `first` in the list at `spot`.
    fn part(&mut self, list: &[Value], spot: &Spot, first: usize) -> Value {
        self.names.clear();
        self.numbers.clear();
        self.given_names(list, spot, first, 0);
        Value::Array(self.layers(list, spot, first, 0))
    }

    /// Notes the names that layers were given, so that automatic ones keep out of their way.
    fn given_names(&mut self, list: &[Value], spot: &Spot, first: usize, depth: usize) {
        if depth > MAX_NESTING {
            return;
        }
        for (position, layer) in list.iter().enumerate() {
            let Some((kind, settings)) = layer.as_table().and_then(|layer| layer.iter().next()) else {
                continue;
            };
            let spot = spot.layer(first + position).below(kind);
            if let Some(Value::String(name)) = settings.get("name")
                && !self.names.insert(name.clone())
            {
                let accepted = ["a name that no other layer of the same part has"];
                self.refuse(
                    ConfigError::OutOfRange,
                    &spot.below("name"),
                    format!("{name:?}"),
                    &accepted,
                    None,
                );
            }
            if let Value::Array(body) = settings {
                self.given_names(body, &spot, 0, depth + 1);
            }
            for branch in ["body", "shortcut"] {
                if let Some(Value::Array(list)) = settings.get(branch) {
                    self.given_names(list, &spot.below(branch), 0, depth + 1);
                }
            }
        }
    }

    fn layers(&mut self, list: &[Value], spot: &Spot, first: usize, depth: usize) -> Vec<Value> {
        let positions = list.iter().enumerate();
        positions.filter_map(|(at, layer)| self.layer(layer, &spot.layer(first + at), depth)).collect()
    }

    /// One layer, `depth` blocks deep; none if there is a mistake in it, which is noted.
    fn layer(&mut self, layer: &Value, spot: &Spot, depth: usize) -> Option<Value> {
        let (name, settings) = match layer {
            Value::String(name) => (name.as_str(), None),
            Value::Table(table) if table.len() == 1 => {
                table.iter().next().map(|(name, settings)| (name.as_str(), Some(settings)))?
            }
            other => {
                let accepted = ["a layer: a name such as \"relu\"", "a table such as { max-pool = 2 }"];
                self.refuse(ConfigError::WrongType, spot, described(other), &accepted, None);
                return None;
            }
        };
        let Some(kind) = kinds::find(name) else {
            let (names, shown) = (kinds::names(), name.chars().take(SHOWN).collect());
            let suggestion = suggest::nearest(name, names.iter().copied());
            self.refuse(ConfigError::UnknownName, spot, shown, &names, suggestion);
            return None;
        };
        let spot = spot.below(name);
        let (given, alone) = match (settings, kind.short) {
            (None, _) => (Table::new(), None),
            (Some(Value::Table(settings)), _) => (settings.clone(), None),
            (Some(value), Some(short)) => {
                (Table::from_iter([(short.to_owned(), value.clone())]), Some(short))
            }
            (Some(other), None) => {
                let accepted = match &kind.accepts()[..] {
                    [] => format!("nothing: the layer is {name:?}"),
                    settings => format!("a table with {}", settings.join(", ")),
                };
                self.refuse(ConfigError::WrongType, &spot, described(other), &[&accepted], None);
                return None;
            }
        };
        let complete = self.settings(kind, &given, alone, &spot, depth)?;
        // In the stored form, a layer of which nothing can be said is its name.
        Some(if kind.accepts().is_empty() {
            Value::String(name.to_owned())
        } else {
            Value::Table(Table::from_iter([(name.to_owned(), Value::Table(complete))]))
        })
    }

    /// The complete settings of a layer. `alone` is the one that stood for all.
    fn settings(
        &mut self,
        kind: &'static LayerKind,
        given: &Table,
        alone: Option<&str>,
        spot: &Spot,
        depth: usize,
    ) -> Option<Table> {
        let before = self.findings.count();
        let accepted = kind.accepts();
        for (name, value) in given.iter().filter(|(name, _)| !accepted.contains(&name.as_str())) {
            let accepted = if accepted.is_empty() { &["nothing"][..] } else { &accepted };
            let suggestion = suggest::nearest(name, accepted.iter().copied());
            self.refuse(ConfigError::UnknownKey, &spot.below(name), described(value), accepted, suggestion);
        }
        let mut complete = Table::new();
        if let Some(prefix) = kind.prefix {
            let name = match given.get("name") {
                Some(name) => self.checked_name(name, &spot.below("name")),
                None => self.automatic_name(prefix),
            };
            complete.insert("name".to_owned(), Value::String(name));
        }
        let mut missing = Vec::new();
        for field in kind.fields {
            let spot = if alone.is_some() { spot.meaning(field.name) } else { spot.below(field.name) };
            let value = match given.get(field.name) {
                Some(value) => self.setting(field, value, given, &spot, depth),
                None => absent(field, given),
            };
            match value {
                Some(value) => drop(complete.insert(field.name.to_owned(), value)),
                None if given.contains_key(field.name) => {}
                None => missing.push(format!("{} ({})", field.name, field.accepts.says())),
            }
        }
        if !missing.is_empty() {
            let missing: Vec<&str> = missing.iter().map(String::as_str).collect();
            self.refuse(ConfigError::Missing, spot, shortened(&Value::Table(given.clone())), &missing, None);
        }
        (self.findings.count() == before).then_some(complete)
    }

    /// One setting that was given; none if there is a mistake in it, which is noted.
    fn setting(
        &mut self,
        field: &Field,
        value: &Value,
        given: &Table,
        spot: &Spot,
        depth: usize,
    ) -> Option<Value> {
        match (field.accepts, value) {
            (Accepts::Truth, Value::Boolean(_)) => {}
            (Accepts::Classes, Value::String(text)) if text == CLASSES => {}
            (Accepts::Padding, Value::String(text)) if text == SAME => {
                return match given.get("kernel").and_then(Value::as_integer) {
                    Some(kernel) if kernel % 2 == 1 => Some(Value::Integer(kernel / 2)),
                    Some(_) => {
                        let accepted = ["a number; \"same\" is for an odd kernel, which has a middle"];
                        self.refuse(ConfigError::OutOfRange, spot, format!("{SAME:?}"), &accepted, None);
                        None
                    }
                    // What is wrong with the kernel is said of the kernel.
                    None => Some(Value::Integer(0)),
                };
            }
            (Accepts::Whole(..) | Accepts::Classes | Accepts::Padding, Value::Integer(number)) => {
                if !field.accepts.range().contains(number) {
                    let accepted = [field.accepts.says()];
                    self.refuse(ConfigError::OutOfRange, spot, number.to_string(), &[&accepted[0]], None);
                    return None;
                }
            }
            (Accepts::Number(_) | Accepts::Share, Value::Integer(_) | Value::Float(_)) => {
                let number = value.as_float().or_else(|| value.as_integer().map(|number| number as f64));
                // Stored as a number of the kind that the type has.
                let number = number.filter(|&number| field.accepts.contains(number)).map(Value::Float);
                if number.is_none() {
                    self.refuse(
                        ConfigError::OutOfRange,
                        spot,
                        shortened(value),
                        &[&field.accepts.says()],
                        None,
                    );
                }
                return number;
            }
            (Accepts::Layers, Value::Array(list)) if depth < MAX_NESTING => {
                return Some(Value::Array(self.layers(list, spot, 0, depth + 1)));
            }
            (Accepts::Layers, Value::Array(_)) => {
                let accepted = format!("at most {MAX_NESTING} blocks in each other");
                let shown = format!("{} blocks deep", depth + 1);
                self.refuse(ConfigError::OutOfRange, spot, shown, &[&accepted], None);
                return None;
            }
            (accepts, other) => {
                self.wrong_type(spot, other, accepts);
                return None;
            }
        }
        Some(value.clone())
    }

    fn checked_name(&mut self, name: &Value, spot: &Spot) -> String {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        let accepted = format!("a text of 1 to {MAX_NAME} ASCII letters, digits, - and _");
        match name {
            // Runs would draw its tensors anew, and merge them into those of another layer.
            Value::String(text) if is_adapter(&format!("{text}.weight")) => {
                let accepted =
                    "a name with another ending: that one is of adapters, which model.adapters adds";
                self.refuse(ConfigError::OutOfRange, spot, shortened(name), &[accepted], None);
            }
            Value::String(name) if (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(plain) => {
                return name.clone();
            }
            Value::String(_) => {
                self.refuse(ConfigError::OutOfRange, spot, shortened(name), &[&accepted], None);
            }
            other => self.refuse(ConfigError::WrongType, spot, described(other), &[&accepted], None),
        }
        String::new()
    }

    /// The kind of layer and its number in the part, as in `conv2`; the first number that is free.
    fn automatic_name(&mut self, prefix: &'static str) -> String {
        let number = self.numbers.entry(prefix).or_default();
        loop {
            *number += 1;
            let name = format!("{prefix}{number}");
            if !self.names.contains(&name) {
                return name;
            }
        }
    }

    fn wrong_type(&mut self, spot: &Spot, value: &Value, accepts: Accepts) {
        self.refuse(ConfigError::WrongType, spot, described(value), &[&accepts.says()], None);
    }

    fn refuse(
        &mut self,
        kind: fn(Box<Mistake>) -> ConfigError,
        spot: &Spot,
        given: String,
        accepted: &[&str],
        suggestion: Option<String>,
    ) {
        let accepted = accepted.iter().map(|&name| name.to_owned()).collect();
        let (origin, key) = (spot.origin(Some(self.places)), spot.shown.clone());
        self.findings.add(kind(Box::new(Mistake { origin, key, given, accepted, suggestion })));
    }
}

/// What a setting is where it is left out; none if it must not be, or if what it depends on is.
fn absent(field: &Field, given: &Table) -> Option<Value> {
    match field.absent {
        Absent::Required => None,
        Absent::Whole(number) => Some(Value::Integer(number)),
        Absent::Number(number) => Some(Value::Float(number)),
        Absent::Truth(truth) => Some(Value::Boolean(truth)),
        Absent::Like(other) => Some(given.get(other).cloned().unwrap_or(Value::Integer(1))),
        Absent::NoLayers => Some(Value::Array(Vec::new())),
    }
}
