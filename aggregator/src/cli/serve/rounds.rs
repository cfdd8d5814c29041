//! The rounds of a run that is served, from its first to its model and report: with history, page and sinks.

use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;

use models::Backend;
use tokio::runtime::Runtime;

use super::super::exit::Failure;
use super::super::history::{History, Sinks};
use super::super::page::RunPage;
use super::super::run::{conclude, report_skipped, tensorboard};
use super::super::terminal::StopRequest;
use super::{ServeArgs, open_log, skipped_by_devices};
use crate::coordinator::Resume;
use crate::database::Database;
use crate::events::Sink;
use crate::events::sinks::systemd::Service;
use crate::events::sinks::terminal::Terminal;
use crate::history::LoadOf;
use crate::page::devices::KnownDevices;
use crate::run::{LeavesError, Run, RunError};
use crate::serve::{ServeError, Served, Shutdown};
use crate::start::Started;
use crate::storage::retry_full::FullDisk;

/// What rounds are served with.
pub(super) struct Hosting<'a> {
    pub(super) arguments: &'a ServeArgs,
    pub(super) runtime: &'a Runtime,
    pub(super) database: &'a Database,
    /// The directory of the server's identity.
    pub(super) directory: &'a Path,
    pub(super) backend: Backend,
    /// Where devices connect.
    pub(super) address: SocketAddr,
    pub(super) load: LoadOf,
    pub(super) shortage: &'a FullDisk,
    pub(super) stop: &'a StopRequest,
}

/// How the rounds of this process have ended.
pub(super) enum Rounds {
    /// The run is over, or was stopped.
    Over(Box<Over>),
    /// It goes on, here or in another process.
    GoOn(LeavesError),
}

/// A run whose model and report are written.
pub(super) struct Over {
    #[cfg_attr(
        not(feature = "cluster"),
        expect(dead_code, reason = "several servers have it put into their store")
    )]
    pub(super) run: Run,
    pub(super) shutdown: Shutdown,
    /// How the command ends.
    pub(super) concluded: Result<(), Failure>,
    /// Held for as long as its folder is worked on.
    pub(super) lock: File,
}

/// Serves the rounds of a run, with `serving`, to its model and its report.
pub(super) fn rounds(
    hosting: Hosting<'_>,
    started: Started,
    serving: impl FnOnce(Run, Resume, &mut dyn Sink) -> Result<Served, ServeError>,
) -> Result<Rounds, Failure> {
    let Hosting { arguments, runtime, database, directory, backend, address, load, shortage, stop } = hosting;
    let given = &arguments.run;
    let inside = runtime.enter();
    let (mut run, mut resume, lock) = started.into_parts();
    run.backend = backend;
    let mut event_log = arguments.event_log.as_deref().map(open_log).transpose()?;
    let mut history = History::begin(database, &mut run, &mut resume, load)?;
    history.note_address(address)?;
    let skipped = report_skipped(&[], &run);
    let tests = run.tests.as_ref().map(|tests| ("test", tests.view().dataset().clone()));
    let register = KnownDevices { directory: directory.to_owned(), run: run.spec().run };
    let mut page = RunPage::begin(&run, Some(register), None, skipped, tests.into_iter().collect())?;
    // From now on an operator watches, until the run is to stop: a full disk is waited for.
    shortage.wait_from_now_on();
    let (stopped, waiting) = (stop.stopped.clone(), shortage.clone());
    tokio::spawn(async move { waiting.give_up_when(stopped).await });
    drop(inside);
    let planned = run.spec().rounds.saturating_add(resume.failed);
    let mut display =
        Terminal::new(planned, resume.closed, given.json, true).expecting(run.config().data.clients);
    let mut tensorboard = tensorboard(given, &run)?;
    let mut systemd = Service::of_environment();
    let mut sinks: Vec<&mut dyn Sink> = vec![&mut systemd, &mut history.recorder, page.sink(), &mut display];
    sinks.extend(tensorboard.as_mut().map(|file| file as &mut dyn Sink));
    sinks.extend(event_log.as_mut().map(|log| log as &mut dyn Sink));
    let mut sink = Sinks { all: sinks, health: history.health.clone(), shortage: shortage.clone() };
    let served = serving(run, resume, &mut sink);
    shortage.give_up();
    // Held until model and report are written.
    let presence = history.finish(served.as_ref().ok().map(|served| &served.outcome));
    let Served { mut run, outcome, shutdown } = match served {
        Ok(served) => served,
        Err(ServeError::Run(RunError::Leaves(left))) if left.goes_on() => {
            page.left();
            return Ok(Rounds::GoOn(left));
        }
        Err(error) => {
            let failure = match error {
                ServeError::Run(error) => error.into(),
                error @ ServeError::ReadyFile { .. } => Failure::environment(error),
            };
            page.failed(&failure);
            return Err(failure);
        }
    };
    let shown = display.finish().map_err(|error| Failure::output(&error));
    let skipped = skipped_by_devices(database, &run);
    let concluded = conclude(&mut run, &outcome, page, skipped, stop, given.json);
    drop(presence);
    Ok(Rounds::Over(Box::new(Over { run, shutdown, concluded: concluded.and(shown), lock })))
}
