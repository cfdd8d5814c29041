//! A folder that shards have worked in: its runs, and the records of the shards.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::{CollectError, disk};
use crate::compare::plan::Plan;
use crate::compare::shard::Shard;
use crate::compare::shard::record::Record;
use crate::compare::shard::split::Split;
use crate::run::directory::RunDirectory;
use crate::storage::{Disk, FileLayer as _};

/// A folder with runs of the experiment.
#[derive(Clone, Debug)]
pub struct Folder {
    /// The folder itself.
    pub path: PathBuf,
    /// That of the runs in it.
    pub runs: PathBuf,
    /// The names of the runs.
    pub names: Vec<String>,
    /// The records of its shards; none of a folder that was not named, or of one that a whole experiment left.
    pub records: Vec<Record>,
    /// Whether it was named to be collected, and is not just where the collection goes.
    pub named: bool,
}

impl Folder {
    /// The folder at `path`, which was named to be collected.
    ///
    /// # Errors
    /// It is none, or holds nothing of a shard.
    pub fn named(path: &Path) -> Result<Self, CollectError> {
        if !path.exists() {
            return Err(CollectError::Absent(path.to_owned()));
        }
        if !path.is_dir() {
            return Err(CollectError::File(path.to_owned()));
        }
        let found = Self { records: Record::all(&Disk, path)?, named: true, ..Self::target(path)? };
        if !found.names.is_empty() || !found.records.is_empty() {
            return Ok(found);
        }
        let of_runs = !runs_in(path)?.is_empty();
        Err(if of_runs { CollectError::Runs(path.to_owned()) } else { CollectError::Empty(path.to_owned()) })
    }

    /// The folder that the collection goes to, which may have runs of an earlier one.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn target(path: &Path) -> Result<Self, CollectError> {
        let runs = path.join("runs");
        let names = if runs.is_dir() { runs_in(&runs)? } else { Vec::new() };
        Ok(Self { path: path.to_owned(), runs, names, records: Vec::new(), named: false })
    }

    /// Whether both are one folder, however they are named.
    #[must_use]
    pub fn is(&self, path: &Path) -> bool {
        let real = |path: &Path| path.canonicalize().ok();
        real(&self.path).is_some_and(|own| Some(own) == real(path))
    }

    /// The directory of a run in it.
    #[must_use]
    pub fn directory(&self, run: &str) -> RunDirectory {
        RunDirectory::new(self.runs.join(run))
    }

    /// Refuses shards and runs that are not of this experiment as it is planned.
    ///
    /// # Errors
    /// [`CollectError::Shard`] and [`CollectError::Unknown`].
    pub fn check(&self, plan: &Plan) -> Result<(), CollectError> {
        let mut splits: BTreeMap<u16, Split> = BTreeMap::new();
        for record in &self.records {
            let split = splits.entry(record.shard.of()).or_insert_with(|| Split::of(plan, record.shard.of()));
            let planned = Record::of(plan, record.shard, split);
            if let Some(why) = difference(record, &planned) {
                return Err(CollectError::Shard { path: self.path.clone(), shard: record.shard, why });
            }
        }
        let planned = |name: &String| plan.possible().any(|run| run.config.spec.name == *name);
        let unknown = self.names.iter().filter(|name| self.named && !planned(name));
        let runs: Vec<String> = unknown.map(|name| self.runs.join(name).display().to_string()).collect();
        if runs.is_empty() {
            return Ok(());
        }
        let with = format!("the form {} and the seeds {}", plan.experiment.form, plan.seeds());
        Err(CollectError::Unknown { with, runs })
    }
}

/// In what a shard's record differs from what is planned for it.
fn difference(record: &Record, planned: &Record) -> Option<String> {
    let list = |seeds: &[u64]| seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    if record.form != planned.form {
        return Some(format!("its form is {} there and {} here", record.form, planned.form));
    }
    if record.seeds != planned.seeds {
        return Some(format!(
            "its seeds are {} there and {} here",
            list(&record.seeds),
            list(&planned.seeds)
        ));
    }
    let only = |one: &Record, other: &Record| one.runs.iter().find(|run| !other.runs.contains(run)).cloned();
    let there = only(record, planned).map(|run| format!("its run {run} is none of that shard here"));
    there.or_else(|| {
        only(planned, record).map(|run| format!("it lacks the run {run}, which that shard has here"))
    })
}

