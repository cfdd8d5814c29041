//! `aggregator compare`: an experiment, from its file to its report.

mod claim;
mod collection;
mod execution;
mod part;
mod planned;
mod stages;
#[cfg(feature = "cluster")]
mod store;
mod team;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::Args;
use planned::{tell_cost, tell_plan, tell_split};
use shared::cli::Processor;
use stages::{Ended, choose, run_in_stages};
#[cfg(feature = "cluster")]
use store::{forget, tell_store};
use team::{Alone, Team};
use tracing::warn;

use super::exit::Failure;
use super::named_run::NamedRuns;
use super::parse::whole;
use super::terminal;
use crate::compare::choice::left;
use crate::compare::content;
use crate::compare::csv::csv;
use crate::compare::existing::existing;
use crate::compare::experiment::{Experiment, ExperimentError};
use crate::compare::interpolation::{self, Mixture, mixtures};
use crate::compare::page::{Found, page};
use crate::compare::plan::{Plan, Planned, Standing};
use crate::compare::results::{Rounds, lines};
use crate::compare::runs::recorded;
use crate::compare::shard::Shard;
use crate::compare::text::text;
use crate::report::units::counted;
use crate::storage::{Disk, create_dir_durably, write_durably};

#[derive(Debug, Args)]
pub(super) struct CompareArgs {
    /// The experiment's file; or runs that exist, by names or directories, which are compared as they are
    #[arg(value_name = "EXPERIMENT|RUN", required = true)]
    given: Vec<PathBuf>,
    #[command(flatten)]
    named: NamedRuns,
    /// Which of the experiment's forms to run
    #[arg(long, value_name = "FORM", default_value = "reduced")]
    form: String,
    /// Directory of the experiment's runs and report [default: experiments/NAME-FORM, or experiments/runs of existing runs]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Change one key of all runs, for example --set run.rounds=2; may be given more than once
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    /// Where clients train and models are tested [default: cuda where the program was built for it and a device answers, else cpu]
    #[arg(long, value_enum)]
    device: Option<Processor>,
    /// Runs at a time [default: one per core, as far as memory allows]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024), allow_negative_numbers = true)]
    jobs: Option<u16>,
    /// Make runs again whose configuration is not the experiment's any more or cannot be read; the old ones are kept in
    /// DIR/replaced
    #[arg(long)]
    replace: bool,
    /// Say what would be run, and run nothing; the tables are those of existing runs, and nothing is written
    #[arg(long, conflicts_with = "replace")]
    plan: bool,
    /// Run one of N parts of the experiment, such as 2/5, and make no tables: --collect does
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Run nothing: gather the runs of all shards from the folders that these had as --out, and make the tables in --out
    #[arg(long, value_name = "DIR", num_args = 1..)]
    collect: Vec<PathBuf>,
    #[command(flatten)]
    sharing: Sharing,
    /// Print one JSON object with every number of the tables, and nothing else on standard output
    #[arg(long)]
    json: bool,
}

/// Work on an experiment with other machines.
#[derive(Debug, Args)]
struct Sharing {
    /// Share the experiment with all who give the same command on other machines: each takes the next free run. URL is that of a
    /// `PostgreSQL` database, as `postgres://USER@HOST/DATABASE`, with the password in PGPASSWORD
    #[arg(long, value_name = "URL", conflicts_with_all = ["shard", "collect"])]
    store: Option<String>,
    /// With --store: the seconds after which what a run has goes to the store, for the worker that takes it over if this machine
    /// fails; 0 for every round
    #[arg(long, value_name = "SECONDS", requires = "store", default_value_t = 120, value_parser = whole::<u32>(0..=86_400))]
    keep_every: u32,
    /// Run nothing: remove what the store has of the experiment
    #[arg(long, requires = "store", conflicts_with_all = ["plan", "replace", "json"])]
    forget: bool,
}

impl From<ExperimentError> for Failure {
    fn from(error: ExperimentError) -> Self {
        match error {
            ExperimentError::Configuration(errors) => errors.into(),
            content @ ExperimentError::Content { .. } => Self::Usage(content.to_string()),
        }
    }
}

