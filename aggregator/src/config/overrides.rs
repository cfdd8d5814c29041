//! Overrides from the command line: `--set KEY=VALUE`.

use toml::{Table, Value};

use super::ConfigError;
use super::keys::KEYS;
use super::paths::insert;
use super::renamed::of_today;

/// One override.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Override {
    /// A layer with one value.
    Set(Table),
    /// Take this optional key back to unset.
    Unset(String),
}

/// The deepest key that an override may name. The deepest known one has four parts; algorithms may nest further.
const DEPTH: usize = 16;

/// Parses `KEY=VALUE`. VALUE is a TOML value or, where it is none, a bare text.
pub(super) fn parse(given: &str) -> Result<Override, ConfigError> {
    let wrong = |reason: &str| ConfigError::Override { given: given.to_owned(), reason: reason.to_owned() };
    let (path, value) = given.split_once('=').ok_or_else(|| wrong("there is no `=`"))?;
    let path = path.trim();
    let parts: Vec<&str> = path.split('.').collect();
    if parts.iter().any(|part| part.is_empty()) {
        return Err(wrong("the key, or a part of it between dots, is empty"));
    }
    if parts.len() > DEPTH {
        return Err(wrong("the key has too many parts"));
    }
    let value = value.trim();
    if value.is_empty() {
        let path = of_today(path);
        if KEYS.find(&path).is_some_and(|key| key.unset.is_some()) {
            return Ok(Override::Unset(path));
        }
        let optional = KEYS.iter().filter(|key| key.unset.is_some()).map(|key| key.path.as_str());
        let optional = optional.collect::<Vec<_>>().join(", ");
        return Err(wrong(&format!("nothing stands after the `=`, and only {optional} can be unset")));
    }
    let mut layer = Table::new();
    insert(&mut layer, path, toml_value(value));
    Ok(Override::Set(layer))
}

fn toml_value(text: &str) -> Value {
    // A line break could smuggle in a second key; a text with one is taken as it stands.
    let parsed =
        if text.contains(['\n', '\r']) { None } else { format!("value = {text}").parse::<Table>().ok() };
    parsed.and_then(|mut table| table.remove("value")).unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(given: &str) -> Table {
        match parse(given).expect(given) {
            Override::Set(table) => table,
            Override::Unset(key) => panic!("{given} unsets {key}"),
        }
    }

    #[test]
    fn values_are_toml_or_bare_text() {
        for (given, same_as) in [
            ("training.epochs=5", "training.epochs = 5"),
            ("training.epochs = 5", "training.epochs = 5"),
            ("model.name=lenet-5", "model.name = 'lenet-5'"),
            ("model.name=\"lenet-5\"", "model.name = 'lenet-5'"),
            ("run.name=a=b", "run.name = 'a=b'"),
            ("run.name=two words", "run.name = 'two words'"),
            ("algorithm.fedsgd={}", "algorithm.fedsgd = {}"),
            ("data.partition={ shards = { per-client = 2 } }", "data.partition.shards.per-client = 2"),
            ("round.fraction=1e-1", "round.fraction = 0.1"),
            ("run.name=1\nseed = 2", "run.name = \"1\\nseed = 2\""),
        ] {
            assert_eq!(set(given), same_as.parse::<Table>().expect(same_as), "{given}");
        }
    }

    #[test]
    fn optional_keys_can_be_unset_and_others_cannot() {
        assert_eq!(
            parse("data.max-samples=").expect("optional"),
            Override::Unset("data.max-samples".to_owned())
        );
        let message = parse("training.epochs=").expect_err("not optional").to_string();
        assert!(
            message.contains("training.epochs=")
                && message
                    .contains("data.max-samples, data.max-test-samples, data.validation, data.labelled"),
            "{message}"
        );
    }

    #[test]
    fn malformed_overrides_say_how_to_write_one() {
        let long = format!("{}=1", ["a"; 17].join("."));
        for given in ["training.epochs", "=5", "a..b=1", ".a=1", "a.=1", &long] {
            let message = parse(given).expect_err(given).to_string();
            assert!(message.contains(given) && message.contains("KEY=VALUE"), "{message}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_without_panic(text: String) {
            let _ = parse(&text);
            let _ = parse(&format!("run.name={text}"));
        }
    }
}
