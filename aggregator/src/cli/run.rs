//! What `simulate` and `serve` share: starting a run, and its model and report at the end.

use std::path::PathBuf;
use std::sync::Arc;

use tracing::warn;

use shared::data::View;

use super::exit::Failure;
use super::export::leave_folder;
use super::from::begun_from;
use super::page::RunPage;
use super::terminal::StopRequest;
use super::{ConfigArgs, RunArgs, terminal};
use crate::config::Config;
use crate::config::excerpt::{Difference, in_words};
use crate::coordinator::Outcome;
use crate::data::TestSet;
use crate::events::sinks::json_log;
use crate::report::{Summary, console, own_tests};
use crate::round::stopping;
use crate::run::Run;
use crate::start::{StartError, Started, start_on};
use crate::storage::FileLayer;
use crate::tensorboard::TensorBoard;

impl ConfigArgs {
    /// The configuration, of a run that has no identity yet.
    pub(super) fn validated(&self) -> Result<Config, Failure> {
        let none = shared::id::RunId::from_bytes([0; 8]);
        let config = Config::read(self.config.as_deref(), &self.overrides, none)?;
        config.renamed.iter().for_each(|renamed| warn!("{renamed}"));
        Ok(config)
    }
}

impl RunArgs {
    /// Begins or continues the run, and says which; `prepare` as [`start_on`] has it.
    pub(super) fn start<T>(
        &self,
        config: Config,
        files: Arc<dyn FileLayer>,
        prepare: impl FnOnce(&Config) -> Result<T, StartError>,
    ) -> Result<(Started, T), Failure> {
        let (started, prepared) = start_on(files, config, &self.runs, self.fresh, prepare)?;
        json_log::name_run(&started.run.spec().name, started.run.directory().root());
        let origin = begun_from(&started);
        let place = started.run.directory().root().display();
        let closed = started.run.closed();
        started.passed.iter().chain(started.run.warnings()).for_each(|text| terminal::tell(text));
        terminal::tell(&if started.continued {
            let changed = in_words(&started.changed);
            let changed = if changed.is_empty() { changed } else { format!(" with {changed}") };
            let begun = origin.map_or_else(String::new, |origin| format!(", which began {origin},"));
            format!("continuing {place}{begun} after round {closed}{changed} (--fresh begins a new run)")
        } else {
            let origin = origin.map_or_else(String::new, |origin| format!(" {origin}"));
            format!("new run in {place}{origin}{}", against(started.differs.as_ref()))
        });
        if let Some(planned) = started.run.planned_privacy() {
            terminal::tell(&format!("private: {planned}"));
        }
        Ok((started, prepared))
    }
}

/// In which keys a run differs from another one, as far as a line holds them.
fn against(differs: Option<&(PathBuf, Vec<Difference>)>) -> String {
    /// Keys that are told.
    const TOLD: usize = 4;
    let Some((other, changed)) = differs else { return String::new() };
    let (told, more) = changed.split_at(changed.len().min(TOLD));
    let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
    format!(" ({}{more}, against {})", in_words(told), other.display())
}

/// Tells which samples were skipped when data were read, and gives the same for the report.
pub(super) fn report_skipped(shares: &[View], run: &Run) -> Vec<String> {
    let skipped = crate::data::left_out(shares, run.tests.as_ref().map(TestSet::skipped));
    for what in &skipped {
        terminal::tell(&format!("left out, since they cannot be used: {what}"));
    }
    skipped
}

/// Writes the model and the report, and says how the run went. `skipped` is known at the end alone.
pub(super) fn conclude(
    run: &mut Run,
    outcome: &Outcome,
    page: RunPage,
    skipped: Vec<String>,
    stop: &StopRequest,
    json: bool,
) -> Result<(), Failure> {
    let written = run.write_model().map_err(Failure::from);
    let (model, path) = match written {
        Ok(model) => {
            let report = page.conclude(run, outcome, skipped)?;
            // The run is whole without it.
            if let Err(failure) = leave_folder(run) {
                warn!("{} is not written: {failure}", run.directory().folder_of_hub().display());
            }
            (model, report)
        }
        Err(failure) => {
            page.failed(&failure);
            return Err(failure);
        }
    };
    if !json {
        let summary = console::summary(&Summary::of(run.records(), None));
        let own = own_tests::text(run.records()).unwrap_or_default();
        let best = run.best().filter(|_| run.directory().best().exists());
        let best = best.map_or_else(String::new, |best| {
            format!("best    {} (round {})\n", run.directory().best().display(), best.round)
        });
        let privacy = run.privacy().map_or_else(String::new, |privacy| format!("privacy {privacy}\n"));
        terminal::print(&format!(
            "{summary}{own}\n{privacy}model   {}\n{best}report  {}\n",
            model.display(),
            path.display()
        ))?;
    }
    let planned = stopping::planned(run.records(), run.spec().rounds);
    match (outcome, run.early_end()) {
        (Outcome::Stopped, _) => terminal::tell(&format!(
            "stopped after round {} of {planned}: the same command continues the run",
            run.closed()
        )),
        (Outcome::Completed, Some(early)) => terminal::tell(&format!(
            "training ended after round {} of {}: {}",
            run.last_trained(),
            run.config().effective.run.rounds.map_or(planned, |asked| asked.max(planned)),
            early.reason()
        )),
        _ => {}
    }
    let failure = match outcome {
        Outcome::Stopped => stop.failure(),
        outcome => Failure::of_outcome(outcome),
    };
    failure.map_or(Ok(()), Err)
}

/// The event file for TensorBoard, if it is asked for.
pub(super) fn tensorboard(given: &RunArgs, run: &Run) -> Result<Option<TensorBoard>, Failure> {
    if !given.tensorboard {
        return Ok(None);
    }
    let begun = TensorBoard::begin(run.directory(), run.config(), &run.written_records()?);
    begun.map(Some).map_err(|(path, error)| Failure::file("write", &path, error))
}

pub(super) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::environment)
}