pub(super) fn compare(arguments: &CompareArgs) -> Result<(), Failure> {
    edge_client::memory::keep_freed(edge_client::memory::Heaps::Each);
    fit_together(arguments)?;
    let experiment = match &arguments.given[..] {
        [experiment] if is_file(experiment) => experiment,
        runs => match runs.iter().find(|path| is_file(path)) {
            None => return compare_existing(arguments),
            Some(file) => {
                return Err(Failure::Usage(format!(
                    "{} is no run: give one experiment's file, or runs alone, by their names or their directories",
                    file.display()
                )));
            }
        },
    };
    let mut plan = Plan::of(Experiment::read(experiment, &arguments.form)?, &arguments.overrides)?;
    plan.renamed().iter().for_each(|renamed| warn!("{renamed}"));
    let out = arguments.out.clone().unwrap_or_else(|| {
        let stem = experiment.file_stem().unwrap_or_default().to_string_lossy();
        PathBuf::from("experiments").join(format!("{stem}-{}", arguments.form))
    });
    if !arguments.collect.is_empty() {
        return collection::collect(&mut plan, &out, arguments);
    }
    if let Some(shard) = arguments.shard {
        return part::run(plan, shard, &out, arguments);
    }
    if let Some(store) = arguments.sharing.store.as_ref().filter(|_| arguments.sharing.forget) {
        return forget(&plan, store);
    }
    let runs = out.join("runs");
    if arguments.plan {
        if let Some(store) = &arguments.sharing.store {
            tell_store(&plan, store)?;
        }
        // Nothing is written, so it may be asked while another process is at it.
        let (standing, rounds) = choose(&mut plan, |plan| Ok(standing(plan, &runs)), &runs)?;
        let left = left(&plan, &standing, &rounds);
        tell_plan(&plan, &standing, &left);
        tell_cost(&plan, &standing, &left)?;
        tell_split(&plan);
        return fruitful(&conclude(&plan, &standing, &rounds, &out, arguments)?);
    }
    let _lock = claim::whole(&out)?;
    let Ended { standing, rounds, outcome } =
        run_in_stages(&mut plan, &out, arguments, &team(&out, arguments))?;
    let fruitless = conclude(&plan, &standing, &rounds, &out, arguments)?;
    outcome.and_then(|()| fruitful(&fruitless))
}

/// Who works on the experiment in the folder `out`.
#[cfg(feature = "cluster")]
fn team<'a>(
    out: &'a Path,
    arguments: &'a CompareArgs,
) -> impl Fn(&Plan, &terminal::StopRequest) -> Result<Box<dyn Team>, Failure> + 'a {
    move |plan, stop| match &arguments.sharing.store {
        Some(address) => Ok(Box::new(store::join(plan, out, address, arguments, &stop.stopped)?)),
        None => Ok(Box::new(Alone)),
    }
}

/// Who works on the experiment.
#[cfg(not(feature = "cluster"))]
fn team(
    _: &Path,
    arguments: &CompareArgs,
) -> impl Fn(&Plan, &terminal::StopRequest) -> Result<Box<dyn Team>, Failure> {
    let shared = arguments.sharing.store.is_some();
    move |_, _| if shared { Err(Failure::without_store()) } else { Ok(Box::new(Alone)) }
}

#[cfg(not(feature = "cluster"))]
fn tell_store(_: &Plan, _: &str) -> Result<(), Failure> {
    Err(Failure::without_store())
}

#[cfg(not(feature = "cluster"))]
fn forget(_: &Plan, _: &str) -> Result<(), Failure> {
    Err(Failure::without_store())
}

/// Refuses options that contradict each other.
fn fit_together(arguments: &CompareArgs) -> Result<(), Failure> {
    let refused = |text: &str| Err(Failure::Usage(text.to_owned()));
    let collects = !arguments.collect.is_empty();
    if collects && arguments.shard.is_some() {
        return refused(
            "--shard runs a part of an experiment, and --collect gathers all parts: give one of them",
        );
    }
    let runs = arguments.plan || arguments.replace || arguments.jobs.is_some() || arguments.device.is_some();
    if collects && runs {
        return refused("--collect runs nothing: leave --plan, --replace, --jobs and --device out");
    }
    if arguments.shard.is_some() && arguments.json {
        return refused("a shard makes no tables: give --json with --collect, once all shards are complete");
    }
    Ok(())
}

