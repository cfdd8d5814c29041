//! The record of a served run in the database, and the sinks of its notices.

use std::net::SocketAddr;
use std::path::Path;
use std::time::SystemTime;

use super::exit::Failure;
use super::terminal;
use crate::control::forget_stop;
use crate::coordinator::{Outcome, Resume};
use crate::database::Database;
use crate::events::{Notice, Sink};
use crate::history::{self, Health, LoadOf, Recorder, RoundLog, RoundLogError, RunLock};
use crate::peer::Request;
use crate::run::Run;
use crate::storage::retry_full::{FullDisk, SpaceChange};

impl From<RoundLogError> for Failure {
    fn from(error: RoundLogError) -> Self {
        match error {
            RoundLogError::Database(error) => Self::environment(error),
            RoundLogError::Run(error) => error.into(),
        }
    }
}

/// What keeps the record while the run is served.
pub(super) struct History {
    pub(super) recorder: Recorder,
    pub(super) health: Health,
    presence: RunLock,
}

impl History {
    /// Enters the run and the rounds that an earlier process did not enter, and has `run` enter those that it closes.
    pub(super) fn begin(
        database: &Database,
        run: &mut Run,
        resume: &mut Resume,
        load: LoadOf,
    ) -> Result<Self, Failure> {
        forget_stop(run.directory())
            .map_err(|error| Failure::file("delete requests in", &run.directory().state(), error))?;
        let presence = RunLock::of(run.directory())
            .map_err(|error| Failure::file("lock", &run.directory().presence(), error))?;
        let health = Health::default();
        restore_rounds(database, run, resume)?;
        let mut log = RoundLog::begin(database.clone(), run, resume, health.clone(), SystemTime::now())?;
        run.on_closed(move |round| log.enter(round));
        let recorder = Recorder::start(database.clone(), run.spec().run, health.clone(), load);
        Ok(Self { recorder, health, presence })
    }

    /// Records where the run is served.
    pub(super) fn note_address(&self, address: SocketAddr) -> Result<(), Failure> {
        self.presence
            .note_address(address)
            .map_err(|error| Failure::file("write", Path::new("the run's lock"), error))
    }

    /// Records how the run ended; `None` if it failed. Others see the run as served until what is given back is dropped.
    pub(super) fn finish(self, outcome: Option<&Outcome>) -> RunLock {
        self.recorder.finish(match outcome {
            Some(Outcome::Completed) => "completed",
            Some(Outcome::Stopped) => "stopped",
            Some(Outcome::NoProgress { .. }) => "fruitless",
            None => "failed",
        });
        self.presence
    }
}

/// The sinks of a served run. They also receive what the threads that write report of the disk and the database.
pub(super) struct Sinks<'s> {
    pub(super) all: Vec<&'s mut dyn Sink>,
    pub(super) health: Health,
    pub(super) shortage: FullDisk,
}

impl Sink for Sinks<'_> {
    fn receive(&mut self, notice: &Notice<'_>) {
        self.all.receive(notice);
        if matches!(notice, Notice::Asked { what } if *what == Request::Stop.name()) {
            // Like a signal: who stops the run does not wait for room on the disk.
            self.shortage.give_up();
        }
        match self.health.take_change() {
            Some(Err(error)) => self.all.receive(&Notice::DatabaseFailed { error: &error }),
            Some(Ok(())) => self.all.receive(&Notice::DatabaseRecovered),
            None => {}
        }
        match self.shortage.take_news() {
            Some(SpaceChange::Full { path, error, free }) => {
                self.all.receive(&Notice::DiskFull { path: &path, error: &error, free });
            }
            Some(SpaceChange::Recovered) => self.all.receive(&Notice::DiskRecovered),
            None => {}
        }
    }
}

/// Writes the closed rounds that the run's own file lacks again, from the database.
fn restore_rounds(database: &Database, run: &mut Run, resume: &mut Resume) -> Result<(), Failure> {
    let missing = run.missing_rounds().len();
    let restored = history::restore_rounds(database, run)?;
    if restored > 0 {
        let known = resume.ended;
        (resume.ended, resume.failed, resume.void) = run.progress();
        resume.ended = resume.ended.or(known);
        terminal::tell(&format!(
            "{restored} of {missing} missing rounds are written again, as the database knows them"
        ));
    }
    Ok(())
}
