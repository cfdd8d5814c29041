//! The page of a run that this process works on, from its beginning to its end.

use std::path::PathBuf;
use std::sync::Arc;

use shared::data::Dataset;
use tracing::warn;

use super::exit::{Failure, without_updates};
use crate::coordinator::Outcome;
use crate::events::Sink;
use crate::page::about::About;
use crate::page::by_class;
use crate::page::devices::KnownDevices;
use crate::page::live::LivePage;
use crate::page::{Found, PageError, ending};
use crate::report::standing::Standing;
use crate::report::{Report, render};
use crate::run::Run;
use crate::run::directory::RunDirectory;
use crate::storage::unsynced::Unsynced;
use crate::storage::{Disk, FileLayer, write_durably};

/// Samples per class, by client.
pub(super) type Histograms = Vec<(String, Vec<usize>)>;

impl From<PageError> for Failure {
    fn from(error: PageError) -> Self {
        match error {
            PageError::Run(error) => error.into(),
            error @ PageError::NoRun(_) => Self::environment(error),
        }
    }
}

/// Writes the page of a run: while it goes on, and when it ends.
pub(super) struct RunPage {
    directory: RunDirectory,
    /// Where the devices are known, if the clients are devices.
    register: Option<KnownDevices>,
    live: LivePage,
}

impl RunPage {
    /// Writes down what the page says beside configuration and rounds. Takes the digests of `data` meanwhile.
    pub(super) fn begin(
        run: &Run,
        register: Option<KnownDevices>,
        histograms: Option<Histograms>,
        skipped: Vec<String>,
        data: Vec<(&'static str, Arc<Dataset>)>,
    ) -> Result<Self, Failure> {
        let (files, directory) = (run.files(), run.directory().clone());
        ending::forget(&*files, &directory)?;
        let mut about = About::begin(&*files, &directory, histograms, skipped);
        about.write(&*files, &directory)?;
        let place = directory.clone();
        let digest = move || {
            let data: Vec<_> = data.iter().map(|(split, data)| (*split, &**data)).collect();
            about.digest(&data);
            if let Err(error) = about.write(&Unsynced, &place) {
                warn!("the report does without the digests of the data: {error}");
            }
        };
        let (known, place) = (register.clone(), directory.clone());
        let refresh = move || note(known.as_ref(), &Unsynced, &place);
        let live = LivePage::start(directory.clone(), digest, refresh).map_err(Failure::environment)?;
        Ok(Self { directory, register, live })
    }

    /// What receives the notices of the run.
    pub(super) fn sink(&mut self) -> &mut dyn Sink {
        &mut self.live
    }

    /// The last page of a run that has ended so, whose model is written. `skipped` is known at the end alone.
    pub(super) fn conclude(
        self,
        run: &Run,
        outcome: &Outcome,
        skipped: Vec<String>,
    ) -> Result<PathBuf, Failure> {
        let Self { directory, register, live } = self;
        live.finish();
        let files = run.files();
        note(register.as_ref(), &*files, &directory);
        // Who stops a run does not wait for a test.
        if *outcome == Outcome::Completed
            && let Err(error) = by_class::note(run)
        {
            warn!("the report has no results by class: {error}");
        }
        if !skipped.is_empty()
            && let Some(mut about) = About::read(&*files, &directory)
        {
            about.left_out.extend(skipped);
            if let Err(error) = about.write(&*files, &directory) {
                warn!("the page does not say what devices leave out: {error}");
            }
        }
        let standing = match (outcome, Failure::of_outcome(outcome)) {
            // The page of a private run names no device, and devices are named in what they said.
            (Outcome::NoProgress { rounds, .. }, _) if run.config().promise.is_some() => {
                Standing::Failed { reason: without_updates(*rounds) }
            }
            (_, Some(failure)) => Standing::Failed { reason: failure.to_string() },
            (Outcome::Stopped, None) => Standing::Stopped,
            (_, None) => Standing::Complete { early: run.early_end() },
        };
        if let Err(error) = ending::note(&*files, &directory, &standing) {
            warn!("how the run ended is not noted: {error}");
        }
        let page = match Found::read(&*files, &directory, true) {
            Ok(found) => found.page(),
            // The run is over all the same.
            Err(error) => {
                warn!("the page is made of what this process knows: {error}");
                render(&Report {
                    name: &directory.name(),
                    config: run.config(),
                    rounds: run.records(),
                    histograms: None,
                    left_out: &[],
                    target: None,
                    standing: &standing,
                    ended: None,
                    origin: None,
                    devices: None,
                    by_class: &[],
                })
            }
        };
        // Unless it was stopped there is nothing to continue, also if no round succeeded.
        Ok(run.write_report(&page, *outcome != Outcome::Stopped)?)
    }

    /// The run goes on elsewhere: nothing more is written here.
    pub(super) fn left(self) {
        let Self { directory, register, live } = self;
        live.finish();
        note(register.as_ref(), &Disk, &directory);
        if let Err(error) = ending::note(&Disk, &directory, &Standing::Stopped) {
            warn!("how the run was left is not noted: {error}");
        }
    }

    /// The last page of a run that cannot go on. Where that cannot be written, the failure is told all the same.
    pub(super) fn failed(self, failure: &Failure) {
        let Self { directory, register, live } = self;
        live.finish();
        note(register.as_ref(), &Disk, &directory);
        let standing = Standing::Failed { reason: failure.to_string() };
        let write = || -> Result<(), Failure> {
            ending::note(&Disk, &directory, &standing)?;
            let page = Found::read(&Disk, &directory, true)?.page();
            let path = directory.report();
            write_durably(&Disk, &path, |out| out.write_all(page.as_bytes()))
                .map_err(|error| Failure::file("write", &path, error))
        };
        if let Err(error) = write() {
            warn!("the report does not say why the run failed: {error}");
        }
    }
}

/// Writes down what the devices have done. A page without it is as good as there is.
fn note(register: Option<&KnownDevices>, files: &dyn FileLayer, directory: &RunDirectory) {
    if let Some(Err(error)) = register.map(|register| register.note(files, directory)) {
        warn!("the report does not say what devices did last: {error}");
    }
}