/// Whether an experiment is meant, which is a file; one that is not there is called as no run is.
fn is_file(given: &Path) -> bool {
    given.is_file() || given.extension().is_some_and(|extension| extension == "toml")
}

/// Compares runs that exist, and runs nothing.
fn compare_existing(arguments: &CompareArgs) -> Result<(), Failure> {
    if arguments.shard.is_some() || !arguments.collect.is_empty() {
        return Err(Failure::Usage(
            "--shard and --collect are parts of an experiment: give its file, as EXPERIMENT.toml".to_owned(),
        ));
    }
    if !arguments.overrides.is_empty() || arguments.replace {
        return Err(Failure::Usage(
            "existing runs are compared as they are: --set and --replace are for experiments; leave them out"
                .to_owned(),
        ));
    }
    let found = arguments.given.iter().map(|run| Ok(arguments.named.find(run)?.root().to_owned()));
    let (plan, rounds, unfinished) = existing(&Disk, &found.collect::<Result<Vec<_>, Failure>>()?)?;
    for text in &unfinished {
        terminal::tell(text);
    }
    if !plan.experiment.about.is_empty() && !arguments.json {
        terminal::print(&format!("{}\n\n", plan.experiment.about))?;
    }
    let out = arguments.out.clone().unwrap_or_else(|| PathBuf::from("experiments").join("runs"));
    if !arguments.plan {
        create_dir_durably(&Disk, &out).map_err(|error| Failure::file("create", &out, error))?;
    }
    fruitful(&publish(&plan, &rounds, &[], &out, arguments)?)
}

/// Where every run stands before anything is done.
fn standing(plan: &Plan, runs: &Path) -> Vec<Standing> {
    let mut standing = plan.runs.iter().map(|run| run.standing(&Disk, runs)).collect::<Vec<_>>();
    content::compare(plan.runs.iter().map(|run| (run, runs)), &Disk, &mut standing);
    standing
}

/// An error that names the runs that learned nothing, if there are any.
fn fruitful(fruitless: &[String]) -> Result<(), Failure> {
    if fruitless.is_empty() {
        return Ok(());
    }
    let text = format!("{} learned nothing: {}", counted(fruitless.len(), "run"), fruitless.join("; "));
    Err(Failure::NoProgress(text))
}

/// Why the existing run is not the planned one; `None` if it is, or there is none.
fn other(standing: &Standing) -> Option<String> {
    match standing {
        Standing::Changed(differences) => {
            let said: Vec<String> = differences
                .iter()
                .map(|(key, there, now)| format!("{key} is {there} there and {now} now"))
                .collect();
            Some(said.join(", "))
        }
        Standing::Foreign(why) => Some(why.clone()),
        Standing::Absent | Standing::Unfinished(_) | Standing::Done => None,
    }
}

/// Moves runs aside whose configuration has changed, if that is wanted; refuses them otherwise.
fn settle(
    plan: &Plan,
    mut standing: Vec<Standing>,
    out: &Path,
    replace: bool,
) -> Result<Vec<Standing>, Failure> {
    let mut refused = Vec::new();
    for (run, standing) in plan.runs.iter().zip(&mut standing) {
        let Some(why) = other(standing) else { continue };
        if replace {
            let runs = out.join("runs");
            run.set_aside(&Disk, &runs)
                .map_err(|error| Failure::file("set aside", run.directory(&runs).root(), error))?;
            *standing = Standing::Absent;
        } else {
            refused.push(format!("  {}: {why}", run.directory(&out.join("runs")).root().display()));
        }
    }
    if refused.is_empty() {
        return Ok(standing);
    }
    let shown = refused.iter().take(10).cloned().collect::<Vec<_>>().join("\n");
    let more = refused.len().saturating_sub(10);
    let more = if more > 0 { format!("\n  and {more} more") } else { String::new() };
    Err(Failure::Usage(format!(
        "{} of {} belong to another state of the experiment:\n{shown}{more}\nName another --out, or make them again with \
         --replace, which keeps the old ones in {}",
        refused.len(),
        counted(plan.runs.len(), "run"),
        out.join("replaced").display()
    )))
}

