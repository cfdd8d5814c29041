//! The printed form of predictions: a table for people, JSON or CSV for programs.

mod csv;
mod json;
mod names;
mod table;
mod values;

use std::io::{self, Write};

use clap::Args;
use models::Evaluation;

use crate::cli::evaluation::{evaluation_json, evaluation_text};
use crate::prediction::{Row, Score, ValueRow};

pub use json::line as json_line;
pub use names::Names;
pub use values::line as values_json;

/// Samples in the table if no limit is given.
const TABLE_ROWS: usize = 20;

/// How predictions are printed.
#[derive(Clone, Debug, Default, Args)]
pub struct FormArgs {
    /// Show the K most probable classes of each sample
    #[arg(long, value_name = "K", default_value = "1", value_parser = count, allow_negative_numbers = true)]
    pub top_k: usize,
    /// Print one JSON object per sample, and one with the accuracy if there are labels, instead of a table
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Print a CSV table with a line per sample
    #[arg(long)]
    pub csv: bool,
}

impl FormArgs {
    /// Refuses what goes with one class of several, for models that say all their numbers.
    ///
    /// # Errors
    /// The reason.
    pub fn all_at_once(&self) -> Result<(), &'static str> {
        match self.top_k {
            0 | 1 => Ok(()),
            _ => Err(
                "--top-k goes with models that tell classes apart, and this one says all its numbers: leave it out",
            ),
        }
    }
}

fn count(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|&count| count > 0).ok_or_else(|| "give a whole number, at least 1".to_owned())
}

/// Prints predictions as they are made, and their accuracy at the end.
pub struct Predictions<'a> {
    out: &'a mut dyn Write,
    form: FormArgs,
    names: Names,
    /// Samples that are printed, from the first.
    samples: usize,
    /// Predictions that were printed.
    printed: usize,
    /// Predictions that were made.
    made: usize,
}

impl<'a> Predictions<'a> {
    /// Prints to `out`. A table ends early unless `whole`.
    pub fn new(out: &'a mut dyn Write, form: &FormArgs, names: Names, whole: bool) -> Self {
        let all = form.json || form.csv || whole;
        let samples = if all { usize::MAX } else { TABLE_ROWS };
        let form = FormArgs { top_k: form.top_k.max(1), ..form.clone() };
        Self { out, form, names, samples, printed: 0, made: 0 }
    }

    /// Prints a prediction, if it is not behind the end of the table.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        self.made += 1;
        if row.sample >= self.samples {
            return Ok(());
        }
        let first = self.printed == 0;
        self.printed += 1;
        let (names, top_k) = (&self.names, self.form.top_k);
        if self.form.json {
            let mut line = json::line(row, names, top_k);
            line["event"] = "prediction".into();
            return writeln!(self.out, "{line}");
        }
        if self.form.csv {
            if first {
                csv::heading(self.out, row, names, top_k)?;
            }
            return csv::row(self.out, row, names, top_k);
        }
        if first {
            table::heading(self.out, row, names)?;
        }
        table::row(self.out, row, names, top_k)
    }

    /// Prints the prediction of a model whose task is not classification, likewise.
    pub fn values(&mut self, row: &ValueRow) -> io::Result<()> {
        self.made += 1;
        if row.sample >= self.samples {
            return Ok(());
        }
        let (first, names) = (self.printed == 0, &self.names);
        self.printed += 1;
        if self.form.json {
            let mut line = values::line(row, names);
            line["event"] = "prediction".into();
            return writeln!(self.out, "{line}");
        }
        if self.form.csv {
            if first {
                values::csv_heading(self.out, row, names)?;
            }
            return values::csv_row(self.out, row, names);
        }
        if first {
            values::table_heading(self.out, row, names)?;
        }
        values::table_row(self.out, row, names)
    }

    /// Prints how such a model does, if it is known what is true; `of` says what the samples are of, if that is to be said.
    pub fn evaluation(mut self, evaluation: &Evaluation, of: &str) -> io::Result<()> {
        let known = evaluation.samples > 0;
        if self.form.json && known {
            let mut line = evaluation_json(evaluation);
            line["event"] = "evaluation".into();
            writeln!(self.out, "{line}")?;
        } else if !self.form.json && !self.form.csv {
            self.left_out()?;
            if known {
                writeln!(self.out, "{}{of}", evaluation_text(evaluation))?;
            }
        }
        self.out.flush()
    }

    /// Says how many predictions the table has not shown.
    fn left_out(&mut self) -> io::Result<()> {
        match self.made - self.printed {
            0 => Ok(()),
            more => writeln!(self.out, "... and {more} more; --limit N, --json or --csv shows more"),
        }
    }

    /// Prints the accuracy, if there were labels; `of` says what the samples are of, if that is to be said.
    pub fn score(mut self, score: Score, of: &str) -> io::Result<()> {
        let (Score { samples, correct }, accuracy) = (score, score.accuracy());
        if self.form.json {
            if samples > 0 {
                let line = serde_json::json!({
                    "event": "accuracy", "samples": samples, "correct": correct, "accuracy": accuracy,
                });
                writeln!(self.out, "{line}")?;
            }
        } else if !self.form.csv {
            self.left_out()?;
            if samples > 0 {
                writeln!(
                    self.out,
                    "accuracy {:.2} % ({correct} of {samples} {}{of})",
                    100.0 * accuracy,
                    if samples == 1 { "sample" } else { "samples" }
                )?;
            }
        }
        self.out.flush()
    }
}

#[cfg(test)]
mod tests;
