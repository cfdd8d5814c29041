//! Reading a value that another version of this software may have written.

use std::fmt::Write as _;

use serde::de::DeserializeOwned;
use serde_path_to_error::{Error, Segment};
use toml::Value;

/// Why a value does not say what its type can hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The type has no such key, alternative or name.
    #[error("`{key}` is not known: {reason}")]
    Unknown {
        /// The full path, and what stands there if that is a name: `training.optimizer.adam`, `data.labels = "nowhere"`.
        key: String,
        /// What is accepted there.
        reason: String,
    },
    /// The key exists, and its value is of another kind.
    #[error("`{key}` is not understood: {reason}")]
    Value {
        /// The full path.
        key: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Reads the value at `path`.
pub fn read<T: DeserializeOwned>(value: &Value, path: &str) -> Result<T, ReadError> {
    serde_path_to_error::deserialize(value.clone()).map_err(|error: Error<toml::de::Error>| {
        let (mut key, mut inner) = (path.to_owned(), Some(value));
        for segment in error.path() {
            let _ = match segment {
                Segment::Map { key: name } | Segment::Enum { variant: name } => {
                    inner = inner.and_then(|inner| inner.get(name));
                    write!(key, ".{name}")
                }
                Segment::Seq { index } => {
                    inner = inner.and_then(|inner| inner.get(index));
                    write!(key, "[{index}]")
                }
                Segment::Unknown => Ok(()),
            };
        }
        let reason = error.inner().message();
        // serde has no other form for these two.
        let mut unknown = ["unknown field `", "unknown variant `"].into_iter();
        let name = unknown.find_map(|what| reason.strip_prefix(what)?.split_once('`'));
        let Some((name, _)) = name else {
            return ReadError::Value { key, reason: reason.to_owned() };
        };
        if inner.is_some_and(Value::is_str) {
            key = format!("{key} = {name:?}");
        } else if !key.ends_with(&format!(".{name}")) {
            key = format!("{key}.{name}");
        }
        ReadError::Unknown { key, reason: reason.to_owned() }
    })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    #[expect(dead_code, reason = "only the errors of reading are of interest")]
    struct Outer {
        optimizer: Optimizer,
        #[serde(default)]
        layers: Vec<Optimizer>,
        #[serde(default)]
        count: u8,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "kebab-case")]
    #[expect(dead_code, reason = "as above")]
    enum Optimizer {
        None,
        Sgd { rate: f64 },
    }

    #[test]
    fn what_is_not_known_is_named() {
        for (text, key) in [
            ("clip = 1\noptimizer = 'none'", "training.clip"),
            ("optimizer = 'adam'", "training.optimizer = \"adam\""),
            ("optimizer.adam.rate = 1", "training.optimizer.adam"),
            ("optimizer.sgd = { rate = 1.0, beta = 2.0 }", "training.optimizer.sgd.beta"),
            ("optimizer = 'none'\nlayers = ['none', { gelu = {} }]", "training.layers[1].gelu"),
        ] {
            let found = read::<Outer>(&Value::Table(text.parse().expect(text)), "training").unwrap_err();
            assert!(
                matches!(&found, ReadError::Unknown { key: named, .. } if named == key),
                "{text}: {found}"
            );
        }
        let table = "optimizer = 'none'\ncount = 300".parse().expect("TOML");
        let found = read::<Outer>(&Value::Table(table), "training").unwrap_err();
        assert!(matches!(&found, ReadError::Value { key, .. } if key == "training.count"), "{found}");
    }
}
