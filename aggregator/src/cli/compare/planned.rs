//! What would be run, as a person reads it.

use std::fmt::Write as _;
use std::time::Duration;

use edge_client::bench::Pace;
use models::Architecture;
use shared::cli::cores;

use super::super::exit::Failure;
use super::super::terminal;
use super::other;
use crate::compare::cost::{Cost, ToRun};
use crate::compare::plan::{Plan, Standing};
use crate::compare::shard::split::Split;
use crate::report::units::{counted, seconds};

/// Says of every run where it stands. `left` are those that have rounds to go.
pub(super) fn tell_plan(plan: &Plan, standing: &[Standing], left: &[usize]) {
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

/// Says how long the rest of these runs takes on this machine, if they need all of their rounds.
pub(super) fn tell_cost(plan: &Plan, standing: &[Standing], left: &[usize]) -> Result<(), Failure> {
    const EACH: Duration = Duration::from_millis(100);
    let count = left.len();
    if count == 0 {
        return Ok(());
    }
    // On one core, as a run has one where there are as many runs as cores.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(Failure::environment)?;
    let measure = |network: &Architecture, batch| pool.install(|| Pace::measure(network, batch, EACH));
    let runs = left.iter().map(|&position| {
        let run = &plan.runs[position];
        let closed = if let Standing::Unfinished(closed) = standing[position] { closed } else { 0 };
        ToRun { run, published: plan.published_rounds(run.cell, run.variant), closed }
    });
    let cost = Cost::of(runs, measure).map_err(Failure::environment)?;
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
    if cost.as_published < cost.seconds {
        let _ =
            write!(said, ", {} if runs need as many as published", seconds(cost.as_published / cores as f64));
    }
    if cost.unknown > 0 {
        let _ = write!(said, "; {} whose samples are not counted yet", counted(cost.unknown, "run"));
    }
    if plan.undecided() > 0 {
        said.push_str("; those with the chosen values come on top");
    }
    terminal::tell(&said);
    Ok(())
}

/// Says how evenly the experiment can be split over machines, if it has runs to split.
pub(super) fn tell_split(plan: &Plan) {
    /// Numbers of shards that are of interest.
    const SHARDS: [u16; 5] = [2, 4, 8, 16, 32];
    let whole = Split::of(plan, 1).units();
    let shares: Vec<String> = SHARDS
        .into_iter()
        .filter(|&of| usize::from(of) <= whole)
        .map(|of| format!("{of}: {:.0} %", 100.0 * Split::of(plan, of).busiest()))
        .collect();
    if !shares.is_empty() {
        terminal::tell(&format!(
            "over N machines with --shard I/N, the busiest one has this part of the work: {}",
            shares.join(", ")
        ));
    }
}
