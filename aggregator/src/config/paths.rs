//! Values in nested tables by their paths: names with dots between them.

use toml::{Table, Value};

/// The value at a path of names with dots; `None` if there is none.
#[must_use]
pub fn value_at<'a>(table: &'a Table, path: &str) -> Option<&'a Value> {
    match path.split_once('.') {
        None => table.get(path),
        Some((name, rest)) => value_at(table.get(name)?.as_table()?, rest),
    }
}

/// Takes the value at `path` out, and tables with it that hold nothing else.
pub(super) fn take(table: &mut Table, path: &str) -> Option<Value> {
    let Some((name, rest)) = path.split_once('.') else { return table.remove(path) };
    let inner = table.get_mut(name)?.as_table_mut()?;
    let value = take(inner, rest)?;
    if inner.is_empty() {
        table.remove(name);
    }
    Some(value)
}

/// Puts a value where nothing stands.
pub(super) fn insert(table: &mut Table, path: &str, value: Value) {
    match path.split_once('.') {
        None => {
            table.insert(path.to_owned(), value);
        }
        Some((name, rest)) => {
            let inner = table.entry(name).or_insert_with(|| Table::new().into());
            if let Value::Table(inner) = inner {
                insert(inner, rest, value);
            }
        }
    }
}
