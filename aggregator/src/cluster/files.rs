//! What runs hold, in a store: their files in parts, found by their digests. What is asked of the store is in `file_store.rs`.
//!
//! A file is read once to know its digest and, if the store has no file of the run with that digest, once more to be sent. Parts come
//! first, each by itself; then one transaction makes them the run's files, if the run is still its worker's. What a worker that was
//! killed has sent before that is removed by the next worker that takes the run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest as _, Sha256};

use super::connection::Patience;
use super::error::{StoreError, disk};
use super::experiments::{Claim, ExperimentId, Then};
use super::file_store::{FileStore, Held, Of};
use crate::run::directory::RunDirectory;
use crate::runs::contents::{contents, may_go};
use crate::storage::FileLayer;

/// The bytes of a part.
const PART: usize = 1 << 20;
/// The same, as the store counts.
const PART_LENGTH: i64 = 1 << 20;

/// The digests of files that were read already, so that a large file which stays is read once.
#[derive(Debug, Default)]
pub struct Digests(BTreeMap<PathBuf, (Looks, (Vec<u8>, i64))>);

/// What tells a file from another one that has taken its place: files are replaced by renaming, or grow.
type Looks = (u64, Option<SystemTime>, u64);

impl Digests {
    /// The digest of a file, and its length.
    fn of(&mut self, path: &Path) -> Result<(Vec<u8>, i64), StoreError> {
        let looks = looks(path)?;
        if let Some((_, known)) = self.0.get(path).filter(|(former, _)| *former == looks) {
            return Ok(known.clone());
        }
        let found = digest(path)?;
        self.0.insert(path.to_owned(), (looks, found.clone()));
        Ok(found)
    }

    /// Forgets all files but these.
    fn retain(&mut self, those: &BTreeSet<PathBuf>) {
        self.0.retain(|path, _| those.contains(path));
    }
}

fn looks(path: &Path) -> Result<Looks, StoreError> {
    let metadata = std::fs::metadata(path).map_err(disk("read", path))?;
    #[cfg(unix)]
    let number = std::os::unix::fs::MetadataExt::ino(&metadata);
    #[cfg(not(unix))]
    let number = 0;
    Ok((metadata.len(), metadata.modified().ok(), number))
}

/// How a run got into the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is there.
    There,
    /// Another worker has taken the run; nothing of it was changed.
    Lost,
    /// It was given up, see [`Patience`].
    GivenUp,
}

/// Which files of a run are put into the store.
pub struct Chosen<'a> {
    /// The run.
    pub directory: &'a RunDirectory,
    /// Those parts that this names.
    pub which: &'a dyn Fn(&str) -> bool,
    /// Of earlier calls for the run.
    pub digests: &'a mut Digests,
}

/// Puts the chosen files of a run, on which nothing works meanwhile, into the store, in place of what the store has of it.
///
/// # Errors
/// Those of the disk and, but for outages, of the database.
pub fn keep(
    store: &mut dyn FileStore,
    patience: &mut dyn Patience,
    experiment: &ExperimentId,
    claim: &Claim,
    Chosen { directory, which, digests }: Chosen<'_>,
    (rounds, then): (u32, Then),
    arithmetic: &str,
) -> Result<Kept, StoreError> {
    let of = Of { experiment, run: &claim.name };
    let Some(known) = store.held(patience, of)? else { return Ok(Kept::GivenUp) };
    let (mut files, mut read) = (Vec::new(), BTreeSet::new());
    for entry in contents(directory.root())? {
        // What other programs leave, such as file managers and network file systems.
        if entry.name.split('/').any(|part| part.starts_with('.')) || !which(&entry.name) {
            continue;
        }
        if entry.folder {
            files.push(Held { path: entry.name, digest: None, bytes: 0 });
            continue;
        }
        let (digest, bytes) = match digests.of(&entry.path) {
            Err(StoreError::Disk { source, .. })
                if source.kind() == ErrorKind::NotFound && may_go(&entry.name) =>
            {
                continue;
            }
            found => found?,
        };
        read.insert(entry.path.clone());
        let file = Held { path: entry.name, digest: Some(digest.clone()), bytes };
        let is_there = |other: &Held| other.digest == file.digest;
        // An empty file has no parts.
        if bytes > 0 && !known.iter().chain(&files).any(is_there) {
            let mut number: i32 = 0;
            let sent = read_parts(&entry.path, &mut |part| {
                let sent = store.put_part(patience, of, (&digest, number), part)?;
                number += 1;
                Ok(sent.is_some())
            })?;
            if !sent {
                return Ok(Kept::GivenUp);
            }
        }
        files.push(file);
    }
    digests.retain(&read);
    let replaced = store.replace(patience, experiment, claim, &files, (rounds, then), arithmetic)?;
    match replaced {
        Some(true) => Ok(Kept::There),
        // It may be the answer to the first of two attempts that was lost.
        Some(false) => already(store, patience, of, &files, then),
        None => Ok(Kept::GivenUp),
    }
}

