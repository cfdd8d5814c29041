//! A run, from the store into its folder.

use std::fs::{self, TryLockError};
use std::path::Path;
use std::time::Duration;

use tracing::warn;

use super::leadership::wait_while;
use super::standing::ServedRun;
use crate::cluster::address::StoreAddress;
use crate::cluster::connection::{Connection, Patience};
use crate::cluster::error::{StoreError, disk};
use crate::cluster::file_store::{FileStore, Of};
use crate::cluster::files::{Fetched, fetch};
use crate::run::directory::RunDirectory;
use crate::storage::checksum::{read_checked, write_checked};
use crate::storage::{Disk, FileLayer, create_dir_durably, write_privately};

/// What a run that is brought from the store is called until it is whole.
const PREFIX: &str = ".arriving-";
/// What the run that was there before is called until it is removed.
const FORMER: &str = ".former-";
/// Beside a run that this process has begun, and that the store may never have got: which run of the store it was to be.
const BEGUN: &str = ".begun-";

/// Waits through outages for as long as it is wanted.
pub struct Wanted<'a>(pub &'a dyn Fn() -> bool);

impl Patience for Wanted<'_> {
    /// It has a connection of its own: it may be in trouble alone.
    fn outage(&mut self, why: &StoreError) {
        warn!(
            "what the run goes on from cannot be read from the store: {why}; this server begins when it can"
        );
    }

    fn over(&mut self) {
        warn!("what the run goes on from can be read from the store again");
    }

    fn wait(&mut self, time: Duration) -> bool {
        wait_while(time, self.0)
    }
}

/// Puts what the store has of the run into its folder under `runs`, in place of what an earlier turn of this process has left there.
/// `false` if the store has nothing of it yet, or it is not `wanted` any more.
///
/// # Errors
/// Those of the store and of the disk.
pub fn fetch_run(
    store: &mut dyn FileStore,
    run: &ServedRun,
    (files, runs): (&dyn FileLayer, &Path),
    wanted: &dyn Fn() -> bool,
) -> Result<bool, StoreError> {
    let of = Of { experiment: &run.id, run: &run.name };
    let arriving = runs.join(format!("{PREFIX}{}", run.name));
    loop {
        files.remove_dir(&arriving).map_err(disk("remove", &arriving))?;
        create_dir_durably(files, &arriving).map_err(disk("create", &arriving))?;
        match fetch(store, &mut Wanted(wanted), of, (files, &arriving))? {
            Fetched::Whole => break,
            Fetched::Replaced => {}
            Fetched::GivenUp => return Ok(false),
        }
    }
    let (found, place) = (RunDirectory::new(&arriving), runs.join(&run.name));
    let begun = runs.join(format!("{BEGUN}{}", run.name));
    if files.length(&found.identity()).map_err(disk("look at", &arriving))?.is_none() {
        files.remove_dir(&arriving).map_err(disk("remove", &arriving))?;
        if files.length(&place).map_err(disk("look at", &place))?.is_none() {
            write_checked(files, &begun, |out| out.write_all(&run.id)).map_err(disk("write", &begun))?;
        }
        return Ok(false);
    }
    let here = RunDirectory::new(&place);
    let identity = |directory: &RunDirectory| fs::read(directory.identity()).ok();
    // Another process may have begun the run instead, before this one's beginning was in the store.
    let is_own = || read_checked(files, &begun).ok().flatten().as_deref() == Some(&run.id[..]);
    if place.exists() && identity(&here) != identity(&found) && !is_own() {
        return Err(StoreError::Occupied { path: place });
    }
    // At no moment is a part of a run there.
    let former = runs.join(format!("{FORMER}{}", run.name));
    files.remove_dir(&former).map_err(disk("remove", &former))?;
    if place.exists() {
        files.rename(&place, &former).map_err(disk("move", &place))?;
    }
    files.rename(&arriving, &place).map_err(disk("move to", &place))?;
    files.remove(&begun).map_err(disk("remove", &begun))?;
    files.sync_dir(runs).map_err(disk("sync", runs))?;
    files.remove_dir(&former).map_err(disk("remove", &former))?;
    Ok(true)
}

/// When the store first heard of the run, by the store's clock: no other run has the same name and moment. `None` if it is not `wanted` any
/// more.
///
/// # Errors
/// Those of the store.
pub fn born(
    store: &StoreAddress,
    run: &ServedRun,
    wanted: &dyn Fn() -> bool,
) -> Result<Option<String>, StoreError> {
    let mut connection = Connection::new(store.clone());
    connection.lasting(&mut Wanted(wanted), &mut |client| {
        let row = client.query_one(
            "SELECT (extract(epoch FROM created) * 1000000)::bigint FROM experiments WHERE id = $1",
            &[&&run.id[..]],
        )?;
        Ok(row.get::<_, i64>(0).to_string())
    })
}

/// Puts the secret of a private run where the run looks for it. All servers derive the same one from their common key.
///
/// # Errors
/// Those of the disk.
pub fn put_secret(place: &RunDirectory, secret: &[u8; 32]) -> Result<(), StoreError> {
    let (state, path) = (place.state(), place.secret());
    create_dir_durably(&Disk, &state).map_err(disk("create", &state))?;
    // The lock comes first: without it, what is here would be taken for someone else's.
    if let Err(TryLockError::Error(error)) = Disk.lock(&place.lock()) {
        return Err(disk("lock", &state)(error));
    }
    write_privately(&Disk, &path, secret).map_err(disk("write", &path))
}
