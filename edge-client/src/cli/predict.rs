//! `edge-client predict`.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;

use serde_json::json;
use shared::data::Split;

use super::arguments::PredictArguments;
use super::device;
use super::error::CliError;
use super::evaluate::open;
use super::samples::or_by;
use crate::predict::{Predictor, Row, Score};

/// Rows of the table if no limit is given.
const TABLE_ROWS: usize = 20;

pub(super) fn run(arguments: &PredictArguments) -> Result<(), CliError> {
    let out = &mut BufWriter::new(io::stdout().lock());
    write(arguments, out)
}

fn write(arguments: &PredictArguments, out: &mut dyn Write) -> Result<(), CliError> {
    let backend = device::best();
    let mut predictor = match &arguments.model {
        Some(model) => Predictor::open(model, &backend)?,
        None => Predictor::personal(&open(&arguments.of)?, &backend)?,
    };
    let classes = predictor.architecture().classes;
    let data = arguments.samples.load(arguments.split, predictor.samples(), classes);
    let data = data.map_err(or_by(match arguments.split {
        Split::Test => "--split train uses these",
        Split::Train => "--split test uses these",
    }))?;
    let limit = arguments.limit.map_or(data.len(), |limit| limit.get().min(data.len()));
    let view = data.part(&(0..limit as u32).collect::<Vec<_>>());
    let shown = if arguments.json || arguments.limit.is_some() { limit } else { TABLE_ROWS };

    let mut written = Ok(());
    let (mut first, each) = (true, view.dataset().labels_each());
    let mut row = |row: Row| {
        let row = if arguments.gate { row } else { Row { gate: None, ..row } };
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
        let gate = row.gate.map_or(String::new(), |_| format!(" {:>8}", "gate"));
        writeln!(out, "{:>8} {:>6} {:>12} {:>6}{gate}", "sample", "class", "probability", "label")?;
    }
    let mark = if row.class == row.label { "" } else { "  wrong" };
    let gate = row.gate.map_or(String::new(), |gate| format!(" {gate:>8.4}"));
    let Row { sample, class, probability, label, .. } = row;
    writeln!(out, "{sample:>8} {class:>6} {probability:>12.4} {label:>6}{gate}{mark}")
}

fn write_score(score: Score, shown: usize, out: &mut dyn Write) -> io::Result<()> {
    if score.samples > shown {
        writeln!(out, "... and {} more; --limit N or --json shows more", score.samples - shown)?;
    }
    let percent = 100.0 * score.accuracy();
    writeln!(out, "accuracy {percent:.2} % ({} of {} samples)", score.correct, score.samples)
}

fn write_json(row: &Row, out: &mut dyn Write) -> io::Result<()> {
    let mut line = json!({
        "event": "prediction",
        "sample": row.sample,
        "class": row.class,
        "probability": row.probability,
        "label": row.label,
    });
    if let Some(gate) = row.gate {
        line["gate"] = gate.into();
    }
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
