//! A run on a command line: its path, or its name among the runs.

use std::path::{Path, PathBuf};

use clap::Args;

use super::RUNS;
use super::exit::Failure;
use crate::run::directory::RunDirectory;
use crate::runs::find::{NoSuchRun, find};

/// Where runs are found by their names.
#[derive(Debug, Args)]
pub(super) struct NamedRuns {
    /// Directory in which a run is found by its name alone
    #[arg(long, value_name = "DIR", default_value = RUNS)]
    runs: PathBuf,
}

impl NamedRuns {
    /// The run that `given` names.
    pub(super) fn find(&self, given: &Path) -> Result<RunDirectory, Failure> {
        Ok(find(&self.runs, given)?)
    }
}

impl From<NoSuchRun> for Failure {
    fn from(error: NoSuchRun) -> Self {
        Self::environment(error)
    }
}
