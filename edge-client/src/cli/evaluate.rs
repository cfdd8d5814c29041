//! `edge-client evaluate`.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::path::Path;

use models::PerClass;
use serde_json::json;
use shared::cli::{
    ByLabel, Names, Processor, by_class_json, by_class_text, counted, evaluation_json, evaluation_text,
};
use shared::data::{DataError, ReadOptions, Split, registry};
use shared::personalisation::{Personal, Scores};

use super::arguments::{EvaluateArguments, PersonalArguments};
use super::error::CliError;
use super::samples::{SampleArguments, or_by};
use crate::evaluate::{Comparison, compare};
use crate::predict::Predictor;
use crate::store::PersonalModels;

/// Columns of the tables: those of a terminal that has not been widened.
const COLUMNS: usize = 80;

/// The personal model that the arguments name.
pub(super) fn open(arguments: &PersonalArguments) -> Result<Personal, CliError> {
    Ok(PersonalModels::of(&arguments.state.directory()?).open(arguments.run)?)
}

pub(super) fn run(arguments: &EvaluateArguments) -> Result<(), CliError> {
    if let Some(model) = &arguments.model {
        return of_model(model, arguments);
    }
    let personal = open(&arguments.personal)?;
    let model = &personal.model.architecture;
    let own = &arguments.samples;
    let data = arguments.test.clone().unwrap_or_else(|| own.data.clone());
    let has_none = || -> Result<bool, DataError> {
        let format = registry::detect(&own.data, Split::Train, &ReadOptions::default())?;
        Ok(!format.is_in(&own.data, Split::Test)?)
    };
    let test = if arguments.test.is_none() && !personal.held_out.is_empty() && has_none()? {
        None
    } else {
        let test = SampleArguments { data, ..own.clone() }.load(Split::Test, Some(&personal.samples), model);
        Some(test.map_err(or_by("--test DIR names the folder of the test samples"))?)
    };
    let own = own.load(Split::Train, Some(&personal.samples), model)?;
    let comparison = compare(&personal, &own, test.as_ref(), &Processor::for_answers(arguments.int8))?;
    let out = &mut BufWriter::new(io::stdout().lock());
    let written = if arguments.json {
        write_json(&personal, &comparison, out)
    } else {
        write_table(&personal, &comparison, out)
    };
    written.and_then(|()| out.flush()).map_err(CliError::output)
}

fn rows(comparison: &Comparison) -> [(&'static str, &'static str, Scores); 3] {
    let Comparison { global, local, mixture, .. } = *comparison;
    [("global model", "global", global), ("local expert", "local", local), ("mixture", "mixture", mixture)]
}

fn write_table(personal: &Personal, comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let (method, name, round) = (personal.model.method.name(), &personal.name, personal.round);
    writeln!(
        out,
        "{method}, made in round {round} of {name}; {}",
        counted(comparison.samples as usize, "test sample")
    )?;
    writeln!(out, "{:14} {:>11} {:>12}", "", "local test", "global test")?;
    for (row, _, scores) in rows(comparison) {
        let percent =
            |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.2} %", 100.0 * share));
        writeln!(out, "{row:14} {:>11} {:>12}", percent(scores.local), percent(scores.global))?;
    }
    writeln!(out, "the global model counts for {:.3} on average", comparison.gate)?;
    let names = Names::new(personal.samples.class_names.clone(), Vec::new());
    write!(out, "\nthe mixture by class: {}", by_class_text(&comparison.by_class, &names, COLUMNS))
}

fn write_json(personal: &Personal, comparison: &Comparison, out: &mut dyn Write) -> io::Result<()> {
    let mut line = json!({
        "event": "evaluation",
        "run": personal.run.to_string(),
        "round": personal.round,
        "method": personal.model.method.name(),
        "samples": comparison.samples,
        "gate": comparison.gate,
    });
    for (_, key, scores) in rows(comparison) {
        line[key] = json!({ "local-test": scores.local, "global-test": scores.global });
    }
    let names = Names::new(personal.samples.class_names.clone(), Vec::new());
    line["by-class"] = by_class_json(&comparison.by_class, &names);
    writeln!(out, "{line}")
}

/// Tests a model that is no personal one.
fn of_model(model: &Path, arguments: &EvaluateArguments) -> Result<(), CliError> {
    let mut predictor = Predictor::open(model, &Processor::for_answers(arguments.int8))?;
    let classes = predictor.architecture().classes;
    let split = arguments.split.unwrap_or(Split::Test);
    let data = arguments.test.clone().unwrap_or_else(|| arguments.samples.data.clone());
    let samples = SampleArguments { data, ..arguments.samples.clone() };
    let view =
        samples.load(split, predictor.samples(), predictor.architecture()).map_err(or_by(match split {
            Split::Test => "--split train uses these",
            Split::Train => "--split test uses these",
        }))?;
    let name = predictor.architecture().name.clone();
    let out = &mut BufWriter::new(io::stdout().lock());
    if !predictor.architecture().task.is_classification() {
        let mut by_label = ByLabel::default();
        let found = predictor.values(&view, &mut |row| {
            by_label.count(&row);
            ControlFlow::Continue(())
        })?;
        let names = Names::new(predictor.class_names(), Vec::new());
        let written = if arguments.json {
            let mut line = evaluation_json(&found);
            (line["event"], line["model"], line["split"]) =
                ("evaluation".into(), json!(model), split.name().into());
            if !by_label.is_empty() {
                line["by-label"] = by_label.json(&names);
            }
            writeln!(out, "{line}")
        } else {
            writeln!(out, "{name} on the {} split: {}", split.name(), evaluation_text(&found))
                .and_then(|()| write!(out, "{}", by_label.text(&names)))
        };
        return written.and_then(|()| out.flush()).map_err(CliError::output);
    }
    let names = Names::new(predictor.class_names(), Vec::new());
    let mut by_class = PerClass::new(classes);
    let score = predictor.predict(&view, &mut |row| {
        if let Some(label) = row.label {
            by_class.count(label, row.class, row.probability());
        }
        ControlFlow::Continue(())
    })?;
    let written = if arguments.json {
        let line = json!({
            "event": "evaluation", "model": model, "split": split.name(), "samples": score.samples,
            "correct": score.correct, "accuracy": score.accuracy(), "by-class": by_class_json(&by_class, &names),
        });
        writeln!(out, "{line}")
    } else {
        let percent = 100.0 * score.accuracy();
        let (correct, samples) = (score.correct, score.samples);
        writeln!(
            out,
            "{name} on the {} split: accuracy {percent:.2} % ({correct} of {samples})",
            split.name()
        )
        .and_then(|()| write!(out, "{}", by_class_text(&by_class, &names, COLUMNS)))
    };
    written.and_then(|()| out.flush()).map_err(CliError::output)
}
