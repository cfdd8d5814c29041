//! The results for a terminal.

use shared::cli::wrapped;

use super::experiment::Experiment;
use super::notes::notes;
use super::personal;
use super::plan::Plan;
use super::results::Line;
use super::table;

/// One table for each cell, then the notes.
///
/// ```text
/// FedAvg against FedSGD
/// form "full", seeds 1, 2, 3
///
/// iid          final accuracy   against fedsgd   rounds to 97.0 %    bytes to target (up)          bytes (up)       paper
/// fedsgd        91.2 +- 0.3 %         baseline          none of 3                       318 MB (159.2 MB)
/// fedavg-b10    97.1 +- 0.1 %      +5.9 +- 0.2            53 +- 2   84.1 MB (42.1 MB)    159 MB (79.7 MB)   87 rounds
/// ```
///
/// Where a table is wider than the terminal's `columns`, it is laid out in blocks. Without columns, for programs, it never is.
#[must_use]
pub fn text(plan: &Plan, lines: &[Line], columns: Option<usize>) -> String {
    let Experiment { title, form, .. } = &plan.experiment;
    let form = if form.is_empty() { String::new() } else { format!("form \"{form}\", ") };
    let mut text = format!("{title}\n{form}seeds {}\n\n", plan.seeds());
    for (cell, setting) in plan.cells.iter().enumerate() {
        let of_cell: Vec<&Line> = lines.iter().filter(|line| line.cell == cell).collect();
        let name = if setting.name.is_empty() { "variant" } else { &setting.name };
        let results = table::results(plan, cell, &of_cell, name, "bytes (up)");
        for table in std::iter::once(results).chain(personal::table(plan, &of_cell)) {
            text.push_str(&columns.map_or_else(|| table.text(), |columns| table.fitted(columns)));
            text.push('\n');
        }
    }
    for note in notes(plan, &lines.iter().collect::<Vec<_>>()) {
        text.push_str(&wrapped(&note, columns, 0));
        text.push('\n');
    }
    text
}
