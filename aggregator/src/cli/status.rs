//! `aggregator status`: the state of runs and their latest events.

#[cfg(feature = "cluster")]
mod servers;
mod shown;
mod text;

use std::io::IsTerminal as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::Args;

use super::exit::Failure;
use super::parse::count;
use super::{LabArgs, terminal};
use crate::database::{Database, FILE, moment};
use crate::enrolment::Device;
use crate::history::{RunLock, StoredRound, StoredRun};
#[cfg(feature = "cluster")]
use crate::leaves::shown::Together;
use crate::names;
use crate::run::directory::RunDirectory;
use shown::Shown;
pub(super) use shown::name;
use text::text;

/// How often `--watch` looks.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    lab: LabArgs,
    /// Show it again whenever it changes, until Ctrl-C or until no run is served
    #[arg(long)]
    watch: bool,
    /// Show this run: the name of its directory, or the beginning of its identity
    #[arg(long, value_name = "NAME")]
    run: Option<String>,
    /// Closed rounds to show, the newest
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = count, allow_negative_numbers = true)]
    rounds: u32,
    /// Events to show, the newest
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = count, allow_negative_numbers = true)]
    events: u32,
}

pub(super) fn status(arguments: &StatusArgs) -> Result<(), Failure> {
    let mut last: Option<Vec<Shown>> = None;
    loop {
        #[cfg(feature = "cluster")]
        let now = moment(SystemTime::now());
        #[cfg(feature = "cluster")]
        let mut together = Together::of_now(&arguments.lab.runs, now);
        #[cfg(feature = "cluster")]
        together.retain(|together| arguments.run.as_ref().is_none_or(|wanted| *wanted == together.run));
        let looked = look(arguments);
        // A server that does not lead the run has no more of it. What is old is shown where there is nothing else.
        #[cfg(feature = "cluster")]
        if match &looked {
            Ok((shown, _)) => {
                together.iter().any(|together| together.is_new(now))
                    && shown.iter().all(|shown| !shown.serving)
            }
            Err(_) => !together.is_empty(),
        } {
            clear(arguments)?;
            let told = servers::show(&together, arguments.lab.json, now);
            if arguments.watch && told.is_ok() {
                std::thread::sleep(WATCH_INTERVAL);
                continue;
            }
            return told;
        }
        #[cfg_attr(not(feature = "cluster"), expect(unused_mut, reason = "one server alone serves a run"))]
        let (mut shown, idle) = looked?;
        #[cfg(feature = "cluster")]
        for shown in shown.iter_mut().filter(|shown| shown.serving) {
            shown.servers = servers::of(&together, &shown.name, now);
        }
        let news = last.as_ref().is_none_or(|last| differ(last, &shown));
        let in_place = is_in_place(arguments);
        // In place times go on; elsewhere a page is printed when there is more to say.
        if news || in_place {
            show(arguments, &shown)?;
            #[cfg(feature = "cluster")]
            if shown.iter().any(|shown| shown.serving) {
                // For programs a run is one document.
                let whole = |run: &str| shown.iter().any(|shown| shown.serving && shown.name == run);
                together.retain(|together| !arguments.lab.json || !whole(&together.run));
                // One that leads says so itself.
                let _ = servers::show(&together, arguments.lab.json, now);
            }
        }
        if arguments.watch && shown.iter().any(|shown| shown.serving) {
            last = Some(shown);
            std::thread::sleep(WATCH_INTERVAL);
            continue;
        }
        if idle.is_empty() {
            return Ok(());
        }
        return Err(Failure::Idle(format!(
            "not over and not served: {}; the same `aggregator serve` continues it",
            idle.join(", ")
        )));
    }
}

/// Whether each look takes the place of the one before.
fn is_in_place(arguments: &StatusArgs) -> bool {
    arguments.watch && !arguments.lab.json && std::io::stdout().is_terminal()
}

fn clear(arguments: &StatusArgs) -> Result<(), Failure> {
    // Home, and clear the screen.
    if is_in_place(arguments) { terminal::print("\x1b[H\x1b[J") } else { Ok(()) }
}

fn show(arguments: &StatusArgs, all: &[Shown]) -> Result<(), Failure> {
    clear(arguments)?;
    let now = moment(SystemTime::now());
    for shown in all {
        if arguments.lab.json {
            terminal::print_json(shown)?;
        } else {
            terminal::print(&text(shown, now))?;
        }
    }
    Ok(())
}

