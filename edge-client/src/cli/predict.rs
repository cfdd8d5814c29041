//! `edge-client predict`.

use std::io::{self, BufWriter};
use std::ops::ControlFlow;
use std::sync::Arc;

use shared::cli::{Names, Predictions, Processor};
use shared::data::{Split, View};
use shared::prediction::Row;

use super::arguments::PredictArguments;
use super::error::CliError;
use super::evaluate::open;
use super::samples::or_by;
use crate::predict::Predictor;

pub(super) fn run(arguments: &PredictArguments) -> Result<(), CliError> {
    let backend = Processor::best();
    let mut predictor = match &arguments.model {
        Some(model) => Predictor::open(model, &backend)?,
        None => Predictor::personal(&open(&arguments.of)?, &backend)?,
    };
    let classes = predictor.architecture().classes;
    let inputs = arguments.samples.load(arguments.split, predictor.samples(), classes);
    let inputs = inputs.map_err(or_by(match arguments.split {
        Split::Test => "--split train uses these",
        Split::Train => "--split test uses these",
    }))?;
    let names = Names::of(predictor.class_names(), &inputs);
    let data = View::whole(Arc::new(inputs.dataset));
    let limit = arguments.limit.map_or(data.len(), |limit| limit.get().min(data.len()));
    let view = data.part(&(0..limit as u32).collect::<Vec<_>>());
    let out = &mut BufWriter::new(io::stdout().lock());
    let mut printed = Predictions::new(out, &arguments.form, names, arguments.limit.is_some());
    let mut written = Ok(());
    let mut row = |row: Row| {
        written = printed.row(&if arguments.gate { row } else { Row { gate: None, ..row } });
        if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    let score = predictor.predict(&view, &mut row)?;
    written.and_then(|()| printed.score(score, "")).map_err(CliError::output)
}
