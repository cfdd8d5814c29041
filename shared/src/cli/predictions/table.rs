//! Predictions as a table of at most 80 columns for people, where the names of classes allow it.

use std::io::{self, Write};

use super::Names;
use crate::prediction::Row;

/// The longest name of a sample, and of a class, that is printed whole.
const SAMPLE: usize = 28;
const CLASS: usize = 14;

/// Widths of the columns of samples and classes.
fn widths(names: &Names) -> (usize, usize) {
    let (sample, class) = names.widths();
    (sample.clamp("sample".len() + 2, SAMPLE), class.clamp("class".len() + 1, CLASS))
}

pub(super) fn heading(out: &mut dyn Write, row: &Row, names: &Names) -> io::Result<()> {
    let (sample, class) = widths(names);
    let label = row.label.map_or(String::new(), |_| format!(" {:>class$}", "label"));
    let gate = row.gate.map_or(String::new(), |_| format!(" {:>8}", "gate"));
    let line = match names.sample(0) {
        Some(_) => format!("{:<sample$} {:>class$} {:>12}{label}{gate}", "file", "class", "probability"),
        None => format!("{:>sample$} {:>class$} {:>12}{label}{gate}", "sample", "class", "probability"),
    };
    writeln!(out, "{line}")
}

pub(super) fn row(out: &mut dyn Write, row: &Row, names: &Names, top_k: usize) -> io::Result<()> {
    let (sample, class) = widths(names);
    let called = shortened(&names.shown_sample(row.sample), sample);
    let label = |label| format!(" {:>class$}", shortened(&names.shown(label), class));
    let gate = row.gate.map_or(String::new(), |gate| format!(" {gate:>8.4}"));
    let mark = match row.label {
        Some(label) if label != row.class => "  wrong",
        _ => "",
    };
    let others = row.top(top_k).into_iter().filter(|(other, _)| *other != row.class);
    let others: Vec<String> =
        others.map(|(other, probability)| format!("{} {probability:.4}", names.shown(other))).collect();
    let others = if others.is_empty() { String::new() } else { format!("  then {}", others.join(", ")) };
    let called = if names.sample(row.sample).is_some() {
        format!("{called:<sample$}")
    } else {
        format!("{called:>sample$}")
    };
    writeln!(
        out,
        "{called} {:>class$} {:>12.4}{}{gate}{mark}{others}",
        shortened(&names.shown(row.class), class),
        row.probability(),
        row.label.map_or(String::new(), label),
    )
}

/// The end of a path says more than its beginning; a class keeps its beginning in the same place by this.
pub(super) fn shortened(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    std::iter::once('…').chain(name.chars().skip(length + 1 - width)).collect()
}
