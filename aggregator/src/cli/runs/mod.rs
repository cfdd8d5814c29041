//! `aggregator runs`: what runs there are, and what to do with them.

mod archive;
mod confirm;
mod delete;
mod diff;
mod list;
mod prune;
mod show;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::exit::Failure;
use super::{RUNS, help};
use crate::runs::RunsError;

#[derive(Debug, Args)]
pub(super) struct RunsArgs {
    #[command(flatten)]
    place: Place,
    #[command(subcommand)]
    command: Option<RunsCommand>,
}

/// Where the runs lie, and how they are shown.
#[derive(Debug, Args)]
struct Place {
    /// Directory that holds one directory per run; that of an experiment shows its runs
    #[arg(long, global = true, value_name = "DIR", default_value = RUNS)]
    runs: PathBuf,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum RunsCommand {
    /// List the runs; so does `aggregator runs` alone
    #[command(after_long_help = help::RUNS_LIST)]
    List,
    /// Show all that is known of one run
    Show {
        /// The run: its name, or its directory
        #[arg(value_name = "RUN")]
        run: PathBuf,
    },
    /// Show in which keys two runs differ, and what came of them
    ///
    /// The exit code does not say whether they differ: 1 would mean an error here.
    Diff {
        /// The one run: its name, or its directory
        #[arg(value_name = "A")]
        a: PathBuf,
        /// The other run
        #[arg(value_name = "B")]
        b: PathBuf,
    },
    /// Delete runs with all their results
    #[command(after_long_help = help::RUNS_DELETE)]
    Delete(delete::DeleteArgs),
    /// Free space: remove what only continues runs that are over, or delete runs by a rule
    #[command(after_long_help = help::RUNS_PRUNE)]
    Prune(prune::PruneArgs),
    /// Put a run into one file, which another machine can unpack and use
    #[command(after_long_help = help::RUNS_ARCHIVE)]
    Archive(archive::ArchiveArgs),
}

impl From<RunsError> for Failure {
    fn from(error: RunsError) -> Self {
        Self::environment(error)
    }
}

pub(super) fn runs(arguments: RunsArgs) -> Result<(), Failure> {
    let RunsArgs { place, command } = arguments;
    match command.unwrap_or(RunsCommand::List) {
        RunsCommand::List => list::list(&place),
        RunsCommand::Show { run } => show::show(&place, &run),
        RunsCommand::Diff { a, b } => diff::diff(&place, [&a, &b]),
        RunsCommand::Delete(arguments) => delete::delete(&place, &arguments),
        RunsCommand::Prune(arguments) => prune::prune(&place, &arguments),
        RunsCommand::Archive(arguments) => archive::archive(&place, &arguments),
    }
}
