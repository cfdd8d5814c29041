//! `aggregator runs prune`: space without loss of results, or whole runs by a rule.

use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::json;
use shared::calendar::moment;

use super::super::exit::Failure;
use super::super::parse::whole;
use super::super::terminal;
use super::super::ticket::lasting;
use super::Place;
use super::confirm::{announce, confirmed};
use super::delete::{Doomed, carry_out, deleted, sum};
use crate::report::units::{bytes, counted};
use crate::run::directory::RunDirectory;
use crate::run::reader;
use crate::runs::listing::{Kind, Listing};
use crate::runs::overview::Overview;
use crate::runs::rule::Rule;
use crate::runs::surplus::Surplus;
use crate::storage::Disk;

#[derive(Debug, Args)]
pub(super) struct PruneArgs {
    /// Delete whole runs instead: those that failed
    #[arg(long)]
    failed: bool,
    /// Delete whole runs instead: those whose last round or end was longer ago, as in 12h or 30d
    #[arg(long, value_name = "TIME", value_parser = lasting)]
    older_than: Option<Duration>,
    /// Delete whole runs instead: all but the N that were active last
    #[arg(long, value_name = "N", value_parser = whole::<u32>(0..=u32::MAX.into()), allow_negative_numbers = true)]
    keep: Option<u32>,
    /// Say what would go, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Remove without a question
    #[arg(long)]
    yes: bool,
}

/// A run that keeps its results alone.
struct Stripped<'a> {
    run: &'a Overview,
    directory: RunDirectory,
    surplus: Surplus,
}

pub(super) fn prune(place: &Place, arguments: &PruneArgs) -> Result<(), Failure> {
    let PruneArgs { failed, older_than, keep, dry_run, yes } = *arguments;
    let listing = Listing::of(&place.runs)?;
    let rule = Rule { failed, older_than, keep: keep.map(|keep| keep as usize) };
    let leftovers = listing.folders.iter().filter(|folder| folder.kind == Kind::Leftover);
    let mut doomed: Vec<PathBuf> = leftovers.map(|folder| folder.path.clone()).collect();
    doomed.extend(rule.named(&listing.runs, moment(SystemTime::now())).iter().map(|run| run.path.clone()));
    let doomed = doomed.into_iter().map(|path| Doomed::of(RunDirectory::new(path)));
    let doomed = doomed.collect::<Result<Vec<_>, _>>()?;
    let stripped = if rule.is_given() { Vec::new() } else { stripped(&listing.runs)? };
    let freed = sum(&doomed) + stripped.iter().map(|stripped| stripped.surplus.bytes).sum::<u64>();

    let mut lines: Vec<String> = doomed.iter().map(|doomed| format!("delete {}", doomed.line())).collect();
    lines.extend(stripped.iter().map(|stripped| {
        format!("prune  {}  {}", stripped.run.path.display(), bytes(stripped.surplus.bytes))
    }));
    if !stripped.is_empty() {
        let which = if stripped.len() == 1 { "this run" } else { "these runs" };
        lines.push(format!(
            "{which} can then not go on with more rounds (--set run.rounds=N); models, rounds and reports stay"
        ));
    }
    let nothing = lines.is_empty();
    if !nothing {
        announce(&lines, place.json)?;
    }
    let done = !dry_run && !nothing && confirmed(&format!("Free {}?", bytes(freed)), yes)?;
    if done {
        carry_out(&doomed)?;
        for Stripped { directory, surplus, .. } in &stripped {
            surplus.remove(&Disk, directory)?;
        }
    }
    if place.json {
        let of = |stripped: &Stripped<'_>| {
            let Stripped { run, surplus, .. } = stripped;
            json!({ "run": run.run, "path": run.path, "bytes": surplus.bytes })
        };
        return terminal::print_json(&json!({
            "deleted": doomed.iter().map(deleted).collect::<Vec<_>>(),
            "pruned": stripped.iter().map(of).collect::<Vec<_>>(),
            "bytes": freed,
            "done": done,
        }));
    }
    let said = match (nothing, done) {
        (true, _) => "there is nothing to free".to_owned(),
        (false, true) => format!("freed {}", bytes(freed)),
        (false, false) if dry_run => {
            let runs = counted(doomed.len() + stripped.len(), "run");
            format!("{runs} would free {}; nothing was removed", bytes(freed))
        }
        (false, false) => "nothing was removed".to_owned(),
    };
    terminal::print(&format!("{said}\n"))
}

/// The runs that are over and have more than their results.
fn stripped(runs: &[Overview]) -> Result<Vec<Stripped<'_>>, Failure> {
    let mut stripped = Vec::new();
    for run in runs.iter().filter(|run| run.over && !run.is_worked_on()) {
        let directory = RunDirectory::new(&run.path);
        let Some(config) = reader::configuration(&Disk, &directory)? else { continue };
        match Surplus::of(&Disk, &directory, &config)? {
            Ok(surplus) if !surplus.is_empty() => stripped.push(Stripped { run, directory, surplus }),
            Ok(_) => {}
            Err(needed) => terminal::tell(&format!("{} stays as it is: {needed}", run.path.display())),
        }
    }
    Ok(stripped)
}