/// What the runs have recorded. What belongs to another state of the experiment is left out.
fn read(plan: &Plan, standing: &[Standing], runs: &Path) -> Rounds {
    let read = |(run, standing): (&Planned, &Standing)| match recorded(&Disk, run, runs) {
        Ok(rounds) => rounds.filter(|_| other(standing).is_none()),
        Err(why) => {
            terminal::tell(&format!("WARNING: {} is left out: {why}", run.title(plan)));
            None
        }
    };
    plan.runs.iter().zip(standing).map(read).collect()
}

/// Writes the report and the tables of existing runs, if there are any, and names the complete runs that learned nothing.
fn conclude(
    plan: &Plan,
    standing: &[Standing],
    rounds: &Rounds,
    out: &Path,
    arguments: &CompareArgs,
) -> Result<Vec<String>, Failure> {
    let runs = out.join("runs");
    let counts: Vec<bool> = standing.iter().map(|standing| other(standing).is_none()).collect();
    let mixed = plan.experiment.interpolation.map(|how| mixtures(plan, how, &runs, &counts));
    // Where models cannot be mixed, the page says all the same how the runs have ended.
    let (mixtures, failure) = match mixed.transpose() {
        Ok(mixtures) => (mixtures.unwrap_or_default(), None),
        Err(error) => (Vec::new(), Some(Failure::environment(error))),
    };
    if runs.is_dir() || arguments.json {
        let fruitless = publish(plan, rounds, &mixtures, out, arguments)?;
        return failure.map_or(Ok(fruitless), Err);
    }
    failure.map_or_else(|| Ok(Vec::new()), Err)
}

/// Writes the report and the tables unless the plan alone is asked for, prints the tables, and names the complete runs that learned
/// nothing.
fn publish(
    plan: &Plan,
    rounds: &Rounds,
    mixtures: &[Mixture],
    out: &Path,
    arguments: &CompareArgs,
) -> Result<Vec<String>, Failure> {
    let lines = lines(plan, rounds);
    let found = Found { plan, rounds, lines: &lines, mixtures, complete: None };
    let json = serde_json::json!({
        "title": plan.experiment.title,
        "form": plan.experiment.form,
        "cells": plan.cells.iter().map(|cell| serde_json::json!({"name": cell.name, "target": cell.target})).collect::<Vec<_>>(),
        "variants": plan.experiment.variants.iter().map(|variant| &variant.name).collect::<Vec<_>>(),
        "baseline": plan.experiment.baseline,
        "results": lines,
        "mixtures": mixtures,
    });
    if out.is_dir() && !arguments.plan {
        let mut files = vec![
            ("report.html", page(&found)),
            ("results.csv", csv(plan, &lines)),
            ("results.json", format!("{json}\n")),
        ];
        if plan.experiment.interpolation.is_some() {
            files.push(("mixtures.csv", interpolation::csv(mixtures)));
        }
        for (name, text) in files {
            let path = out.join(name);
            write_durably(&Disk, &path, |file| file.write_all(text.as_bytes()))
                .map_err(|error| Failure::file("write", &path, error))?;
        }
    }
    let seeds = lines.iter().flat_map(|line| line.seeds.iter().map(move |seed| (line, seed)));
    let fruitless = seeds.filter(|(_, seed)| seed.fruitless());
    let fruitless = fruitless.map(|(line, seed)| format!("{}, seed {}", line.name, seed.seed)).collect();
    if arguments.json {
        terminal::print_json(&json)?;
        return Ok(fruitless);
    }
    let columns = std::io::IsTerminal::is_terminal(&std::io::stdout()).then(terminal::columns);
    let mut text = text(plan, &lines, columns);
    for mixture in mixtures {
        let [b, half, a] = mixture.parents;
        let _ = writeln!(
            text,
            "{}: {} loss {a:.4} and {b:.4} of the two models, {half:.4} of their mean",
            mixture.name, mixture.on
        );
    }
    if !arguments.plan {
        let [report, table] = ["report.html", "results.csv"].map(|name| out.join(name));
        let _ = writeln!(text, "\nreport  {}\ntable   {}", report.display(), table.display());
    }
    terminal::print(&text)?;
    Ok(fruitless)
}
