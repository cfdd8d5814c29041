//! `model.layers`: a network that is written down in the configuration.
//!
//! ```toml
//! [model]
//! layers = [
//!     { conv = { out = 32, kernel = 5, padding = "same" } }, "relu", { max-pool = 2 },
//!     { conv = { out = 64, kernel = 5, padding = "same" } }, "relu", { max-pool = 2 },
//!     "flatten",
//!     { linear = 512 }, "relu",
//!     { linear = "classes" },
//! ]
//! ```
//!
//! A layer is its name, or a table with its name and settings; what a layer is mostly told, such as the size of a window,
//! may stand for all of them. In a list, the last linear layer begins the head and everything before it is the extractor.
//! To divide them otherwise, or to have a projection, name the parts:
//!
//! ```toml
//! [model.layers]
//! extractor  = ["flatten", { linear = 200 }, "relu"]
//! projection = [{ linear = { name = "to-256", out = 256 } }]
//! head       = [{ linear = "classes" }]
//! ```
//!
//! Layers with parameters have names, which are `conv1`, `conv2`, `linear1`, ... in each part where none is given.
//! [`KINDS`] lists all kinds of layers. The effective configuration states every layer with all of its settings.

mod kinds;
mod place;
mod read;
mod spot;
#[cfg(test)]
mod tests;
mod write;

pub(in crate::config) use place::place;
pub(in crate::config) use read::complete;
pub(in crate::config) use write::document;

pub(crate) use kinds::layer_kinds;

use models::{Architecture, Initialisation, Layer};
use toml::{Table, Value};

use kinds::CLASSES;

/// What an architecture from a configuration is called.
const NAME: &str = "layers";

/// Puts the number of classes in its places in complete layers.
pub(in crate::config) fn resolve_classes(layers: &mut Table, classes: usize) {
    layers.iter_mut().for_each(|(_, value)| resolve(value, classes));
}

fn resolve(value: &mut Value, classes: usize) {
    match value {
        Value::Table(table) => {
            for (name, value) in table.iter_mut() {
                match value {
                    Value::String(text) if name != "name" && text == CLASSES => {
                        *value = Value::Integer(i64::try_from(classes).unwrap_or(i64::MAX));
                    }
                    value => resolve(value, classes),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| resolve(value, classes)),
        _ => {}
    }
}

/// The network of complete layers whose classes are resolved. Whether its shapes fit is not checked.
///
/// # Errors
/// What the types say, of layers that [`complete`] would not have let through.
pub(in crate::config) fn architecture(
    layers: &Table,
    input: &[usize],
    classes: usize,
    initialisation: Initialisation,
) -> Result<Architecture, String> {
    let part = |name: &str| -> Result<Vec<Layer>, String> {
        let list = layers.get(name).cloned().unwrap_or(Value::Array(Vec::new()));
        list.try_into().map_err(|error: toml::de::Error| error.message().to_owned())
    };
    Ok(Architecture {
        name: NAME.to_owned(),
        input: input.to_vec(),
        classes,
        initialisation,
        extractor: part("extractor")?,
        projection: part("projection")?,
        head: part("head")?,
        ..Architecture::default()
    })
}

/// The layers of an architecture as lines below `[model]`, with "classes" where their number stands.
///
/// # Errors
/// What the types say, of layers that TOML cannot hold: there are none.
pub(crate) fn layers_of(architecture: &Architecture) -> Result<String, String> {
    let mut layers = Table::new();
    for (part, list) in architecture.parts() {
        let mut list = Value::try_from(list).map_err(|error| error.to_string())?;
        let items = list.as_array_mut().map(Vec::as_mut_slice).unwrap_or_default();
        let setting = match part {
            "extractor" => {
                items.first_mut().and_then(|layer| layer.get_mut("embedding")?.get_mut("vocabulary"))
            }
            "head" => items.last_mut().and_then(|layer| layer.get_mut("linear")?.get_mut("out")),
            _ => None,
        };
        if let Some(value) = setting {
            *value = Value::String(CLASSES.to_owned());
        }
        layers.insert(part.to_owned(), list);
    }
    Ok(document(&layers))
}
