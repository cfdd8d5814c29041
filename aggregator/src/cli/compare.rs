//! `aggregator compare`: an experiment, from its file to its report.

mod execution;
mod stages;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use edge_client::bench::Pace;
use shared::cli::{Processor, cores};
use stages::{Ended, choose, left, run_in_stages};
use tracing::warn;

use super::exit::Failure;
use super::named_run::NamedRuns;
use super::parse::whole;
use super::terminal;
use crate::compare::content;
use crate::compare::cost::Cost;
use crate::compare::csv::csv;
use crate::compare::existing::existing;
use crate::compare::experiment::{Experiment, ExperimentError};
use crate::compare::interpolation::{self, Mixture, mixtures};
use crate::compare::page::{Found, page};
use crate::compare::plan::{Plan, Planned, Standing};
use crate::compare::results::{Rounds, lines};
use crate::compare::runs::recorded;
use crate::compare::text::text;
use crate::config::Config;
use crate::report::units::{counted, seconds};
use crate::storage::{Disk, FileLayer as _, create_dir_durably, write_durably};

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
    /// Print one JSON object with every number of the tables, and nothing else on standard output
    #[arg(long)]
    json: bool,
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
    let runs = out.join("runs");
    if arguments.plan {
        // Nothing is written, so it may be asked while another process is at it.
        let (standing, rounds) = choose(&mut plan, |plan| Ok(standing(plan, &runs)), &runs)?;
        let left = left(&plan, &standing, &rounds);
        tell_plan(&plan, &standing, &left);
        tell_cost(left.iter().map(|&run| &plan.runs[run]), plan.undecided() > 0)?;
        return fruitful(&conclude(&plan, &standing, &rounds, &out, arguments)?);
    }
    create_dir_durably(&Disk, &runs).map_err(|error| Failure::file("create", &runs, error))?;
    let path = out.join("lock");
    let _lock = Disk.lock(&path).map_err(|error| match error {
        std::fs::TryLockError::WouldBlock => Failure::Environment(format!(
            "{} is in use by another aggregator: stop that one, or name another --out",
            out.display()
        )),
        std::fs::TryLockError::Error(error) => Failure::file("lock", &path, error),
    })?;
    let Ended { standing, rounds, outcome } = run_in_stages(&mut plan, &out, arguments)?;
    let fruitless = conclude(&plan, &standing, &rounds, &out, arguments)?;
    outcome.and_then(|()| fruitful(&fruitless))
}

/// Whether an experiment is meant, which is a file; one that is not there is called as no run is.
fn is_file(given: &Path) -> bool {
    given.is_file() || given.extension().is_some_and(|extension| extension == "toml")
}

/// Compares runs that exist, and runs nothing.
fn compare_existing(arguments: &CompareArgs) -> Result<(), Failure> {
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
    content::compare(plan, &Disk, runs, &mut standing);
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

fn tell_plan(plan: &Plan, standing: &[Standing], left: &[usize]) {
    for (position, (run, standing)) in plan.runs.iter().zip(standing).enumerate() {
        let rounds = run.config.spec.rounds;
        let stands = match standing {
            Standing::Done => "complete".to_owned(),
            Standing::Unfinished(closed) if !left.contains(&position) => {
                format!("stopped after round {closed}: another value needs fewer rounds")
            }
            Standing::Unfinished(closed) => format!("to be continued after round {closed} of {rounds}"),
            other_or_absent => {
                let rounds = counted(rounds as usize, "round");
                let why = other(other_or_absent);
                why.map_or_else(|| rounds.clone(), |why| format!("{rounds}, with --replace: {why}"))
            }
        };
        terminal::tell(&format!("{}: {stands}", run.title(plan)));
    }
    let (undecided, others) = (plan.undecided(), plan.experiment.seeds.len() - 1);
    if undecided > 0 && others > 0 {
        terminal::tell(&format!(
            "then {}, with the values that turn out best",
            counted(undecided * others, "more run")
        ));
    }
}

/// Says how long these runs take on this machine, if they have all of their rounds to go.
fn tell_cost<'a>(left: impl Iterator<Item = &'a Planned> + Clone, more: bool) -> Result<(), Failure> {
    const EACH: Duration = Duration::from_millis(100);
    let count = left.clone().count();
    if count == 0 {
        return Ok(());
    }
    // On one core, as a run has one where there are as many runs as cores.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(Failure::environment)?;
    let measure =
        |config: &Config, batch| pool.install(|| Pace::measure(&config.spec.architecture, batch, EACH));
    let cost = Cost::of(left, measure).map_err(Failure::environment)?;
    if cost.unknown == count {
        terminal::tell("how long they take is not known before their samples are counted");
        return Ok(());
    }
    let cores = cores().get();
    let mut said = format!(
        "{}, about {} on {} if all of their rounds are needed",
        counted(count - cost.unknown, "run"),
        seconds(cost.seconds / cores as f64),
        counted(cores, "core"),
    );
    for (runs, why) in [
        (cost.unknown, "whose samples are not counted yet"),
        (cost.personal, "with personal models, which come on top"),
    ] {
        if runs > 0 {
            let _ = write!(said, "; {} {why}", counted(runs, "run"));
        }
    }
    if more {
        said.push_str("; those with the chosen values come on top");
    }
    terminal::tell(&said);
    Ok(())
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
