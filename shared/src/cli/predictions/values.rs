//! The printed forms of numbers: what a model says whose task is not classification.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use super::{Names, csv};
use crate::prediction::ValueRow;

/// A prediction as an object: the numbers by name, or in a list where they have no names; of several labels those that apply as well.
///
/// ```json
/// {"sample":0,"values":{"price":1.5,"rent":0.2},"truth":{"price":1.4,"rent":0.3}}
/// {"sample":0,"values":{"cat":0.9,"dog":0.8,"fox":0.1},"labels":["cat","dog"]}
/// ```
#[must_use]
pub fn line(row: &ValueRow, names: &Names) -> Value {
    let mut line = json!({ "sample": row.sample, "values": named(&row.values, names) });
    if let Some(file) = names.sample(row.sample) {
        line["file"] = file.into();
    }
    if row.flags {
        line["labels"] = row
            .set()
            .map(|class| names.class(class).map_or_else(|| json!(class), |name| json!(name)))
            .collect();
    }
    if !row.truth.is_empty() {
        line["truth"] = named(&row.truth, names);
    }
    line
}

fn named(values: &[f32], names: &Names) -> Value {
    let pairs = (0..).zip(values).map(|(at, &value)| Some((names.class(at)?.to_owned(), json!(value))));
    match pairs.collect::<Option<Map<_, _>>>() {
        Some(map) if map.len() == values.len() => Value::Object(map),
        _ => json!(values),
    }
}

/// The columns: `sample`, `file` where samples are files, one for each number, and the same with `true-` before it where it is known.
fn titles(row: &ValueRow, names: &Names) -> Vec<String> {
    let mut titles = vec!["sample".to_owned()];
    titles.extend(names.sample(row.sample).map(|_| "file".to_owned()));
    titles.extend((0..row.values.len()).map(|at| title(at, row, names)));
    titles.extend((0..row.truth.len()).map(|at| format!("true-{}", title(at, row, names))));
    titles
}

fn title(at: usize, row: &ValueRow, names: &Names) -> String {
    match names.class(at as u32) {
        Some(name) => name.to_owned(),
        None if row.values.len() == 1 => "value".to_owned(),
        None => format!("value-{at}"),
    }
}

pub(super) fn csv_heading(out: &mut dyn Write, row: &ValueRow, names: &Names) -> io::Result<()> {
    csv::write(out, &titles(row, names))
}

pub(super) fn csv_row(out: &mut dyn Write, row: &ValueRow, names: &Names) -> io::Result<()> {
    let mut fields = vec![row.sample.to_string()];
    fields.extend(names.sample(row.sample).map(str::to_owned));
    fields.extend(row.values.iter().chain(&row.truth).map(ToString::to_string));
    csv::write(out, &fields)
}

/// The longest name of a sample that is printed whole, and the width of a number.
const SAMPLE: usize = 28;
const NUMBER: usize = 12;

pub(super) fn table_heading(out: &mut dyn Write, row: &ValueRow, names: &Names) -> io::Result<()> {
    let mut titles = titles(row, names);
    if names.sample(row.sample).is_some() {
        titles.remove(0);
    }
    table_line(out, &titles, width_of_samples(names))
}

pub(super) fn table_row(out: &mut dyn Write, row: &ValueRow, names: &Names) -> io::Result<()> {
    let mut cells = vec![names.shown_sample(row.sample)];
    if row.flags {
        cells.extend(row.values.iter().map(|probability| format!("{probability:.4}")));
        cells.extend(row.truth.iter().map(ToString::to_string));
    } else {
        cells.extend(row.values.iter().chain(&row.truth).map(|value| shown(*value)));
    }
    table_line(out, &cells, width_of_samples(names))
}

fn table_line(out: &mut dyn Write, cells: &[String], sample: usize) -> io::Result<()> {
    for (at, cell) in cells.iter().enumerate() {
        let (before, width) = if at == 0 { ("", sample) } else { (" ", NUMBER) };
        write!(out, "{before}{:>width$}", super::table::shortened(cell, width))?;
    }
    writeln!(out)
}

fn width_of_samples(names: &Names) -> usize {
    names.widths().0.clamp("sample".len() + 2, SAMPLE)
}

/// A number with as many digits as say something.
fn shown(value: f32) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e7).contains(&size) { format!("{value:.4e}") } else { format!("{value:.4}") }
}
