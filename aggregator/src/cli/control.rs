//! `aggregator stop`, `pause` and `resume`: requests to a server that runs elsewhere on this machine.

use std::time::{Duration, Instant};

use clap::Args;
use serde_json::json;

use super::exit::Failure;
use super::status::{name, no_run_was_served};
use super::{LabArgs, terminal};
use crate::commands::command;
use crate::control::ask;
use crate::database::Database;
use crate::history::{RunLock, StoredRun};
use crate::peer::Request;
use crate::run::directory::RunDirectory;

/// How long `stop` waits for the server to end.
const PATIENCE: Duration = Duration::from_mins(2);
/// Interval at which it looks.
const INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(super) struct ControlArgs {
    #[command(flatten)]
    lab: LabArgs,
    /// The run, by the name of its directory; needed where several are served
    #[arg(value_name = "RUN")]
    run: Option<String>,
}

pub(super) fn control(arguments: &ControlArgs, request: Request) -> Result<(), Failure> {
    let lab = arguments.lab.directory();
    let database = Database::open_existing(&lab)?.ok_or_else(|| no_run_was_served(&lab))?;
    let run = chosen(database.runs()?, arguments.run.as_deref(), request)?;
    let directory = RunDirectory::new(&run.directory);
    let served = RunLock::in_place(&directory);
    let asked = |error| Failure::file("write a request in", &directory.state(), error);
    let changed = ask(&directory, request).map_err(asked)?;
    if request == Request::Stop {
        wait(&directory, &name(&run))?;
    }
    let said = match (request, changed, served) {
        (Request::Stop, ..) => "stopped: the same `aggregator serve` continues it".to_owned(),
        (Request::Pause, true, true) => format!(
            "pauses once its open round is closed; devices stay connected. `{}` goes on",
            command(&format!("resume {}", name(&run)))
        ),
        (Request::Pause, true, false) => "is not served now, and will open no round when it is".to_owned(),
        (Request::Pause, false, _) => "is paused already".to_owned(),
        (Request::Resume, true, true) => "goes on".to_owned(),
        (Request::Resume, true, false) => "is not served now, and will go on when it is".to_owned(),
        (Request::Resume, false, _) => "was not paused".to_owned(),
    };
    if arguments.lab.json {
        let asked = request.name();
        return terminal::print_json(
            &json!({ "run": name(&run), "asked": asked, "changed": changed, "served": served }),
        );
    }
    terminal::print(&format!("{} {said}\n", name(&run)))
}

/// The run that is meant: by its name, or the only one that may be.
fn chosen(runs: Vec<StoredRun>, wanted: Option<&str>, request: Request) -> Result<StoredRun, Failure> {
    let over = |run: &StoredRun| matches!(run.outcome.as_deref(), Some("completed" | "fruitless"));
    let served = |run: &StoredRun| RunLock::in_place(&RunDirectory::new(&run.directory));
    let (mut live, rest): (Vec<_>, Vec<_>) = runs.into_iter().partition(served);
    let mut idle: Vec<_> = rest.into_iter().filter(|run| !over(run)).collect();
    if let Some(wanted) = wanted {
        let is_it = |run: &StoredRun| name(run) == wanted || run.run.starts_with(wanted);
        live.retain(is_it);
        idle.retain(is_it);
    }
    // A run that is not served cannot be stopped, and keeps what it is asked for otherwise.
    let candidates = if live.is_empty() && request != Request::Stop { &mut idle } else { &mut live };
    if candidates.len() > 1 {
        let names: Vec<String> = candidates.iter().map(name).collect();
        return Err(Failure::Usage(format!("say which run: {}", names.join(", "))));
    }
    candidates.pop().ok_or_else(|| {
        let which = wanted.map_or_else(|| "no run".to_owned(), |wanted| format!("no run {wanted}"));
        Failure::Environment(format!("{which} is served now: `{}` shows what there was", command("status")))
    })
}

/// Waits until no process serves the run.
fn wait(directory: &RunDirectory, name: &str) -> Result<(), Failure> {
    let begun = Instant::now();
    while RunLock::in_place(directory) {
        if begun.elapsed() > PATIENCE {
            return Err(Failure::Environment(format!(
                "{name} was asked to stop and is still served after {} s: look at what its server says",
                PATIENCE.as_secs()
            )));
        }
        std::thread::sleep(INTERVAL);
    }
    Ok(())
}
