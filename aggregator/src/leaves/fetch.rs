//! A run, from the store into its folder.

use std::fs::TryLockError;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing::warn;

use super::leadership::wait_while;
use super::standing::ServedRun;
use crate::cluster::address::StoreAddress;
use crate::cluster::connection::{Connection, Patience};
use crate::cluster::error::{StoreError, disk};
use crate::cluster::file_store::{FileStore, Of};
use crate::cluster::files::{Fetched, fetch};
use crate::run::RunManifest;
use crate::run::directory::{RunDirectory, newest_checkpoint};
use crate::storage::checksum::{read_checked, write_checked};
use crate::storage::{Disk, FileLayer, create_dir_durably, parent, read_if_there, write_privately};

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

/// Puts what the store has of the run into its folder under `runs`, in place of what an earlier turn of this process has left there. Where
/// that is more than the store has, it is kept under another name, which is told. `false` if the store has nothing of the run yet; `None`
/// if it is not `wanted` any more.
///
/// # Errors
/// Those of the store and of the disk.
pub fn fetch_run(
    store: &mut dyn FileStore,
    run: &ServedRun,
    (files, runs): (&dyn FileLayer, &Path),
    wanted: &dyn Fn() -> bool,
) -> Result<Option<bool>, StoreError> {
    let of = Of { experiment: &run.id, run: &run.name };
    let named = |prefix: &str| runs.join(format!("{prefix}{}", run.name));
    let (arriving, former, place) = (named(PREFIX), named(FORMER), named(""));
    loop {
        files.remove_dir(&arriving).map_err(disk("remove", &arriving))?;
        create_dir_durably(files, &arriving).map_err(disk("create", &arriving))?;
        match fetch(store, &mut Wanted(wanted), of, (files, &arriving))? {
            Fetched::Whole => break,
            Fetched::Replaced => {}
            Fetched::GivenUp => return Ok(None),
        }
    }
    // A process that died between the two renames below has left the run under that name alone.
    if former.exists() && !place.exists() {
        files.rename(&former, &place).map_err(disk("move", &former))?;
    }
    let (found, here) = (RunDirectory::new(&arriving), RunDirectory::new(&place));
    let begun = begun(runs, run);
    if files.length(&found.identity()).map_err(disk("look at", &arriving))?.is_none() {
        files.remove_dir(&arriving).map_err(disk("remove", &arriving))?;
        if files.length(&place).map_err(disk("look at", &place))?.is_none() {
            write_checked(files, &begun, |out| out.write_all(&run.id)).map_err(disk("write", &begun))?;
        }
        return Ok(Some(false));
    }
    let same = is_same(&here, &found);
    // Another process may have begun the run instead, before this one's beginning was in the store.
    let is_own = || read_checked(files, &begun).ok().flatten().as_deref() == Some(&run.id[..]);
    if place.exists() && !same && !is_own() {
        return Err(StoreError::Occupied { path: place });
    }
    let lost = Lost::between(&here, &found, same);
    let aside = if lost.is_some() { free_name(runs, &run.name) } else { former.clone() };
    if let Some(Lost { here, there }) = &lost {
        // Before it is moved: it would not be noticed after a crash.
        warn!(
            "this server has {here} closed rounds of the run {}, and the store has {there}: the store was lost or put back to an earlier \
             state, or another server began from an older copy. The run goes on from what the store has, and what is here is kept as {}; \
             remove that when you do not need it",
            run.name,
            aside.display()
        );
    }
    // At no moment is a part of a run there.
    files.remove_dir(&former).map_err(disk("remove", &former))?;
    if place.exists() {
        files.rename(&place, &aside).map_err(disk("move", &place))?;
    }
    files.rename(&arriving, &place).map_err(disk("move to", &place))?;
    files.remove(&begun).map_err(disk("remove", &begun))?;
    files.sync_dir(runs).map_err(disk("sync", runs))?;
    files.remove_dir(&former).map_err(disk("remove", &former))?;
    Ok(Some(true))
}

/// The mark of a run that this process begins.
fn begun(runs: &Path, run: &ServedRun) -> PathBuf {
    runs.join(format!("{BEGUN}{}", run.name))
}

/// Takes note that the store has the run in `place`: from now on no other one takes its place here.
pub(super) fn note_in_store(place: &RunDirectory, run: &ServedRun) -> Result<(), StoreError> {
    let runs = parent(place.root());
    let begun = begun(runs, run);
    // It is there once in a run, and this is asked for every round.
    if begun.exists() {
        Disk.remove(&begun).map_err(disk("remove", &begun))?;
        Disk.sync_dir(runs).map_err(disk("sync", runs))?;
    }
    Ok(())
}

/// Whether two folders hold the same run, under any configuration.
fn is_same(one: &RunDirectory, other: &RunDirectory) -> bool {
    let identity = |directory: &RunDirectory| {
        let manifest = RunManifest::read(&Disk, directory).ok().flatten();
        manifest.map(|manifest| manifest.run)
    };
    identity(one).is_some_and(|run| identity(other) == Some(run))
}

/// Closed rounds that are here and not in the store.
struct Lost {
    here: u32,
    there: u32,
}

impl Lost {
    /// Those of the run `here`, which is the `same` as the one that was `found` in the store, or another one.
    fn between(here: &RunDirectory, found: &RunDirectory, same: bool) -> Option<Self> {
        let closed = |directory: &RunDirectory| newest_checkpoint(&Disk, directory).unwrap_or(0);
        let (here, there) = (closed(here), closed(found));
        // A round that has closed here is not in the store at once. A run that the store never got has closed none.
        let most = if same { there.saturating_add(1) } else { 0 };
        (here > most).then_some(Self { here, there })
    }
}

/// A name for what is kept of a run, which nothing has yet.
fn free_name(runs: &Path, run: &str) -> PathBuf {
    let named = |number: u32| runs.join(format!("{run}-kept-{number}"));
    let mut number = 1;
    while named(number).exists() {
        number += 1;
    }
    named(number)
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

/// Puts the secret of a private run where the run looks for it. All servers derive the same one from their common key. That of a
/// run that has begun stays: with another secret, a round might be published a second time with other noise.
///
/// # Errors
/// Those of the disk, and [`StoreError::OtherSecret`].
pub fn put_secret(place: &RunDirectory, secret: &[u8; 32]) -> Result<(), StoreError> {
    let (state, path) = (place.state(), place.secret());
    match read_if_there(&Disk, &path).map_err(disk("read", &path))? {
        Some(there) if there == secret => return Ok(()),
        // Where there is no run, nothing was published with it.
        Some(_) if place.identity().exists() => return Err(StoreError::OtherSecret { path }),
        _ => {}
    }
    create_dir_durably(&Disk, &state).map_err(disk("create", &state))?;
    // The lock comes first: without it, what is here would be taken for someone else's.
    if let Err(TryLockError::Error(error)) = Disk.lock(&place.lock()) {
        return Err(disk("lock", &state)(error));
    }
    write_privately(&Disk, &path, secret).map_err(disk("write", &path))
}
