//! `aggregator evaluate`: a trained model on a data set.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use shared::data::{Format, Split, View};
use shared::spec::{DataSpec, SAMPLES_KEY};

use super::exit::Failure;
use super::{ConfigArgs, terminal};
use crate::data;
use crate::run::TestSet;

#[derive(Debug, Args)]
pub(super) struct EvaluateArgs {
    /// The model, as a run leaves it
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Directory of samples in any known format; without it the test set of CONFIG
    #[arg(long, value_name = "DIR", conflicts_with_all = ["config", "overrides"])]
    data: Option<PathBuf>,
    /// Test on the training split of the data instead
    #[arg(long)]
    train: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    config: ConfigArgs,
}

/// An error with what caused it, in one line.
fn causes(error: &dyn std::error::Error) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Samples that are looked at together.
const BATCH: usize = 500;

/// What the model's samples are, if its file says so.
fn samples(metadata: &BTreeMap<String, String>) -> Result<Option<DataSpec>, serde_json::Error> {
    metadata.get(SAMPLES_KEY).map(|json| serde_json::from_str(json)).transpose()
}

pub(super) fn evaluate(arguments: &EvaluateArgs) -> Result<(), Failure> {
    let path = &arguments.model;
    let mut file = File::open(path).map_err(|error| Failure::file("open", path, error))?;
    let (architecture, params, metadata) = models::read_model(&mut file)
        .map_err(|error| Failure::file("read the model", path, causes(&error)))?;
    let split = if arguments.train { Split::Train } else { Split::Test };
    let spec = samples(&metadata).map_err(|error| Failure::file("read the model", path, error))?;
    let dataset = match &arguments.data {
        Some(directory) => {
            let reading = DataSpec::reading(spec.as_ref(), architecture.classes);
            Format::detect(directory, split).and_then(|format| format.load(directory, split, &reading))
        }
        None => data::load(&arguments.config.validated()?, split),
    };
    let dataset = dataset.map_err(Failure::environment)?;
    let preparation = spec.map(|spec| spec.preparation).unwrap_or_default();
    let prepared = preparation.shape(dataset.shape()).ok();
    if prepared.as_ref() != Some(&architecture.input) {
        return Err(Failure::Environment(format!(
            "the model {} takes samples of shape {:?}, the data has {:?}: name other data or another model",
            path.display(),
            architecture.input,
            dataset.shape()
        )));
    }
    let tests = TestSet::new(View::whole(Arc::new(dataset)), preparation, BATCH);
    let evaluation = tests.evaluate(&architecture, &params)?;
    if arguments.json {
        let json =
            serde_json::to_string(&evaluation).map_err(|error| Failure::Internal(error.to_string()))?;
        terminal::print(&format!("{json}\n"))
    } else {
        terminal::print(&format!(
            "{}: accuracy {:.2} % ({} of {}), loss {:.4}\n",
            architecture.name,
            100.0 * evaluation.accuracy,
            evaluation.correct,
            evaluation.samples,
            evaluation.loss
        ))
    }
}
