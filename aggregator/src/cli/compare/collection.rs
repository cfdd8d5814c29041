//! The shards of an experiment, from their folders to its report.

use std::path::Path;

use super::super::exit::Failure;
use super::super::terminal;
use super::stages::{choose, chosen};
use super::{CompareArgs, claim, conclude, fruitful, standing};
use crate::compare::choice::left;
use crate::compare::collect::copies::Copies;
use crate::compare::collect::error::CollectError;
use crate::compare::collect::folder::{Folder, mixed_arithmetic};
use crate::compare::collect::missing::missing;
use crate::compare::collect::transfer::{clear, transfer};
use crate::compare::plan::Plan;
use crate::report::units::counted;
use crate::storage::Disk;

impl From<CollectError> for Failure {
    fn from(error: CollectError) -> Self {
        if error.is_of_this_machine() { Self::environment(error) } else { Self::Usage(error.to_string()) }
    }
}

/// Gathers the runs of all shards in `out`, and writes the report and the tables there.
pub(super) fn collect(plan: &mut Plan, out: &Path, arguments: &CompareArgs) -> Result<(), Failure> {
    let mut folders: Vec<Folder> = Vec::new();
    for path in &arguments.collect {
        let folder = Folder::named(path)?;
        if !folders.iter().any(|other| other.is(path)) {
            folder.check(plan)?;
            folders.push(folder);
        }
    }
    let _lock = claim::whole(out)?;
    let elsewhere = folders.iter().filter(|folder| !folder.is(out));
    let _locks = elsewhere.map(|folder| claim::to_read(&folder.path)).collect::<Result<Vec<_>, Failure>>()?;
    let count = folders.len();
    if !folders.iter().any(|folder| folder.is(out)) {
        folders.push(Folder::target(out)?);
    }
    let target = folders.iter().position(|folder| folder.is(out));
    let copies = Copies::find(plan, &folders)?;
    if let Some(text) = mixed_arithmetic(&folders) {
        terminal::tell(&format!("WARNING: {text}"));
    }

    let (standing_there, rounds) = copies.choose(plan);
    let left = left(plan, &standing_there, &rounds);
    clear(out)?;
    let mut copied = 0;
    for run in
        (0..plan.runs.len()).filter(|position| !left.contains(position)).map(|position| &plan.runs[position])
    {
        let Some(copy) = copies.of(run) else { continue };
        if Some(copy.folder) == target {
            continue;
        }
        let runs = out.join("runs");
        if run.directory(&runs).root().exists() {
            run.set_aside(&Disk, &runs)
                .map_err(|error| Failure::file("set aside", run.directory(&runs).root(), error))?;
        }
        transfer(&folders[copy.folder].directory(&run.config.spec.name), out)?;
        copied += 1;
    }
    clear(out)?;
    terminal::tell(&format!(
        "{} of {} complete in {}; {} copied to {}",
        plan.runs.len() - left.len(),
        counted(plan.runs.len(), "run"),
        counted(count, "folder"),
        copied,
        out.display()
    ));

    let runs = out.join("runs");
    let (standing, rounds) = choose(plan, |plan| Ok(standing(plan, &runs)), &runs)?;
    let fruitless = conclude(plan, &standing, &rounds, out, arguments)?;
    match missing(plan, &left, &copies, &folders) {
        Some(text) => Err(Failure::NoProgress(text)),
        None => chosen(plan).and_then(|()| fruitful(&fruitless)),
    }
}
