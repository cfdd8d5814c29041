//! Ranges: whether the numbers of a table are what their keys accept.

use std::ops::RangeBounds as _;

use serde::Serialize;
use toml::Value;

use super::{Keys, Kind, SettingType, table_of};

/// Refuses a table with a number outside its range, with the key and what it accepts.
pub fn check<T: SettingType + Serialize>(table: &T) -> Result<(), String> {
    let values = table_of(table);
    for key in Keys::of::<T>().iter() {
        if let Some(value) = values.get(&key.path)
            && !admits(key.kind, value)
        {
            let given = value.as_float().map_or_else(|| value.to_string(), |number| number.to_string());
            return Err(format!("{} must be {}, not {given}", key.path, key.kind.accepts()));
        }
    }
    Ok(())
}

/// Whether a number is in the range; true of values of other types.
fn admits(kind: Kind, value: &Value) -> bool {
    match (kind, value) {
        (Kind::Whole(low, high), Value::Integer(number)) => (low..=high).contains(number),
        (Kind::Number(low, high), Value::Float(number)) => (low, high).contains(number),
        _ => true,
    }
}
