//! Values as messages show them.

use toml::Value;

/// Characters of a value that a message shows.
pub(in crate::config) const SHOWN: usize = 60;

/// The value on one line, shortened to [`SHOWN`] characters.
pub(in crate::config) fn shortened(value: &Value) -> String {
    let text = value.to_string().replace(['\n', '\r'], " ");
    if text.chars().count() <= SHOWN { text } else { text.chars().take(SHOWN).chain("...".chars()).collect() }
}

/// The value with its kind, as in "3 (a whole number)".
pub(in crate::config) fn given(value: &Value) -> String {
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
