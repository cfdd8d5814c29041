//! `edge-client predict`.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::json;
use shared::data::{Format, Reading, View};
use shared::spec::DataSpec;

use super::arguments::PredictArguments;
use super::error::CliError;
use super::event::{left_out, printable};
use super::processor;
use super::screen;
use crate::predict::{PredictError, Predictor, Row, Score};

/// Rows of the table if no limit is given.
const TABLE_ROWS: usize = 20;

pub(super) fn run(arguments: &PredictArguments) -> Result<(), CliError> {
    let out = &mut BufWriter::new(io::stdout().lock());
    write(arguments, out)
}

fn write(arguments: &PredictArguments, out: &mut dyn Write) -> Result<(), CliError> {
    let mut predictor = Predictor::open(&arguments.model, &processor::best())?;
    let classes = predictor.architecture().classes;
    let (directory, split) = (&arguments.samples.data, arguments.split.into());
    let reading = Reading {
        column: arguments.samples.label.clone(),
        on_error: arguments.samples.on_error.into(),
        ..DataSpec::reading(predictor.samples(), classes)
    };
    let data = Format::detect(directory, split).and_then(|format| format.load(directory, split, &reading));
    let data = data.map_err(PredictError::Data)?;
    if data.skipped().count > 0 {
        screen::print(&printable(&left_out(data.skipped())));
    }
    let limit = arguments.limit.map_or(data.len(), |limit| limit.get().min(data.len()));
    let view =
        View::select(Arc::new(data), (0..limit as u32).collect::<Vec<_>>()).map_err(PredictError::Data)?;
    let shown = if arguments.json || arguments.limit.is_some() { limit } else { TABLE_ROWS };

    let mut written = Ok(());
    let (mut first, each) = (true, view.dataset().labels_each());
    let mut row = |row: Row| {
        if row.sample < shown {
            let first = std::mem::take(&mut first);
            written = if arguments.json { write_json(&row, out) } else { write_row(&row, first, out) };
        }
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let score = predictor.predict(&view, &mut row)?;
    written
        .and_then(|()| {
            if arguments.json { write_json_score(score, out) } else { write_score(score, shown * each, out) }
        })
        .and_then(|()| out.flush())
        .map_err(CliError::Output)
}

fn write_row(row: &Row, first: bool, out: &mut dyn Write) -> io::Result<()> {
    if first {
        writeln!(out, "{:>8} {:>6} {:>12} {:>6}", "sample", "class", "probability", "label")?;
    }
    let mark = if row.class == row.label { "" } else { "  wrong" };
    writeln!(out, "{:>8} {:>6} {:>12.4} {:>6}{mark}", row.sample, row.class, row.probability, row.label)
}

fn write_score(score: Score, shown: usize, out: &mut dyn Write) -> io::Result<()> {
    if score.samples > shown {
        writeln!(out, "... and {} more; --limit N or --json shows more", score.samples - shown)?;
    }
    let percent = 100.0 * score.accuracy();
    writeln!(out, "accuracy {percent:.2} % ({} of {} samples)", score.correct, score.samples)
}

fn write_json(row: &Row, out: &mut dyn Write) -> io::Result<()> {
    let line = json!({
        "event": "prediction",
        "sample": row.sample,
        "class": row.class,
        "probability": row.probability,
        "label": row.label,
    });
    writeln!(out, "{line}")
}

fn write_json_score(score: Score, out: &mut dyn Write) -> io::Result<()> {
    let line = json!({
        "event": "accuracy",
        "samples": score.samples,
        "correct": score.correct,
        "accuracy": score.accuracy(),
    });
    writeln!(out, "{line}")
}
