//! `aggregator predict`: what a trained model, or an ensemble of them, says about each sample.

use std::io::{self, BufWriter};
use std::path::Path;

use clap::Args;
use models::{Backend, Network};
use shared::cli::{FormArgs, Names, Predictions};
use shared::data::View;
use shared::prediction::{Row, Score};

use super::exit::Failure;
use super::load_model::{BATCH, ModelArgs, Opened, Usable, no_answer};
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
    #[command(flatten)]
    form: FormArgs,
}

pub(super) fn predict(arguments: &PredictArgs) -> Result<(), Failure> {
    let given = &arguments.given;
    let Opened { usable, view, called, names } = given.open()?;
    let limit = arguments.limit.map_or(view.len(), |limit| view.len().min(limit as usize));
    let view = view.part(&(0..limit as u32).collect::<Vec<_>>());
    let rows = match &usable {
        Usable::Model(architecture, params, _) => {
            let mut network = Network::new(architecture, params, &Backend::cpu())?;
            one(&mut network, &usable, &view, &given.model)?
        }
        Usable::Ensemble(bundle) => {
            let fusion = given.fusion.unwrap_or(bundle.manifest.answering.fusion);
            let preparation = usable.preparation();
            let question =
                Question { view: &view, preparation: &preparation, batch: BATCH, fusions: &[fusion] };
            let mut rows = Vec::with_capacity(view.len());
            bundle.answer(&question, &mut |answers| {
                for (at, fused) in answers.fused.values().flatten().enumerate() {
                    rows.push(Row {
                        sample: rows.len(),
                        class: fused.class() as u32,
                        probabilities: fused.log_probabilities.iter().map(|log| log.exp()).collect(),
                        label: answers.labels.get(at).copied(),
                        gate: None,
                    });
                }
            })?;
            rows
        }
    };
    terminal::written(print(&rows, &called, names, arguments))
}

/// What one model says.
fn one(network: &mut Network, usable: &Usable, view: &View, path: &Path) -> Result<Vec<Row>, Failure> {
    let (preparation, input) = (usable.preparation(), usable.architecture().input.clone());
    let positions: Vec<usize> = (0..view.len()).collect();
    let mut rows = Vec::with_capacity(view.len());
    for chunk in positions.chunks(BATCH) {
        let batch = preparation.batch(view, chunk, &input).map_err(Failure::internal)?;
        let predictions = models::predict(network, &batch)?;
        if predictions.iter().flat_map(|prediction| &prediction.probabilities).any(|share| !share.is_finite())
        {
            return Err(no_answer(path));
        }
        // A text has a prediction for each of its positions.
        let each = predictions.len() / chunk.len();
        rows.extend(predictions.into_iter().enumerate().map(|(at, prediction)| Row {
            sample: chunk[at / each],
            class: prediction.class,
            probabilities: prediction.probabilities.into_iter().map(f64::from).collect(),
            label: batch.y().get(at).copied(),
            gate: None,
        }));
    }
    Ok(rows)
}

fn print(rows: &[Row], called: &str, names: Names, arguments: &PredictArgs) -> io::Result<()> {
    let out = &mut BufWriter::new(io::stdout().lock());
    let mut printed = Predictions::new(out, &arguments.form, names, arguments.limit.is_some());
    let mut score = Score::default();
    for row in rows {
        score.add(row);
        printed.row(row)?;
    }
    printed.score(score, &format!(" of {called}"))
}
