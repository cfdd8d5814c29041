//! The locks of an experiment's folder: one process works on the whole, or several on a shard each.

use std::fs::{File, TryLockError};
use std::path::Path;

use shared::durable::lock_shared;

use super::super::exit::Failure;
use crate::compare::shard::Shard;
use crate::compare::shard::record;
use crate::storage::{Disk, FileLayer as _, create_dir_durably, parent};

/// Creates the experiment's folder and keeps all other processes off it.
pub(super) fn whole(out: &Path) -> Result<File, Failure> {
    create(&out.join("runs"))?;
    exclusive(&out.join("lock"), || {
        format!(
            "{} is in use by another aggregator: stop that one or wait for it, or name another --out",
            out.display()
        )
    })
}

/// Creates the experiment's folder and keeps those off it that work on the whole, or on the same shard.
pub(super) fn shard(out: &Path, shard: Shard) -> Result<[File; 2], Failure> {
    create(&out.join("runs"))?;
    let path = out.join("lock");
    // Some file systems lock only what can be written.
    let file = File::options().create(true).append(true).read(true).open(&path);
    let file = file.map_err(|error| Failure::file("open", &path, error))?;
    lock_shared(&file).map_err(failure(&path, || {
        format!(
            "{} is in use by an aggregator that runs or collects the whole experiment: wait for it, or name another --out",
            out.display()
        )
    }))?;
    let own = record::lock(out, shard);
    create(parent(&own))?;
    let own = exclusive(&own, || {
        format!("another aggregator works on shard {shard} in {}: wait for it, or stop it", out.display())
    })?;
    Ok([file, own])
}

/// Keeps processes off a folder whose runs are read. `None` where there is no lock, or none can be taken: of a copy, or of what cannot be
/// written.
pub(super) fn to_read(folder: &Path) -> Result<Option<File>, Failure> {
    let path = folder.join("lock");
    let Ok(file) = File::options().append(true).read(true).open(&path) else { return Ok(None) };
    match shared::durable::lock(&file) {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::Error(_)) => Ok(None),
        Err(TryLockError::WouldBlock) => Err(Failure::Environment(format!(
            "a shard still works in {}: collect it when all shards have ended",
            folder.display()
        ))),
    }
}

fn create(folder: &Path) -> Result<(), Failure> {
    create_dir_durably(&Disk, folder).map_err(|error| Failure::file("create", folder, error))
}

fn exclusive(path: &Path, held: impl FnOnce() -> String) -> Result<File, Failure> {
    Disk.lock(path).map_err(failure(path, held))
}

fn failure(path: &Path, held: impl FnOnce() -> String) -> impl FnOnce(TryLockError) -> Failure {
    move |error| match error {
        TryLockError::WouldBlock => Failure::Environment(held()),
        TryLockError::Error(error) => Failure::file("lock", path, error),
    }
}
