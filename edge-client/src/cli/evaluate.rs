//! `edge-client evaluate`.

use std::io::{self, BufWriter, Write};

use serde_json::json;
use shared::cli::{Processor, counted};
use shared::data::{DataError, ReadOptions, Split, registry};
use shared::personalisation::Scores;

use super::arguments::{EvaluateArguments, PersonalArguments};
use super::error::CliError;
use super::samples::{SampleArguments, or_by};
use crate::evaluate::{Comparison, compare};
use crate::personal::Personal;
use crate::store::PersonalModels;

/// The personal model that the arguments name.
pub(super) fn open(arguments: &PersonalArguments) -> Result<Personal, CliError> {
    Ok(PersonalModels::of(&arguments.state.directory()?).open(arguments.run)?)
}

pub(super) fn run(arguments: &EvaluateArguments) -> Result<(), CliError> {
    let personal = open(&arguments.personal)?;
    let classes = personal.model.architecture.classes;
    let own = &arguments.samples;
    let data = arguments.test.clone().unwrap_or_else(|| own.data.clone());
    let has_none = || -> Result<bool, DataError> {
        let format = registry::detect(&own.data, Split::Train, &ReadOptions::default())?;
        Ok(!format.is_in(&own.data, Split::Test)?)
    };
    let test = if arguments.test.is_none() && !personal.held_out.is_empty() && has_none()? {
        None
    } else {
        let test =
            SampleArguments { data, ..own.clone() }.load(Split::Test, Some(&personal.samples), classes);
        Some(test.map_err(or_by("--test DIR names the folder of the test samples"))?)
    };
    let own = own.load(Split::Train, Some(&personal.samples), classes)?;
    let comparison = compare(&personal, &own, test.as_ref(), &Processor::best())?;
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
        counted(comparison.samples, "test sample")
    )?;
    writeln!(out, "{:14} {:>11} {:>12}", "", "local test", "global test")?;
    for (row, _, scores) in rows(comparison) {
        let percent =
            |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.2} %", 100.0 * share));
        writeln!(out, "{row:14} {:>11} {:>12}", percent(scores.local), percent(scores.global))?;
    }
    writeln!(out, "the global model counts for {:.3} on average", comparison.gate)
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
    writeln!(out, "{line}")
}
