//! `aggregator status`: the state of runs and their latest events.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde::Serialize;
use shared::calendar::utc;

use super::exit::Failure;
use super::parse::count;
#[cfg(feature = "cluster")]
use super::servers;
use super::{LabArgs, terminal};
use crate::commands::command;
use crate::coordinator::{Activity, Awaited, Status, WaitingFor};
use crate::database::{Database, FILE, moment};
use crate::enrolment::Device;
use crate::history::{RunLock, StoredArrival, StoredEvent, StoredRound, StoredRun, StoredSkipped, short};
#[cfg(feature = "cluster")]
use crate::leaves::shown::Together;
use crate::names::{self, called};
use crate::report::clock::elapsed;
use crate::report::console;
use crate::report::units::counted;
use crate::run::directory::RunDirectory;

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

/// All that is shown of one run.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    run: StoredRun,
    /// Whether some process serves it now.
    serving: bool,
    /// The newest rounds, an open one among them.
    newest: Vec<StoredRound>,
    /// The verdicts on the updates of the newest round.
    arrivals: Vec<StoredArrival>,
    /// Training samples that devices left out.
    left_out: Vec<StoredSkipped>,
    events: Vec<StoredEvent>,
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
        let (shown, idle) = looked?;
        let news = last.as_ref().is_none_or(|last| differ(last, &shown));
        let in_place = is_in_place(arguments);
        // In place times go on; elsewhere a page is printed when there is more to say.
        if news || in_place {
            show(arguments, &shown)?;
            #[cfg(feature = "cluster")]
            if shown.iter().any(|shown| shown.serving) {
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
        // One that other servers have brought to its end is over, too.
        let finished = || RunDirectory::new(&run.directory).finished().exists();
        if !serving && !matches!(run.outcome.as_deref(), Some("completed" | "fruitless")) && !finished() {
            idle.push(name(&run));
        }
        all.push(Shown { run, serving, newest, arrivals, left_out, events });
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

pub(super) fn name(run: &StoredRun) -> String {
    let path = Path::new(&run.directory);
    path.file_name().map_or_else(|| run.directory.clone(), |name| name.to_string_lossy().into_owned())
}

fn text(shown: &Shown, now: i64) -> String {
    let Shown { run, serving, newest, arrivals, left_out, events } = shown;
    let mut out = format!("{}  {}\n", name(run), run.directory);
    let since = |moment: i64| elapsed(now.saturating_sub(moment));
    let _ = match (serving, run.ended, run.outcome.as_deref()) {
        (true, ..) => writeln!(out, "served by process {} for {}", run.process, since(run.served)),
        (false, Some(ended), Some(outcome)) => {
            let how = match outcome {
                "completed" => "complete since",
                "fruitless" => "over, without success, since",
                "failed" => "not served: the server failed at",
                _ => "not served: the server was stopped at",
            };
            writeln!(out, "{how} {} ({} ago)", utc(ended), since(ended))
        }
        _ => writeln!(
            out,
            "not served: process {} ended unexpectedly, last heard of {} ago",
            run.process,
            since(run.told)
        ),
    };
    if let Some(snapshot) = &run.status {
        out.push_str(&waits(snapshot, *serving, now));
    }
    let told = |arrival: &StoredArrival| arrival.verdict == "not-now" && does_not_train(run, arrival);
    for arrival in arrivals.iter().filter(|arrival| arrival.verdict != "accepted" && !told(arrival)) {
        let times = if arrival.times > 1 { format!(" {} times", arrival.times) } else { String::new() };
        let reason = arrival.reason.as_deref().unwrap_or("no reason was given");
        let _ = writeln!(
            out,
            "  {:<10} {}{times} in round {}: {reason}",
            arrival.verdict,
            arrival.device.parse().map_or_else(|_| short(&arrival.device).to_owned(), called),
            arrival.round
        );
    }
    for left_out in StoredSkipped::in_words(left_out) {
        let _ = writeln!(out, "left out, since they cannot be used: {left_out}");
    }
    let closed: Vec<_> = newest.iter().filter_map(|round| round.record.as_ref()).collect();
    if let Some((record, dominance)) =
        closed.last().and_then(|record| Some((record, record.dominance.as_ref()?)))
    {
        let _ = writeln!(out, "WARNING: in round {} {}", record.round, dominance);
    }
    if !closed.is_empty() {
        out.push_str("\nlast rounds\n");
    }
    for record in closed {
        let line =
            console::line(record, run.rounds, terminal::columns().saturating_sub(2)).replace('\n', "\n  ");
        let _ = writeln!(out, "  {line}");
    }
    if !events.is_empty() {
        out.push_str("\nlast events\n");
    }
    for event in events {
        let _ = writeln!(
            out,
            "  {}  {}{}",
            utc(event.at),
            if event.alarm { "WARNING: " } else { "" },
            event.text
        );
    }
    out
}

/// Whether a member of the open round is already listed as ineligible, with this reason.
fn does_not_train(run: &StoredRun, arrival: &StoredArrival) -> bool {
    let Some(Status { waiting_for: WaitingFor::Updates { round, members, .. }, .. }) = &run.status else {
        return false;
    };
    let is_it = |member: &Awaited<i64>| {
        member.activity == Activity::NotNow && member.client.to_string() == arrival.device
    };
    *round == arrival.round && members.iter().any(is_it)
}

fn waits(snapshot: &Status<i64>, serving: bool, now: i64) -> String {
    let since = elapsed(now.saturating_sub(snapshot.since));
    // What devices do with the last model is one round more.
    let closed = snapshot.closed.min(snapshot.rounds);
    let mut out = format!("{} of {} closed", counted(closed as usize, "round"), snapshot.rounds);
    if snapshot.failed > 0 {
        let _ = write!(out, " ({} of them without a result)", snapshot.failed);
    }
    let _ = if serving {
        writeln!(out, ", {} of {} connected", snapshot.connected, counted(snapshot.known, "known device"))
    } else {
        writeln!(out, ", {}", counted(snapshot.known, "known device"))
    };
    if snapshot.held && serving {
        let _ = writeln!(out, "PAUSED on request: no new round is opened until `{}`", command("resume"));
    }
    let verb = if serving { "waits" } else { "waited" };
    let _ = match &snapshot.waiting_for {
        WaitingFor::Clients { connected, needed } => {
            writeln!(out, "{verb} for clients: {connected} of {needed} connected, for {since}")
        }
        WaitingFor::Pause { void, until } => writeln!(
            out,
            "pauses after {} in a row without enough acceptable updates, until {}",
            counted(*void as usize, "round"),
            utc(*until)
        ),
        WaitingFor::Updates { round, accepted, cohort, .. } => {
            writeln!(out, "round {round} {verb} for updates: {accepted} of {cohort} in, for {since}")
        }
        WaitingFor::Masks { round, answered, asked, .. } => {
            let answers = format!("{answered} of {} have answered", counted(*asked, "device"));
            writeln!(
                out,
                "round {round} {verb} until the masks of its sum are taken away: {answers}, for {since}"
            )
        }
        WaitingFor::Disk { round } => writeln!(out, "round {round} {verb} for this machine, for {since}"),
        WaitingFor::Nothing => Ok(()),
    };
    if snapshot.paused && serving {
        out.push_str(
            "PAUSED: there is no room on the server's disk; the run goes on by itself once there is\n",
        );
    }
    let (members, more) = snapshot.waiting_for.members();
    for member in members {
        let stage = match member.activity {
            Activity::Receiving => "receiving".to_owned(),
            Activity::Training(done, total) => {
                format!("training {} %", 100 * u128::from(done) / u128::from(total.max(1)))
            }
            Activity::Uploading => "uploading".to_owned(),
            Activity::Checking => "checking".to_owned(),
            Activity::Away => "away".to_owned(),
            Activity::NotNow => "not now".to_owned(),
            Activity::Unmasking => "unmasking".to_owned(),
        };
        let silent = elapsed(now.saturating_sub(member.heard));
        let late = if member.late { "; at an earlier round" } else { "" };
        let reason = member.reason.as_ref().map_or(String::new(), |reason| format!("; {reason}"));
        let _ =
            writeln!(out, "  {stage:<14} {}  last heard {silent} ago{late}{reason}", called(member.client));
    }
    if more > 0 {
        let _ = writeln!(out, "  and {}", counted(more, "other"));
    }
    out
}

#[cfg(test)]
mod tests {
    use shared::id::ClientId;

    use super::*;
    use crate::round::{Dominance, RoundRecord};

    /// A served run with a closed round, in which this device had most of the weight.
    fn shown(dominance: Option<Dominance>) -> Shown {
        let record = RoundRecord { round: 7, dominance, ..RoundRecord::default() };
        let round =
            StoredRound { round: 7, opened: None, closed: None, cohort: Some(10), record: Some(record) };
        let run = StoredRun {
            run: "ab".repeat(8),
            directory: "runs/lab".to_owned(),
            rounds: 20,
            begun: 0,
            served: 0,
            process: 1,
            ended: None,
            outcome: None,
            told: 0,
            status: None,
        };
        let (arrivals, left_out, events) = (Vec::new(), Vec::new(), Vec::new());
        Shown { run, serving: true, newest: vec![round], arrivals, left_out, events }
    }

    #[test]
    fn a_device_that_has_most_of_the_weight_is_a_warning() {
        let client = ClientId::from_bytes([1; 16]);
        let dominance =
            Dominance { client, samples: 9000, share_of_samples: 0.9999, share_of_weight: 0.5, bounded: 1 };
        let expected = "WARNING: in round 7 client 01010101 declares 99.99 % of the samples (9000), and its weight was bounded to \
                        50.00 %\n";
        let found = text(&shown(Some(dominance)), 0);
        assert!(found.contains(expected), "{found}");
        assert!(!text(&shown(None), 0).contains("WARNING"));
    }
}