/// Whether there is more to tell than that time has passed.
fn differ(before: &[Shown], now: &[Shown]) -> bool {
    let differ = |(before, now): (&Shown, &Shown)| {
        #[cfg(feature = "cluster")]
        if before.servers != now.servers {
            return true;
        }
        let status = match (&before.run.status, &now.run.status) {
            (Some(before), Some(now)) => now.differs_from(before),
            (before, now) => before.is_some() != now.is_some(),
        };
        status
            || (&before.run.run, before.serving, &before.run.outcome)
                != (&now.run.run, now.serving, &now.run.outcome)
            || (&before.newest, &before.arrivals, &before.left_out, &before.events)
                != (&now.newest, &now.arrivals, &now.left_out, &now.events)
    };
    before.len() != now.len() || before.iter().zip(now).any(differ)
}

/// Everything to show, and the runs among it that are neither over nor served.
fn look(arguments: &StatusArgs) -> Result<(Vec<Shown>, Vec<String>), Failure> {
    let directory = arguments.lab.directory();
    let database = Database::open_existing(&directory)?.ok_or_else(|| no_run_was_served(&directory))?;
    names::set(Device::names(&database)?);
    let runs = database.runs()?;
    let served = |run: &StoredRun| RunLock::in_place(&RunDirectory::new(&run.directory));
    let runs: Vec<(bool, StoredRun)> = runs.into_iter().map(|run| (served(&run), run)).collect();
    let chosen =
        chosen(runs, arguments.run.as_deref()).map_err(|known| unknown(arguments.run.as_deref(), &known))?;
    let (mut all, mut idle) = (Vec::new(), Vec::new());
    for (serving, mut run) in chosen {
        if let Some(status) = run.status.as_mut().filter(|_| !serving) {
            // Without a server there are no connections.
            status.connected = 0;
        }
        // One of them may be open.
        let newest = database.rounds(&run.run, arguments.rounds.saturating_add(1))?;
        let arrivals = match newest.last() {
            Some(last) => database.arrivals(&run.run, last.round)?,
            None => Vec::new(),
        };
        let left_out = database.left_out(&run.run)?;
        let newest = only_closed(newest, arguments.rounds as usize);
        let events = database.events(&run.run, arguments.events)?;
        let name = name(&run);
        // One that other servers have brought to its end is over, too.
        let finished = || RunDirectory::new(&run.directory).finished().exists();
        if !serving && !matches!(run.outcome.as_deref(), Some("completed" | "fruitless")) && !finished() {
            idle.push(name.clone());
        }
        all.push(Shown {
            name,
            run,
            serving,
            newest,
            arrivals,
            left_out,
            events,
            #[cfg(feature = "cluster")]
            servers: None,
        });
    }
    Ok((all, idle))
}

/// The newest rounds with at most this number of closed ones among them.
fn only_closed(mut rounds: Vec<StoredRound>, most: usize) -> Vec<StoredRound> {
    let closed = rounds.iter().filter(|round| round.record.is_some()).count();
    let mut surplus = closed.saturating_sub(most);
    rounds.retain(|round| {
        let keep = round.record.is_none() || surplus == 0;
        surplus -= usize::from(!keep);
        keep
    });
    rounds
}

/// The runs to show, or the names of all if there is none of the name that is asked for.
fn chosen(runs: Vec<(bool, StoredRun)>, wanted: Option<&str>) -> Result<Vec<(bool, StoredRun)>, Vec<String>> {
    let names = runs.iter().map(|(_, run)| name(run)).collect();
    let any = runs.iter().any(|(serving, _)| *serving);
    let chosen: Vec<_> = match wanted {
        Some(wanted) => {
            runs.into_iter().filter(|(_, run)| name(run) == wanted || run.run.starts_with(wanted)).collect()
        }
        None if any => runs.into_iter().filter(|(serving, _)| *serving).collect(),
        None => {
            // One whose server died comes first: its devices wait for it.
            let died = |run: &StoredRun| run.ended.is_none();
            let newest = runs.iter().map(|(_, run)| run).max_by_key(|run| (died(run), run.told));
            let newest = newest.map(|run| run.run.clone());
            runs.into_iter().filter(|(_, run)| Some(&run.run) == newest.as_ref()).collect()
        }
    };
    if chosen.is_empty() { Err(names) } else { Ok(chosen) }
}

pub(super) fn no_run_was_served(directory: &Path) -> Failure {
    Failure::Environment(format!(
        "no run was served here: there is no {} (--runs or --identity says where the server keeps it)",
        directory.join(FILE).display()
    ))
}

fn unknown(wanted: Option<&str>, known: &[String]) -> Failure {
    Failure::Environment(match wanted {
        Some(wanted) if !known.is_empty() => {
            format!("no run {wanted} was served here; these were: {}", known.join(", "))
        }
        _ => "no run was served here yet".to_owned(),
    })
}
