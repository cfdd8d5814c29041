//! What a shard leaves beside its runs: which part of which experiment it was, and what ran it.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::Shard;
use super::split::Split;
use crate::compare::plan::Plan;
use crate::report::standing::Process;
use crate::storage::{FileLayer, create_dir_durably, read_if_there, write_durably};

/// The folder of the records, beside that of the runs.
const FOLDER: &str = "shards";

/// `shards/2-of-5.json`. Every shard writes its own, so that several can work in one folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The shard.
    pub shard: Shard,
    /// The experiment's form.
    pub form: String,
    /// Its seeds.
    pub seeds: Vec<u64>,
    /// Its runs that are planned from the start, in the order of the plan.
    pub runs: Vec<String>,
    /// What has worked on it, each once.
    pub machines: Vec<Machine>,
}

/// A machine that has worked on a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name, and the program's version.
    #[serde(flatten)]
    pub process: Process,
    /// [What computes](models::Backend::arithmetic) there.
    pub arithmetic: String,
}

/// Why records cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The disk.
    #[error("cannot read {}: {source}", path.display())]
    Disk {
        /// The file or folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// It is damaged, or of another program.
    #[error("{} is no record of a shard ({reason}): copy it again, or remove it", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl Record {
    /// That of `shard` of the whole `plan`, before anything is chosen. No machine has worked on it.
    #[must_use]
    pub fn of(plan: &Plan, shard: Shard, split: &Split) -> Self {
        let first = plan.experiment.seeds.first();
        let planned = plan.runs.iter().filter(|run| run.candidate.is_none() || Some(&run.seed) == first);
        let own = planned.filter(|run| split.has(shard, run));
        Self {
            shard,
            form: plan.experiment.form.clone(),
            seeds: plan.experiment.seeds.clone(),
            runs: own.map(|run| run.config.spec.name.clone()).collect(),
            machines: Vec::new(),
        }
    }

    /// Writes it in the experiment's folder `out`, with `machine` among those that an earlier record names.
    ///
    /// # Errors
    /// Those of the disk. An earlier record that cannot be read is replaced.
    pub fn write(mut self, files: &dyn FileLayer, out: &Path, machine: Machine) -> io::Result<()> {
        let path = path(out, self.shard, "json");
        create_dir_durably(files, &out.join(FOLDER))?;
        let earlier =
            read_if_there(files, &path)?.and_then(|json| serde_json::from_slice::<Self>(&json).ok());
        self.machines = earlier.map(|earlier| earlier.machines).unwrap_or_default();
        if !self.machines.contains(&machine) {
            self.machines.push(machine);
        }
        let json = serde_json::to_string_pretty(&self).expect("names and numbers are JSON");
        write_durably(files, &path, |file| file.write_all(json.as_bytes()))
    }

    /// All records in the experiment's folder `out`, in the order of the shards.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub fn all(files: &dyn FileLayer, out: &Path) -> Result<Vec<Self>, RecordError> {
        let folder = out.join(FOLDER);
        let disk = |path: &Path| {
            let path = path.to_owned();
            |source| RecordError::Disk { path, source }
        };
        if files.length(&folder).map_err(disk(&folder))?.is_none() {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        let paths = files.list(&folder).map_err(disk(&folder))?.into_iter().map(|name| folder.join(name));
        for path in paths.filter(|path| path.extension().is_some_and(|extension| extension == "json")) {
            let json = read_if_there(files, &path).map_err(disk(&path))?.unwrap_or_default();
            let record: Self = serde_json::from_slice(&json)
                .map_err(|error| RecordError::Content { path, reason: error.to_string() })?;
            found.push(record);
        }
        found.sort_by_key(|record| record.shard);
        Ok(found)
    }
}

/// The file that the process which works on a shard in `out` has locked.
#[must_use]
pub fn lock(out: &Path, shard: Shard) -> PathBuf {
    path(out, shard, "lock")
}

fn path(out: &Path, shard: Shard, extension: &str) -> PathBuf {
    out.join(FOLDER).join(format!("{}-of-{}.{extension}", shard.number(), shard.of()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::plan::tests::plan;
    use crate::storage::Disk;

    fn machine(host: &str) -> Machine {
        let process = Process { host: Some(host.to_owned()), version: "1.0.0".to_owned() };
        Machine { process, arithmetic: "AVX2".to_owned() }
    }

    #[test]
    fn shards_leave_their_records_side_by_side_with_all_their_machines() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let out = folder.path();
        let plan = plan("seeds = 3\n[variants.x]\nmodel.name = 'linear'", "full").expect("a plan");
        let split = Split::of(&plan, 2);
        assert_eq!(Record::all(&Disk, out).expect("nothing is there"), []);
        let shards = ["2/2", "1/2"].map(|text| text.parse::<Shard>().expect("a shard"));
        for (shard, host) in [(shards[0], "a"), (shards[1], "b"), (shards[1], "c"), (shards[1], "b")] {
            Record::of(&plan, shard, &split).write(&Disk, out, machine(host)).expect("written");
        }
        let found = Record::all(&Disk, out).expect("two records");
        let runs: Vec<_> = found.iter().map(|record| (record.shard, record.runs.join(" "))).collect();
        assert_eq!(runs, [(shards[1], "x--1 x--3".to_owned()), (shards[0], "x--2".to_owned())]);
        assert_eq!(found[0].machines, [machine("b"), machine("c")]);
        assert_eq!((found[0].form.as_str(), &found[0].seeds[..]), ("full", &[1, 2, 3][..]));

        std::fs::write(out.join("shards/1-of-2.json"), "{\"shard\": \"3/2\"}").expect("written");
        let refused = Record::all(&Disk, out).expect_err("damaged").to_string();
        assert!(refused.contains("1-of-2.json is no record of a shard"), "{refused}");
    }
}
