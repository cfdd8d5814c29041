//! What happens to a run of an experiment, as those who watch hear it.

use std::time::Duration;

use crate::page::PageError;
use crate::round::RoundRecord;
use crate::simulate::SimulateError;
use crate::start::StartError;

/// Why a run of an experiment did not complete.
#[derive(Debug, thiserror::Error)]
pub enum RunFailure {
    /// It cannot start or continue.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The digests of its data cannot be stored.
    #[error("what its data holds cannot be written down: {0}")]
    Content(std::io::Error),
    /// It failed.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// The system provides no runtime.
    #[error("{0}")]
    Runtime(std::io::Error),
    /// Its damaged directory cannot be set aside.
    #[error("it is damaged, and cannot be moved to where replaced runs are kept: {0}")]
    Aside(std::io::Error),
    /// No update was acceptable in this many rounds in a row, for these reasons.
    #[error("{0} rounds in a row had no acceptable update ({1})")]
    NoProgress(u32, String),
    /// Its page cannot be written.
    #[error(transparent)]
    Page(#[from] PageError),
    /// Another process has used its directory meanwhile.
    #[error("its directory was taken meanwhile: {0}")]
    Taken(String),
}

impl RunFailure {
    /// The damage, if the run's files are damaged.
    pub(super) fn damage(&self) -> Option<String> {
        match self {
            Self::Start(StartError::Run(error))
            | Self::Simulate(SimulateError::Run(error))
            | Self::Page(PageError::Run(error)) => error.damage(),
            _ => None,
        }
    }
}

/// Progress of a run, reported from the run's thread.
#[derive(Debug)]
pub enum Step<'a> {
    /// The run begins, or continues after this round.
    Begun(u32),
    /// A round closed, this long after the one before or the start.
    Round(&'a RoundRecord, Duration),
    /// The run has a problem and continues.
    Alarm(&'a str),
    /// The run is complete.
    Done,
    /// A candidate of `[tune]` stops, for this reason: it cannot be the one that is chosen.
    Dropped(String),
    /// Ctrl-C: the run can be continued.
    Stopped,
    /// Something about it that concerns the work with other workers.
    Shared(&'a str),
    /// Another worker has ended it.
    Elsewhere,
    /// The run did not complete.
    Failed(&'a RunFailure),
}
