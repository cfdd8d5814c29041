//! `edge-client predict`.

use std::io::{self, BufWriter};
use std::ops::ControlFlow;
use std::sync::Arc;

use shared::cli::{Names, Predictions, Processor, Signals, causes};
use shared::data::{Inputs, Split, View};
use shared::prediction::{Row, Score, ValueRow};

use super::arguments::PredictArguments;
use super::bench::end_with_parent;
use super::error::{CliError, Exit};
use super::evaluate::open;
use super::samples::or_by;
use super::terminal;
use crate::answer::{Address, Listener, Loaded, Origin};
use crate::predict::{PredictError, Predictor};
use crate::store::PersonalModels;

pub(super) fn run(arguments: &PredictArguments) -> Result<(), CliError> {
    if let Some(address) = &arguments.listen {
        return listen(arguments, address);
    }
    let backend = Processor::for_answers(arguments.int8);
    let mut predictor = match &arguments.model {
        Some(model) => Predictor::open(model, &backend)?,
        None => Predictor::personal(&open(&arguments.of)?, &backend)?,
    };
    if let Some(text) = &arguments.text {
        return match predictor.text_sample(text) {
            Some(sample) => {
                let dataset = sample.map_err(PredictError::from)?;
                print(arguments, &mut predictor, Inputs { dataset, files: Vec::new() })
            }
            None => follow(arguments, &mut predictor, text),
        };
    }
    let inputs = arguments.samples.load(arguments.split, predictor.samples(), predictor.architecture());
    let inputs = inputs.map_err(or_by(match arguments.split {
        Split::Test => "--split train uses these",
        Split::Train => "--split test uses these",
    }))?;
    print(arguments, &mut predictor, inputs)
}

/// Prints what the model says of each sample.
fn print(arguments: &PredictArguments, predictor: &mut Predictor, inputs: Inputs) -> Result<(), CliError> {
    let names = Names::of(&predictor.class_names(), &inputs);
    let data = View::whole(Arc::new(inputs.dataset));
    let limit = arguments.limit.map_or(data.len(), |limit| limit.get().min(data.len()));
    let view = data.part(&(0..limit as u32).collect::<Vec<_>>());
    let out = &mut BufWriter::new(io::stdout().lock());
    let mut printed = Predictions::new(out, &arguments.form, names, arguments.limit.is_some());
    let mut written = Ok(());
    let goes_on = |written: &io::Result<()>| match written {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    if !predictor.architecture().task.is_classification() {
        arguments.form.all_at_once().map_err(|reason| CliError::new(Exit::Usage, reason))?;
        let mut row = |row: ValueRow| {
            written = printed.values(&row);
            goes_on(&written)
        };
        let found = predictor.values(&view, &mut row)?;
        return written.and_then(|()| printed.evaluation(&found, "")).map_err(CliError::output);
    }
    let mut row = |row: Row| {
        written = printed.row(&if arguments.gate { row } else { Row { gate: None, ..row } });
        goes_on(&written)
    };
    let score = predictor.predict(&view, &mut row)?;
    written.and_then(|()| printed.score(score, "")).map_err(CliError::output)
}

/// Prints what follows a text.
fn follow(arguments: &PredictArguments, predictor: &mut Predictor, text: &str) -> Result<(), CliError> {
    let tokens = predictor.tokens(text).map_err(PredictError::from)?;
    let row = predictor.follow(&tokens)?;
    let row = if arguments.gate { row } else { Row { gate: None, ..row } };
    let out = &mut BufWriter::new(io::stdout().lock());
    let names = Names::new(predictor.names(), Vec::new());
    let mut printed = Predictions::new(out, &arguments.form, names, true);
    printed.row(&row).and_then(|()| printed.score(Score::default(), "")).map_err(CliError::output)
}

/// Answers programs on this device until the user asks to stop.
fn listen(arguments: &PredictArguments, address: &Address) -> Result<(), CliError> {
    if arguments.until_closed {
        end_with_parent().map_err(|error| CliError::system("start a thread that waits", &error))?;
    }
    let origin = match &arguments.model {
        Some(model) => Origin::File(model.clone()),
        None => Origin::Personal(PersonalModels::of(&arguments.of.state.directory()?), arguments.of.run),
    };
    let model = Loaded::new(origin, Processor::for_answers(arguments.int8))
        .map_err(|error| CliError::new(Exit::Local, causes(&error)))?;
    let listener = Listener::bind(address).map_err(|error| {
        CliError::new(Exit::Local, format!("cannot listen at {address}: {error}; is another program there?"))
    })?;
    let address = listener.address().unwrap_or_else(|| address.clone());
    let listener = Arc::new(listener);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::system("start a thread that waits", &error))?;
    let stopped = runtime.block_on(async {
        let mut signals = Signals::new().map_err(|error| CliError::system("receive signals", &error))?;
        terminal::print(&format!("answering at {address}"));
        let serving = tokio::task::spawn_blocking({
            let listener = listener.clone();
            move || listener.serve(model)
        });
        tokio::select! {
            signal = signals.next() => Err(CliError::stopped(signal)),
            ended = serving => match ended {
                Ok(Err(error)) => Err(CliError::new(Exit::Local, format!("cannot answer at {address} any more: {error}"))),
                _ => Err(CliError::new(Exit::Unexpected, "internal error: the answers ended; please report this")),
            },
        }
    });
    listener.close();
    // The thread that accepts waits for the next program, and ends with the process.
    runtime.shutdown_background();
    stopped
}
