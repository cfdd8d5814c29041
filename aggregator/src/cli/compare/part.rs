//! One shard of an experiment, from its plan to its runs.

use std::path::Path;

use shared::cli::Processor;

use super::super::exit::Failure;
use super::super::terminal;
use super::planned::{tell_cost, tell_plan};
use super::stages::{Ended, choose, run_in_stages};
use super::team::Alone;
use super::{CompareArgs, claim, standing};
use crate::compare::choice::left;
use crate::compare::plan::Plan;
use crate::compare::results::lines;
use crate::compare::shard::Shard;
use crate::compare::shard::record::{Machine, Record};
use crate::compare::shard::split::Split;
use crate::report::standing::Process;
use crate::report::units::counted;
use crate::storage::Disk;

/// Runs the runs of `plan` that fall to `shard`, or says which they are.
pub(super) fn run(mut plan: Plan, shard: Shard, out: &Path, arguments: &CompareArgs) -> Result<(), Failure> {
    let split = Split::of(&plan, shard.of());
    let record = Record::of(&plan, shard, &split);
    let all = plan.runs.len();
    plan.restrict(|run| split.has(shard, run));
    terminal::tell(&format!("shard {shard}: {} of {}", plan.runs.len(), counted(all, "run")));
    if arguments.plan {
        let runs = out.join("runs");
        let (standing, rounds) = choose(&mut plan, |plan| Ok(standing(plan, &runs)), &runs)?;
        let left = left(&plan, &standing, &rounds);
        tell_plan(&plan, &standing, &left);
        return tell_cost(&plan, &standing, &left);
    }
    let _locks = claim::shard(out, shard)?;
    let arithmetic = Processor::backend(arguments.device)?.arithmetic().to_owned();
    record
        .write(&Disk, out, Machine { process: Process::this(), arithmetic })
        .map_err(|error| Failure::file("write the record of the shard in", out, error))?;
    if plan.runs.is_empty() {
        terminal::tell(&format!(
            "nothing falls to this shard: the experiment has {}",
            counted(split.units(), "unit")
        ));
        return Ok(());
    }
    let Ended { rounds, outcome, .. } =
        run_in_stages(&mut plan, out, arguments, &|_, _| Ok(Box::new(Alone)))?;
    outcome?;
    // No other attempt of this shard would change that, so it is the collection that fails of it.
    let lines = lines(&plan, &rounds);
    for (line, seed) in lines.iter().flat_map(|line| line.seeds.iter().map(move |seed| (line, seed))) {
        if seed.fruitless() {
            terminal::tell(&format!("WARNING: {}, seed {} learned nothing", line.name, seed.seed));
        }
    }
    terminal::tell(&format!(
        "shard {shard} is complete in {}: once all {} are, `--collect` makes the tables",
        out.display(),
        shard.of()
    ));
    Ok(())
}
