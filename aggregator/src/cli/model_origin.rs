//! Where a model that is exported comes from, as far as the run beside it says.

use std::path::Path;

use super::exit::Failure;
use crate::config::Changed;
use crate::export::hub::{Clients, Tested, Training};
use crate::page::{Found, PageError};
use crate::run::Which;
use crate::run::directory::RunDirectory;
use crate::storage::Disk;

/// Keys whose values are of the machine that trained.
const OF_THE_MACHINE: &str = "model.from.";

/// The training of the model that `given` names: of a run's directory, or of the file in it. `None` of any other model.
pub(super) fn training_of(given: &Path, which: Which) -> Result<Option<Training>, Failure> {
    let (root, which) = if given.is_dir() {
        (given, which)
    } else {
        let root = given.parent().unwrap_or(Path::new(""));
        let directory = RunDirectory::new(root.to_owned());
        let is = |path: &Path| path.file_name() == given.file_name();
        match (is(&directory.model()), is(&directory.best())) {
            (true, _) => (root, Which::Newest),
            (_, true) => (root, Which::Best),
            _ => return Ok(None),
        }
    };
    let directory = RunDirectory::new(root.to_owned());
    match Found::read(&Disk, &directory, false) {
        Ok(found) => Ok(Some(training(&found, &directory, which))),
        Err(PageError::NoRun(_)) => Ok(None),
        Err(error) => Err(Failure::environment(error)),
    }
}

fn training(found: &Found, directory: &RunDirectory, which: Which) -> Training {
    let (config, summary) = (&found.config, found.summary());
    let records = &found.rounds.records;
    let last =
        records.iter().rev().find(|round| !round.closing && !round.void).map_or(0, |round| round.round);
    let round = match which {
        Which::Best => summary.best.map_or(last, |(_, round)| round),
        Which::Newest => last,
    };
    let by_class = found.by_class(round).map(|model| (model.evaluation, model.found.clone()));
    let tested = records
        .iter()
        .find(|of| of.round == round && !of.closing)
        .filter(|of| of.accuracy.or(of.loss).is_some())
        .map(|of| Tested { accuracy: of.accuracy, loss: of.loss, measures: of.measures(), by_class });
    let origin = found.about.as_ref().map(|about| &about.origin);
    let simulated = !directory.presence().is_file();
    // Rounds whose records are lost were published as well.
    let trained = records.iter().filter(|record| !record.closing).map(|record| record.round).max();
    let changed = Changed::of(&config.effective).into_iter();
    Training {
        run: directory.name().into_owned(),
        algorithm: config.spec.algorithm.name.clone(),
        data: config.data.set.to_string(),
        clients: Clients {
            count: config.effective.data.clients,
            simulated,
            // Such numbers are not behind the noise.
            samples: found.samples_by_class().filter(|_| config.promise.is_none()),
        },
        round,
        begun: origin.map(|origin| origin.begun.clone()).filter(|begun| !begun.is_empty()),
        version: origin.and_then(|origin| Some(origin.processes.first()?.version.clone())),
        changed: changed
            .filter(|changed| !changed.key.starts_with(OF_THE_MACHINE))
            .map(|changed| (changed.key, changed.value.to_string()))
            .collect(),
        privacy: config.privacy_after(trained.unwrap_or_default()),
        hidden_among: Some(config.spec.secure)
            .filter(|secure| secure.enabled && !simulated)
            .map(|secure| secure.min_devices),
        sent: Some((summary.arrivals.accepted, summary.bytes_up)).filter(|_| config.promise.is_none()),
        tested,
    }
}
