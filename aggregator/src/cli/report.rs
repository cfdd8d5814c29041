//! `aggregator report`: the page of any run, at any time.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::exit::Failure;
use super::terminal;
use crate::page::Found;
use crate::report::console;
use crate::report::standing::Standing;
use crate::run::directory::RunDirectory;
use crate::storage::{Disk, write_durably};

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// The run's directory
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Write the page to this file [default: RUN/report.html]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) fn report(arguments: &ReportArgs) -> Result<(), Failure> {
    let directory = RunDirectory::new(&arguments.run);
    let found = Found::read(&Disk, &directory, false)?;
    let path = arguments.out.clone().unwrap_or_else(|| directory.report());
    write_durably(&Disk, &path, |out| out.write_all(found.page().as_bytes()))
        .map_err(|error| Failure::file("write", &path, error))?;
    let summary = found.summary();
    if arguments.json {
        let (last, best) = (summary.last.unzip(), summary.best.unzip());
        return terminal::print_json(&json!({
            "run": directory.root(),
            "report": path,
            "standing": found.standing,
            "rounds": summary.rounds,
            "planned": found.config.spec.rounds,
            "accuracy": last.0,
            "best_accuracy": best.0,
            "best_round": best.1,
            "wall_seconds": summary.times.wall,
        }));
    }
    let planned = found.config.spec.rounds;
    let why = match &found.standing {
        Standing::Failed { reason } => format!(": {reason}"),
        _ => String::new(),
    };
    terminal::print(&format!(
        "{} after round {} of {planned}{why}\n{}\nreport  {}\n",
        found.standing.name(),
        summary.rounds,
        console::summary(&summary),
        path.display()
    ))
}
