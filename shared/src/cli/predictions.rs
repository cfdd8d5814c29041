//! The printed form of predictions: a table for people, or JSON for programs.

use std::io::{self, Write};

use serde_json::json;

use crate::prediction::{Row, Score};

/// Samples in the table if no limit is given.
const TABLE_ROWS: usize = 20;

/// Prints predictions as they are made, and their accuracy at the end.
pub struct Predictions<'a> {
    out: &'a mut dyn Write,
    json: bool,
    /// Samples that are printed, from the first.
    samples: usize,
    /// Predictions that were printed.
    printed: usize,
}

impl<'a> Predictions<'a> {
    /// Prints to `out`, as `json` or as a table, which ends early unless `whole`.
    pub fn new(out: &'a mut dyn Write, json: bool, whole: bool) -> Self {
        let samples = if json || whole { usize::MAX } else { TABLE_ROWS };
        Self { out, json, samples, printed: 0 }
    }

    /// Prints a prediction, if it is not behind the end of the table.
    pub fn row(&mut self, row: &Row) -> io::Result<()> {
        let Row { sample, class, probability, label, gate } = row;
        if *sample >= self.samples {
            return Ok(());
        }
        if self.json {
            let mut line = json!({
                "event": "prediction", "sample": sample, "class": class, "probability": probability, "label": label,
            });
            if let Some(gate) = gate {
                line["gate"] = (*gate).into();
            }
            return writeln!(self.out, "{line}");
        }
        if self.printed == 0 {
            let gate = gate.map_or(String::new(), |_| format!(" {:>8}", "gate"));
            writeln!(self.out, "{:>8} {:>6} {:>12} {:>6}{gate}", "sample", "class", "probability", "label")?;
        }
        self.printed += 1;
        let gate = gate.map_or(String::new(), |gate| format!(" {gate:>8.4}"));
        let mark = if class == label { "" } else { "  wrong" };
        writeln!(self.out, "{sample:>8} {class:>6} {probability:>12.4} {label:>6}{gate}{mark}")
    }

    /// Prints the accuracy; `of` says what the samples are of, if that is to be said.
    pub fn score(self, score: Score, of: &str) -> io::Result<()> {
        let (Score { samples, correct }, accuracy) = (score, score.accuracy());
        if self.json {
            let line =
                json!({ "event": "accuracy", "samples": samples, "correct": correct, "accuracy": accuracy });
            writeln!(self.out, "{line}")?;
            return self.out.flush();
        }
        if samples > self.printed {
            writeln!(self.out, "... and {} more; --limit N or --json shows more", samples - self.printed)?;
        }
        writeln!(self.out, "accuracy {:.2} % ({correct} of {samples} samples{of})", 100.0 * accuracy)?;
        self.out.flush()
    }
}
