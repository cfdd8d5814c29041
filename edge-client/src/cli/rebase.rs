//! `edge-client rebase`.

use std::io::{self, Write};

use serde_json::json;

use super::arguments::RebaseArguments;
use super::error::CliError;
use crate::predict::{GlobalModel, PredictError, interchangeable};
use crate::store::{DiskStore, PersonalModels};

pub(super) fn run(arguments: &RebaseArguments) -> Result<(), CliError> {
    let state = arguments.personal.state.directory()?;
    let models = PersonalModels::of(&state);
    // Fails before an absent state directory would be created.
    models.open(arguments.personal.run)?;
    let GlobalModel { architecture, params, samples } = GlobalModel::open(&arguments.model)?;
    // The lock keeps away a client in a run, which replaces personal models too.
    let _lock = DiskStore::open(&state)?;
    let mut personal = models.open(arguments.personal.run)?;
    if let Some(samples) = &samples {
        interchangeable(&personal.samples, samples)?;
    }
    personal.model.refresh(&architecture, params).map_err(PredictError::Misfit)?;
    models.save(personal.run, &personal.to_bytes())?;
    let (run, path) = (personal.run.to_string(), models.path(personal.run));
    let line = if arguments.json {
        json!({ "event": "refreshed", "run": run, "path": path }).to_string()
    } else {
        format!("the personal model {} uses the new global model", path.display())
    };
    writeln!(io::stdout(), "{line}").map_err(CliError::output)
}