/// The shards that have left records, without those that two folders have.
#[must_use]
pub fn shards(folders: &[Folder]) -> Vec<Shard> {
    let mut shards: Vec<Shard> =
        folders.iter().flat_map(|folder| &folder.records).map(|record| record.shard).collect();
    shards.sort_unstable();
    shards.dedup();
    shards
}

/// A warning if shards were computed in ways whose results differ.
#[must_use]
pub fn mixed_arithmetic(folders: &[Folder]) -> Option<String> {
    let mut by: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for record in folders.iter().flat_map(|folder| &folder.records) {
        for machine in &record.machines {
            let shards = by.entry(&machine.arithmetic).or_default();
            let shard = record.shard.to_string();
            if !shards.contains(&shard) {
                shards.push(shard);
            }
        }
    }
    let said: Vec<String> =
        by.iter().map(|(arithmetic, shards)| format!("{arithmetic} ({})", shards.join(", "))).collect();
    (said.len() > 1).then(|| {
        format!(
            "the shards were computed with {}: their results differ in the last digits from those of one machine",
            said.join(" and ")
        )
    })
}

/// The names of the runs in a folder.
fn runs_in(folder: &Path) -> Result<Vec<String>, CollectError> {
    let mut names = Disk.list(folder).map_err(disk("list", folder))?;
    names.retain(|name| RunDirectory::new(folder.join(name)).identity().is_file());
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::plan::tests::plan;
    use crate::compare::shard::record::Machine;
    use crate::report::standing::Process;

    fn folder(plan: &Plan, shards: &[(&str, &str)]) -> Folder {
        let record = |&(shard, arithmetic): &(&str, &str)| {
            let shard: Shard = shard.parse().expect("a shard");
            let machine = Machine { process: Process::this(), arithmetic: arithmetic.to_owned() };
            Record { machines: vec![machine], ..Record::of(plan, shard, &Split::of(plan, shard.of())) }
        };
        let records = shards.iter().map(record).collect();
        Folder { path: "a".into(), runs: "a/runs".into(), names: Vec::new(), records, named: true }
    }

    fn three(text: &str) -> Plan {
        plan(&format!("seeds = 3\n[variants.x]\nmodel.name = 'linear'\n{text}"), "full").expect("a plan")
    }

    #[test]
    fn machines_that_compute_otherwise_are_named_with_their_shards() {
        let plan = three("");
        let same = [folder(&plan, &[("1/3", "AVX2")]), folder(&plan, &[("2/3", "AVX2"), ("1/3", "AVX2")])];
        assert_eq!(mixed_arithmetic(&same), None);
        assert_eq!(shards(&same).iter().map(Shard::to_string).collect::<Vec<_>>(), ["1/3", "2/3"]);
        let mixed = [folder(&plan, &[("1/3", "CUDA"), ("3/3", "AVX2")]), folder(&plan, &[("2/3", "AVX2")])];
        let text = mixed_arithmetic(&mixed).expect("two kinds");
        assert!(text.starts_with("the shards were computed with AVX2 (3/3, 2/3) and CUDA (1/3): "), "{text}");
    }

    #[test]
    fn a_record_is_of_the_experiment_that_would_split_the_same_runs() {
        let plan = three("");
        let recorded = folder(&plan, &[("2/3", "AVX2")]);
        recorded.check(&three("training.batch = 8")).expect("what configurations say is for the runs");
        let refused = |plan: &Plan| recorded.check(plan).expect_err("another one").to_string();
        let seeds = plan_of("seeds = 2\n[variants.x]\nmodel.name = 'linear'");
        assert!(refused(&seeds).contains("its seeds are 1, 2, 3 there and 1, 2 here"), "{}", refused(&seeds));
        let more = three("[variants.y]\nmodel.name = 'linear'");
        let text = refused(&more);
        assert!(
            text.starts_with("a holds shard 2/3 of another experiment: it lacks the run y--2, which"),
            "{text}"
        );
    }

    fn plan_of(text: &str) -> Plan {
        plan(text, "full").expect("a plan")
    }
}
