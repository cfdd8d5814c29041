//! The runs that no folder has complete, and the shards that they belong to.

use std::collections::BTreeMap;

use super::copies::Copies;
use super::error::{runs_are, shown};
use super::folder::{Folder, shards};
use crate::compare::plan::{Plan, Standing};
use crate::compare::shard::split::Split;

/// What is missing, shard by shard, and what to do about it; `None` if nothing is. `left` are the runs that have rounds to go.
#[must_use]
pub fn missing(plan: &Plan, left: &[usize], copies: &Copies, folders: &[Folder]) -> Option<String> {
    if left.is_empty() {
        return None;
    }
    let present = shards(folders);
    let mut numbers: Vec<u16> = present.iter().map(|shard| shard.of()).collect();
    numbers.dedup();
    let splits: Vec<(u16, Split)> = numbers.into_iter().map(|of| (of, Split::of(plan, of))).collect();
    let mut by: BTreeMap<Vec<(u16, u16)>, Vec<String>> = BTreeMap::new();
    for run in left.iter().map(|&position| &plan.runs[position]) {
        let stands = match copies.of(run).map(|copy| &copy.standing) {
            Some(Standing::Unfinished(closed)) => {
                format!(
                    "{} (after round {closed} of {})",
                    run.title(plan),
                    run.config.spec.rounds.max(*closed)
                )
            }
            _ => run.title(plan),
        };
        let of = splits.iter().filter_map(|(of, split)| Some((*of, split.number(run)?))).collect();
        by.entry(of).or_default().push(stands);
    }
    let line = |(of, runs): (&Vec<(u16, u16)>, &Vec<String>)| {
        let names: Vec<String> = of.iter().map(|(of, number)| format!("{number}/{of}")).collect();
        let absent = !of
            .iter()
            .any(|&(of, number)| present.iter().any(|shard| (shard.of(), shard.number()) == (of, number)));
        let whose = match (names.is_empty(), absent) {
            (true, _) => "no shard has left a record".to_owned(),
            (false, true) => format!("shard {}, which is in none of the folders", names.join(" or ")),
            (false, false) => format!("shard {}", names.join(" or ")),
        };
        format!("{whose}: {}", runs.join("; "))
    };
    let lines: Vec<String> = by.iter().map(line).collect();
    let what = if splits.is_empty() {
        "Run the shards that they belong to"
    } else {
        "Run these shards again with their commands, which go on where they were"
    };
    Some(format!(
        "{} missing, and the tables are those of the others:\n{}\n{what}, and collect them once more",
        runs_are(left.len()),
        shown(&lines)
    ))
}
