//! One table of settings over another: the defaults under what is given, and what is given without the defaults.

use serde::Serialize;
use toml::{Table, Value};

use super::{Kind, SettingType, Shape};

/// Lays `layer` over `base`, both of this shape. A value replaces a value, a table joins a table, and of a choice another
/// alternative replaces the one that stands there, beginning with its own defaults.
pub fn lay_over(base: &mut Table, layer: Table, shape: &Shape) {
    for (name, value) in layer {
        if !base.contains_key(&name)
            && let Some(defaults) = shape.defaults_of(&name)
        {
            *base = Table::from_iter([(name.clone(), Value::Table(defaults))]);
        }
        let inside = shape.inside(&name);
        match (base.get_mut(&name), value) {
            (Some(Value::Table(below)), Value::Table(above)) if inside.joins() => {
                lay_over(below, above, &inside);
            }
            (_, value) => {
                base.insert(name, value);
            }
        }
    }
}

/// What `table` says, over the defaults of its type.
#[must_use]
pub fn complete<T: SettingType + Default + Serialize>(table: Table) -> Table {
    let mut complete = table_of(&T::default());
    lay_over(&mut complete, table, &T::shape());
    complete
}

/// What `value` has that is not the default of its type, or of the alternative in which it stands.
#[must_use]
pub fn without_defaults<T: SettingType + Default + Serialize>(value: &T) -> Table {
    let mut table = table_of(value);
    prune(&mut table, &table_of(&T::default()), &T::shape());
    table
}

fn prune(table: &mut Table, defaults: &Table, shape: &Shape) {
    let mut kept = Table::new();
    for (name, mut value) in std::mem::take(table) {
        if defaults.get(&name) == Some(&value) {
            continue;
        }
        let (inside, alternative) = (shape.inside(&name), shape.defaults_of(&name).map(Value::Table));
        let below = alternative.as_ref().or_else(|| defaults.get(&name));
        if let (Value::Table(inner), Some(Value::Table(below))) = (&mut value, below)
            && inside.joins()
        {
            prune(inner, below, &inside);
        }
        kept.insert(name, value);
    }
    *table = kept;
}

/// The settings of a choice's alternative `name`, which `value` is.
#[doc(hidden)]
pub fn settings_of<T: Serialize>(name: &str, value: &T) -> Table {
    match table_of(value).remove(name) {
        Some(Value::Table(settings)) => settings,
        _ => Table::new(),
    }
}

/// A section, or a choice, as a table of what is set.
///
/// # Panics
/// Never: both are tables of numbers, texts, flags and lists, all of which TOML can say.
pub fn table_of<T: Serialize>(value: &T) -> Table {
    match Value::try_from(value) {
        Ok(Value::Table(table)) => table,
        other => unreachable!("a section or choice is a table: {other:?}"),
    }
}

impl Shape {
    /// The shape of what stands at `name` in a table of this shape. An algorithm's hyper-parameters are any table.
    fn inside(&self, name: &str) -> Self {
        let inside = match self {
            Self::Value(_) => None,
            Self::Table(entries) => {
                entries.iter().find(|entry| entry.name == name).map(|entry| entry.shape.clone())
            }
            Self::Choice(all) => {
                all.iter().find(|one| one.name == name).map(|one| Self::Table(one.entries.clone()))
            }
        };
        inside.unwrap_or(Self::Table(Vec::new()))
    }

    /// Whether a table of this shape joins the table below it; otherwise it replaces it as a whole.
    fn joins(&self) -> bool {
        !matches!(self, Self::Value(Kind::Network | Kind::Numbers | Kind::Names | Kind::Tensors))
    }

    /// The defaults of the alternative with this name, if this is a choice that has it.
    fn defaults_of(&self, name: &str) -> Option<Table> {
        match self {
            // One that is not known stands alone: reading it fails and names it.
            Self::Choice(all) => {
                let known = all.iter().find(|one| one.name == name);
                Some(known.map(|one| one.defaults.clone()).unwrap_or_default())
            }
            // An algorithm knows its own.
            Self::Value(Kind::Algorithm) => Some(Table::new()),
            _ => None,
        }
    }
}
