//! What a served run leaves in the database.

use std::time::SystemTime;

use super::exit::Failure;
use super::terminal::Display;
use crate::coordinator::{Outcome, Resume};
use crate::database::Database;
use crate::driver::Notice;
use crate::history::{Health, Presence, Recorder, RoundLog, RoundLogError};
use crate::run::Run;
use crate::storage::patient::Shortage;

impl From<RoundLogError> for Failure {
    fn from(error: RoundLogError) -> Self {
        match error {
            RoundLogError::Database(error) => Self::environment(error),
            RoundLogError::Run(error) => error.into(),
        }
    }
}

/// Everything that is written down of a run while it is served.
pub(super) struct Recording {
    recorder: Recorder,
    health: Health,
    shortage: Shortage,
    _presence: Presence,
}

impl Recording {
    /// Enters the run, mends what an earlier process did not come to enter, and has `run` enter its closed rounds.
    pub(super) fn begin(
        database: &Database,
        run: &mut Run,
        resume: &Resume,
        shortage: Shortage,
    ) -> Result<Self, Failure> {
        let presence = Presence::of(run.directory())
            .map_err(|error| Failure::file("lock", &run.directory().presence(), error))?;
        let health = Health::default();
        let mut log = RoundLog::begin(database.clone(), run, resume, health.clone(), SystemTime::now())?;
        run.on_closed(move |round| log.enter(round));
        let recorder = Recorder::start(database.clone(), run.spec().run, health.clone());
        Ok(Self { recorder, health, shortage, _presence: presence })
    }

    /// Writes down what is told, and shows it.
    pub(super) fn note(&mut self, notice: &Notice<'_>, display: &mut Display) {
        self.recorder.note(notice);
        display.show(notice);
        for news in [self.health.take_news(), self.shortage.take_news()].into_iter().flatten() {
            let notice = Notice::Alarm(news);
            self.recorder.note(&notice);
            display.show(&notice);
        }
    }

    /// Writes down how the run ended; `None` if it failed.
    pub(super) fn finish(self, outcome: Option<&Outcome>) {
        self.recorder.finish(match outcome {
            Some(Outcome::Completed) => "completed",
            Some(Outcome::Stopped) => "stopped",
            Some(Outcome::NoProgress { .. }) => "fruitless",
            None => "failed",
        });
    }
}
