//! The stages of an experiment: where values are tuned, candidates run with the first seed before the best run with the others.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;

use super::super::exit::Failure;
use super::super::run::runtime;
use super::super::terminal::{self, StopRequest};
use super::execution::run_all;
use super::team::Team;
use super::{CompareArgs, read, settle, standing};
use crate::compare::choice::{decided, left};
use crate::compare::plan::{Plan, Standing};
use crate::compare::results::Rounds;
use crate::report::units::counted;

/// All runs of an experiment once the work on them has ended.
pub(super) struct Ended {
    /// Where they stand.
    pub(super) standing: Vec<Standing>,
    /// What they recorded.
    pub(super) rounds: Rounds,
    /// Why not all of them are complete.
    pub(super) outcome: Result<(), Failure>,
}

/// Makes those who work on a plan, who are asked to stop together.
pub(super) type Gather<'a> = dyn Fn(&Plan, &StopRequest) -> Result<Box<dyn Team>, Failure> + 'a;

/// Executes all runs of `plan` that have rounds to go. A run that fails keeps none of the others from their work.
pub(super) fn run_in_stages(
    plan: &mut Plan,
    out: &Path,
    arguments: &CompareArgs,
    team: &Gather<'_>,
) -> Result<Ended, Failure> {
    let runs = out.join("runs");
    // Of all stages: a request to stop between two of them counts as well.
    let runtime = runtime()?;
    let stop = {
        let _inside = runtime.enter();
        terminal::stop_on_signal()
    };
    let team = team(plan, &stop)?;
    let settled = |plan: &Plan| {
        // What is here of another state of the experiment is told before anything comes from elsewhere, and what came is looked at as well.
        let settled = settle(plan, standing(plan, &runs), out, arguments.replace)?;
        if stop.is_made() || !team.meet(plan, &runs)? {
            return Ok(settled);
        }
        settle(plan, standing(plan, &runs), out, arguments.replace)
    };
    let (mut standing, mut rounds) = choose(plan, settled, &runs)?;
    let mut failures: Vec<(String, String)> = Vec::new();
    let mut stopped = false;
    let (mut idle, mut before) = (false, Vec::new());
    let mut outcome = Ok(());
    while !stopped && outcome.is_ok() {
        let mut left = left(plan, &standing, &rounds);
        let failed: HashSet<&str> = failures.iter().map(|(run, _)| run.as_str()).collect();
        left.retain(|&run| !failed.contains(plan.runs[run].config.spec.name.as_str()));
        if left.is_empty() {
            break;
        }
        let names = |left: &[usize]| -> Vec<String> {
            left.iter().map(|&run| plan.runs[run].config.spec.name.clone()).collect()
        };
        let now = names(&left);
        if idle && before == now {
            outcome = Err(Failure::NoProgress(format!(
                "{} have ended elsewhere, and their results do not decide what follows: {}. Machines that compute otherwise, or other data, \
                 give other results; run the experiment without --store, or remove it from the store (--forget) and run it anew",
                counted(now.len(), "run"),
                now.join(", ")
            )));
            break;
        }
        before = now;
        match run_all(plan, &rounds, &left, &runs, arguments, &*team, &stop) {
            Ok(worked) => {
                idle = worked.begun == 0 && worked.failures.is_empty();
                failures.extend(worked.failures);
                stopped = worked.stopped;
            }
            Err(error) => outcome = Err(error),
        }
        match choose(plan, settled, &runs) {
            Ok(found) => (standing, rounds) = found,
            // The report of the complete runs is written all the same.
            Err(error) => {
                standing = super::standing(plan, &runs);
                plan.take_in(&standing);
                rounds = read(plan, &standing, &runs);
                outcome = outcome.and(Err(error));
            }
        }
    }
    if !stopped
        && outcome.is_ok()
        && let Ok(Some(text)) = team.remark()
    {
        terminal::tell(&format!("WARNING: {text}"));
    }
    // What a request to stop has cut off is no error of its own.
    let cut_off = outcome.is_err() && stop.is_made();
    let outcome = if cut_off { stop.failure().map_or(outcome, Err) } else { outcome };
    let outcome = outcome.and_then(|()| match failures.len() {
        0 if stopped => stop.failure().map_or(Ok(()), Err),
        0 => chosen(plan),
        failed => {
            let mut text = format!("{} did not complete:", counted(failed, "run"));
            for (_, failure) in &failures {
                let _ = write!(text, "\n  {failure}");
            }
            Err(Failure::NoProgress(text))
        }
    });
    Ok(Ended { standing, rounds, outcome })
}

/// Refuses to call an experiment complete in which values are still to be chosen.
pub(super) fn chosen(plan: &Plan) -> Result<(), Failure> {
    match plan.undecided() {
        0 => Ok(()),
        open => Err(Failure::NoProgress(format!(
            "no values are chosen for {}: what its candidates recorded cannot be read; make them again with --replace",
            counted(open, "variant")
        ))),
    }
}

/// Reads how all runs stand and what they recorded, and chooses among candidates until nothing more is known of them.
pub(super) fn choose(
    plan: &mut Plan,
    standing: impl Fn(&Plan) -> Result<Vec<Standing>, Failure>,
    runs: &Path,
) -> Result<(Vec<Standing>, Rounds), Failure> {
    loop {
        let standing = standing(plan)?;
        plan.take_in(&standing);
        let rounds = read(plan, &standing, runs);
        if !plan.choose(&decided(plan, &rounds)) {
            return Ok((standing, rounds));
        }
    }
}