/// Whether the store has exactly these files of a run that has ended: what it says after the answer to the commit was lost.
fn already(
    store: &mut dyn FileStore,
    patience: &mut dyn Patience,
    of: Of<'_>,
    files: &[Held],
    then: Then,
) -> Result<Kept, StoreError> {
    if then != Then::HasEnded {
        return Ok(Kept::Lost);
    }
    Ok(match store.held(patience, of)? {
        Some(found) if found.len() == files.len() && files.iter().all(|file| found.contains(file)) => {
            Kept::There
        }
        Some(_) => Kept::Lost,
        None => Kept::GivenUp,
    })
}

/// How a run came from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// All of it is there.
    Whole,
    /// Its worker put another state into the store meanwhile.
    Replaced,
    /// It was given up, see [`Patience`].
    GivenUp,
}

/// Writes what the store has of a run into the folder `into` of a disk, which is there and empty.
///
/// # Errors
/// Those of the disk and, but for outages, of the database; and what it holds is damaged.
pub fn fetch(
    store: &mut dyn FileStore,
    patience: &mut dyn Patience,
    of: Of<'_>,
    (disk_of, into): (&dyn FileLayer, &Path),
) -> Result<Fetched, StoreError> {
    let damaged = |reason: String| StoreError::Damaged { run: of.run.to_owned(), reason };
    let Some(files) = store.held(patience, of)? else { return Ok(Fetched::GivenUp) };
    for file in &files {
        // It comes from other machines.
        if file.path.split('/').any(|part| part.is_empty() || part.starts_with('.') || part.contains('\\')) {
            return Err(damaged(format!("it has a file {:?}", file.path)));
        }
        let path = into.join(&file.path);
        let Some(digest) = &file.digest else {
            disk_of.create_dir(&path).map_err(disk("create", &path))?;
            continue;
        };
        let mut written = disk_of.create(&path).map_err(disk("write", &path))?;
        let mut hash = Sha256::new();
        let mut bytes = 0;
        while bytes < file.bytes {
            let number = i32::try_from(bytes / PART_LENGTH).unwrap_or(i32::MAX);
            let Some(part) = store.part(patience, of, (digest, number))? else { return Ok(Fetched::GivenUp) };
            let Some(part) = part.filter(|part| !part.is_empty()) else {
                let Some(now) = store.held(patience, of)? else { return Ok(Fetched::GivenUp) };
                if now != files {
                    return Ok(Fetched::Replaced);
                }
                return Err(damaged(format!("part {number} of {} is not there", file.path)));
            };
            hash.update(&part);
            bytes += i64::try_from(part.len()).unwrap_or(i64::MAX);
            written.write_all(&part).map_err(disk("write", &path))?;
        }
        if bytes != file.bytes || hash.finalize()[..] != digest[..] {
            return Err(damaged(format!("{} has another digest than it had", file.path)));
        }
        written.sync().map_err(disk("write", &path))?;
    }
    Ok(Fetched::Whole)
}

fn digest(path: &Path) -> Result<(Vec<u8>, i64), StoreError> {
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    read_parts(path, &mut |part| {
        hash.update(part);
        bytes += i64::try_from(part.len()).unwrap_or(i64::MAX);
        Ok(true)
    })?;
    Ok((hash.finalize().to_vec(), bytes))
}

/// Gives what a file holds to `take`, part by part, until that says `false`.
fn read_parts(
    path: &Path,
    take: &mut dyn FnMut(&[u8]) -> Result<bool, StoreError>,
) -> Result<bool, StoreError> {
    let mut file = File::open(path).map_err(disk("read", path))?;
    let mut part = Vec::with_capacity(PART);
    loop {
        part.clear();
        (&mut file).take(PART as u64).read_to_end(&mut part).map_err(disk("read", path))?;
        if part.is_empty() {
            return Ok(true);
        }
        if !take(&part)? {
            return Ok(false);
        }
    }
}
