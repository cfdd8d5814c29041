//! `aggregator predict`: what a trained model, or an ensemble of them, says about each sample of a data set.

use clap::Args;
use models::{Backend, Network};
use serde_json::json;
use shared::algorithm::Fusion;
use shared::data::View;
use std::fmt::Write as _;

use super::exit::Failure;
use super::load_model::{BATCH, ModelArgs, Usable};
use super::parse::whole;
use super::terminal;
use crate::ensemble::Question;

#[derive(Debug, Args)]
pub(super) struct PredictArgs {
    #[command(flatten)]
    given: ModelArgs,
    /// Predict this many samples, from the first [default: all, of which a table shows 20]
    #[arg(long, value_name = "N", value_parser = whole::<u32>(1..=u32::MAX.into()), allow_negative_numbers = true)]
    limit: Option<u32>,
    /// Print one JSON object per sample, and the accuracy as the last one
    #[arg(long)]
    json: bool,
}

/// Rows of the table if no limit is given.
const TABLE_ROWS: usize = 20;

/// What is said about one sample.
struct Row {
    class: usize,
    probability: f64,
    label: u32,
}

pub(super) fn predict(arguments: &PredictArgs) -> Result<(), Failure> {
    let given = &arguments.given;
    let (usable, view, called) = given.open()?;
    let limit = arguments.limit.map_or(view.len(), |limit| view.len().min(limit as usize));
    let view = view.part(&(0..limit as u32).collect::<Vec<_>>());
    let rows = match &usable {
        Usable::Model(architecture, params, _) => {
            if architecture.predictions().is_ok_and(|each| each != 1) {
                return Err(Failure::Usage(format!(
                    "{} predicts at every position of a text; `edge-client predict` shows that",
                    given.model.display()
                )));
            }
            let mut network = Network::new(architecture, params, &Backend::cpu())?;
            one(&mut network, &usable, &view)?
        }
        Usable::Ensemble(bundle) => {
            let fusion = given.fusion.map_or(bundle.manifest.answering.fusion, Fusion::from);
            let preparation = usable.preparation();
            let question =
                Question { view: &view, preparation: &preparation, batch: BATCH, fusions: &[fusion] };
            let mut rows = Vec::with_capacity(view.len());
            bundle.answer(&question, &mut |answers| {
                for (fused, &label) in answers.fused.values().flatten().zip(answers.labels) {
                    let class = fused.class();
                    rows.push(Row { class, probability: fused.log_probabilities[class].exp(), label });
                }
            })?;
            rows
        }
    };
    let whole = arguments.json || arguments.limit.is_some();
    print(&rows, if whole { rows.len() } else { TABLE_ROWS }, &called, arguments.json)
}

/// What one model says.
fn one(network: &mut Network, usable: &Usable, view: &View) -> Result<Vec<Row>, Failure> {
    let (preparation, input) = (usable.preparation(), usable.architecture().input.clone());
    let positions: Vec<usize> = (0..view.len()).collect();
    let mut rows = Vec::with_capacity(view.len());
    for chunk in positions.chunks(BATCH) {
        let batch = preparation.batch(view, chunk, &input).map_err(Failure::internal)?;
        let predictions = models::predict(network, &batch)?;
        rows.extend(predictions.iter().zip(batch.y()).map(|(prediction, &label)| {
            let class = prediction.class as usize;
            Row { class, probability: f64::from(prediction.probabilities[class]), label }
        }));
    }
    Ok(rows)
}

fn print(rows: &[Row], shown: usize, called: &str, as_json: bool) -> Result<(), Failure> {
    let correct = rows.iter().filter(|row| row.class == row.label as usize).count();
    let accuracy = if rows.is_empty() { 0.0 } else { correct as f64 / rows.len() as f64 };
    let mut text = String::new();
    if !as_json {
        text.push_str("  sample  class  probability  label\n");
    }
    for (sample, Row { class, probability, label }) in rows.iter().enumerate().take(shown) {
        let _ = if as_json {
            let row = json!({ "event": "prediction", "sample": sample, "class": class, "probability": probability,
                              "label": label });
            writeln!(text, "{row}")
        } else {
            let mark = if *class == *label as usize { "" } else { "  wrong" };
            writeln!(text, "{sample:>8} {class:>6} {probability:>12.4} {label:>6}{mark}")
        };
    }
    let samples = rows.len();
    let _ = if as_json {
        let all =
            json!({ "event": "accuracy", "samples": samples, "correct": correct, "accuracy": accuracy });
        writeln!(text, "{all}")
    } else {
        if samples > shown {
            let _ = writeln!(text, "... and {} more; --limit N or --json shows more", samples - shown);
        }
        writeln!(text, "accuracy {:.2} % ({correct} of {samples} samples of {called})", 100.0 * accuracy)
    };
    terminal::print(&text)
}
