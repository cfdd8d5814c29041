//! Tables as a value, rendered for terminals and for pages, and the table of results of one cell.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::cells::{accuracy, metric, points, to_target, traffic};
use super::plan::Plan;
use super::results::{Line, measured_globally};

/// A table of text cells.
pub(super) struct Table {
    /// The heads of the columns.
    pub(super) head: Vec<String>,
    /// The rows, which begin with their names.
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    /// For a terminal: the first column to the left, the others to the right.
    pub(super) fn text(&self) -> String {
        let rows = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| {
            rows().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let columns = rows().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in rows() {
            let mut line = format!("{:<width$}", row[0], width = widths[0]);
            for (cell, width) in row.iter().zip(&widths).skip(1) {
                let _ = write!(line, "   {cell:>width$}");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    /// For a terminal of this many columns: where the table does not fit, a block for each row.
    pub(super) fn fitted(&self, columns: usize) -> String {
        let table = self.text();
        if table.lines().all(|line| line.chars().count() <= columns) {
            return table;
        }
        let name = self.head.iter().map(|head| head.chars().count()).max().unwrap_or(0);
        let mut text = format!("{}\n", self.head[0]);
        for row in &self.rows {
            let _ = writeln!(text, "{}", row[0]);
            let filled = self.head.iter().zip(row).skip(1).filter(|(_, cell)| !cell.is_empty());
            for (head, cell) in filled {
                let _ = writeln!(text, "  {head:<name$}  {cell}");
            }
        }
        text
    }

    /// For a page.
    pub(super) fn html(&self) -> Markup {
        html! {
            table {
                thead { tr { @for column in &self.head { th scope="col" { (column) } } } }
                tbody {
                    @for row in &self.rows {
                        tr {
                            th scope="row" { (row[0]) }
                            @for cell in &row[1..] { td { (typeset(cell)) } }
                        }
                    }
                }
            }
        }
    }
}

/// Text for a page, which has the sign that not every terminal has.
pub(super) fn typeset(text: &str) -> String {
    text.replace("+-", "\u{b1}")
}

/// The results of all variants in one cell. `variants` and `bytes` are the heads of these columns.
pub(super) fn results(plan: &Plan, cell: usize, lines: &[&Line], variants: &str, bytes: &str) -> Table {
    let target = plan.cells[cell].target.as_ref();
    let published = lines.iter().any(|line| plan.published(cell, line.variant).is_some());
    let measured = measured_globally(lines);
    let mut head = vec![variants.to_owned(), "final accuracy".to_owned()];
    head.extend(plan.experiment.baseline.as_ref().map(|baseline| format!("against {baseline}")));
    if let Some(target) = target {
        head.extend([format!("rounds to {target}"), "bytes to target (up)".to_owned()]);
    }
    head.push(bytes.to_owned());
    head.extend(published.then(|| plan.paper_head().to_owned()));
    head.extend(measured.iter().map(|&name| name.to_owned()));
    let row = |line: &&Line| {
        let mut row = vec![plan.experiment.variants[line.variant].name.clone(), accuracy(line)];
        if let Some(baseline) = plan.baseline() {
            row.push(if baseline == line.variant { "baseline".to_owned() } else { points(line) });
        }
        if target.is_some() {
            row.extend([to_target(line), traffic(line.until)]);
        }
        row.push(traffic(line.traffic));
        row.extend(published.then(|| plan.published(cell, line.variant).unwrap_or_default()));
        row.extend(measured.iter().map(|name| metric(line, name)));
        row
    };
    Table { head, rows: lines.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_that_does_not_fit_is_laid_out_in_blocks() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let table = Table {
            head: row(["variant", "final accuracy", "paper"]),
            rows: vec![row(["slow", "70.0 +- 10.0 %", ""]), row(["fast", "72.0 +- 11.0 %", "91.5 %"])],
        };
        assert_eq!(table.fitted(33), table.text());
        assert_eq!(
            table.fitted(30),
            "variant\nslow\n  final accuracy  70.0 +- 10.0 %\nfast\n  final accuracy  72.0 +- 11.0 %\n  paper           91.5 %\n"
        );
    }
}
