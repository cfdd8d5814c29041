//! Tables as a value, rendered for terminals and for pages.

use std::fmt::Write as _;

use maud::{Markup, html};

/// A table of text cells.
pub(crate) struct Table {
    /// The heads of the columns.
    pub(crate) head: Vec<String>,
    /// The rows, which begin with their names.
    pub(crate) rows: Vec<Vec<String>>,
    /// This number of columns, the first of which are names, hold words: on a terminal they stand to the left, the others to the
    /// right.
    pub(crate) left: usize,
}

impl Table {
    /// For a terminal, three blanks between columns.
    pub(crate) fn text(&self) -> String {
        self.lines(3).into_iter().fold(String::new(), |text, line| text + &line + "\n")
    }

    /// Head and rows as lines, this number of blanks between columns.
    pub(crate) fn lines(&self, blanks: usize) -> Vec<String> {
        let rows = || std::iter::once(&self.head).chain(&self.rows);
        let width = |column: usize| {
            rows().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let columns = rows().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let mut line = String::new();
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                let blanks = if column == 0 { 0 } else { blanks };
                let _ = if column < self.left {
                    write!(line, "{:blanks$}{cell:<width$}", "")
                } else {
                    write!(line, "{:blanks$}{cell:>width$}", "")
                };
            }
            line.truncate(line.trim_end().len());
            line
        };
        rows().map(line).collect()
    }

    /// For a terminal of this many columns: where the table does not fit, a block for each row.
    pub(crate) fn fitted(&self, columns: usize) -> String {
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
    #[cfg_attr(
        not(feature = "simulate"),
        expect(dead_code, reason = "experiments alone have tables on pages")
    )]
    pub(crate) fn html(&self) -> Markup {
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
pub(crate) fn typeset(text: &str) -> String {
    text.replace("+-", "\u{b1}")
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
            left: 1,
        };
        assert_eq!(table.fitted(33), table.text());
        assert_eq!(
            table.fitted(30),
            "variant\nslow\n  final accuracy  70.0 +- 10.0 %\nfast\n  final accuracy  72.0 +- 11.0 %\n  paper           91.5 %\n"
        );
    }

    #[test]
    fn words_stand_to_the_left_and_figures_to_the_right() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let table = Table {
            head: row(["run", "state", "size"]),
            rows: vec![row(["a", "complete", "9 B"]), row(["long", "", "1.2 MB"])],
            left: 2,
        };
        assert_eq!(table.lines(1), ["run  state      size", "a    complete    9 B", "long          1.2 MB"]);
    }
}
