//! Predictions as a CSV table.
//!
//! Columns: `sample`, `file` where samples are files, `class`, `name` where classes have names, `probability`, then the same for
//! each further class that is asked for with a number behind it, `label` where there are labels, and `gate`.

use std::io::{self, Write};

use super::Names;
use crate::prediction::Row;

pub(super) fn heading(out: &mut dyn Write, row: &Row, names: &Names, top_k: usize) -> io::Result<()> {
    let mut fields = vec!["sample".to_owned()];
    fields.extend(names.sample(row.sample).map(|_| "file".to_owned()));
    for place in 1..=top_k.min(row.probabilities.len()) {
        let number = if place == 1 { String::new() } else { format!("-{place}") };
        fields.push(format!("class{number}"));
        fields.extend(names.class(0).map(|_| format!("name{number}")));
        fields.push(format!("probability{number}"));
    }
    fields.extend(row.label.map(|_| "label".to_owned()));
    fields.extend(row.gate.map(|_| "gate".to_owned()));
    write(out, &fields)
}

pub(super) fn row(out: &mut dyn Write, row: &Row, names: &Names, top_k: usize) -> io::Result<()> {
    let mut fields = vec![row.sample.to_string()];
    fields.extend(names.sample(row.sample).map(str::to_owned));
    for (class, probability) in row.top(top_k) {
        fields.push(class.to_string());
        fields.extend(names.class(class).map(str::to_owned));
        fields.push(probability.to_string());
    }
    fields.extend(row.label.map(|label| label.to_string()));
    fields.extend(row.gate.map(|gate| gate.to_string()));
    write(out, &fields)
}

pub(super) fn write(out: &mut dyn Write, fields: &[String]) -> io::Result<()> {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    writer.write_record(fields).map_err(io::Error::other)?;
    out.write_all(&writer.into_inner().map_err(|error| io::Error::other(error.to_string()))?)
}
