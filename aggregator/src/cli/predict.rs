//! `aggregator predict`: what a trained model, or an ensemble of them, says about each sample of a data set.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use models::{Backend, Batch, Network};
use serde_json::json;
use shared::algorithm::Fusion;
use shared::data::{Split, View};

use super::exit::Failure;
use super::load_model::{BATCH, FusionName, Usable, no_fusion};
use super::parse::whole;
use super::{ConfigArgs, terminal};
use crate::ensemble::Question;

#[derive(Debug, Args)]
pub(super) struct PredictArgs {
    /// The model or the ensemble, as a run leaves it
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Directory of samples in any known format; without it the test set of CONFIG, or without that of the model's run
    ///
    /// The configuration of the run lies beside the model; where it does not, the built-in glyphs are taken.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["config", "overrides"])]
    data: Option<PathBuf>,
    /// Predict the training split of the data instead
    #[arg(long)]
    train: bool,
    /// How the members of an ensemble become one answer [default: as its run says]
    #[arg(long, value_enum, value_name = "FUSION")]
    fusion: Option<FusionName>,
    /// Predict this many samples, from the first [default: all, of which a table shows 20]
    #[arg(
        long, value_name = "N",
        value_parser = whole::<u32>(1..=u32::MAX.into()), allow_negative_numbers = true
    )]
    limit: Option<u32>,
    /// Print one JSON object per sample, and the accuracy as the last one
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
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
    let path = &arguments.model;
    let usable = Usable::open(path)?;
    let split = if arguments.train { Split::Train } else { Split::Test };
    let (view, called) = usable.load(path, arguments.data.as_ref(), &arguments.config, split)?;
    let limit = arguments.limit.map_or(view.len(), |limit| view.len().min(limit as usize));
    let view = view.part(&(0..limit as u32).collect::<Vec<_>>());
    let rows = match &usable {
        Usable::Model(..) if arguments.fusion.is_some() => return Err(no_fusion(path)),
        Usable::Model(architecture, params, _) => {
            if architecture.predictions().is_ok_and(|each| each != 1) {
                return Err(Failure::Usage(format!(
                    "{} predicts at every position of a text; `edge-client predict` shows that",
                    path.display()
                )));
            }
            let mut network = Network::new(architecture, params, &Backend::cpu())?;
            one(&mut network, &usable, &view)?
        }
        Usable::Ensemble(bundle) => {
            let fusion = arguments.fusion.map_or(bundle.manifest().answering.fusion, Fusion::from);
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
    let (mut x, mut y) = (Vec::new(), Vec::new());
    let mut rows = Vec::with_capacity(view.len());
    for chunk in positions.chunks(BATCH) {
        preparation.evaluation(view, chunk, &mut x, &mut y);
        let shape = [&[chunk.len()], &input[..]].concat();
        let batch = Batch::new(x, shape, y).map_err(Failure::internal)?;
        let predictions = models::predict(network, &batch)?;
        rows.extend(predictions.iter().zip(batch.y()).map(|(prediction, &label)| {
            let class = prediction.class as usize;
            Row { class, probability: f64::from(prediction.probabilities[class]), label }
        }));
        (x, y) = batch.into_buffers();
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
