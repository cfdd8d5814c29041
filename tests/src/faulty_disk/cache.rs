//! The page cache: bytes that the disk does not have yet, and that a power failure loses.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aggregator::storage::parent;
use rand::RngExt as _;
use rand_chacha::ChaCha8Rng;
use shared::seed::Seed;
use tempfile::TempDir;

/// What a death takes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Nothing: the process was killed, the system goes on.
    Nothing,
    /// All that was not synced.
    Everything,
    /// The bytes that were not synced; the names are there.
    Bytes,
    /// The names that were not synced; bytes are there.
    Names,
    /// Some of what was not synced, drawn from this seed.
    Some(u64),
}

/// A change of directory entries that may not be durable yet.
#[derive(Debug)]
pub(super) enum Entry {
    Created(PathBuf),
    CreatedDir(PathBuf),
    /// The file is kept in the stash.
    Removed(PathBuf, PathBuf),
    RemovedDir(PathBuf),
    /// From, to, and where the file is kept that was there before.
    Renamed(PathBuf, PathBuf, Option<PathBuf>),
}

impl Entry {
    /// The directories whose entries it changes.
    fn directories(&self) -> Vec<&Path> {
        match self {
            Self::Created(path) | Self::Removed(path, _) => vec![parent(path)],
            Self::CreatedDir(path) | Self::RemovedDir(path) => vec![parent(path), path],
            Self::Renamed(from, to, _) => vec![parent(from), parent(to)],
        }
    }

    /// A directory has another name.
    fn shift(&mut self, from: &Path, to: &Path) {
        let paths: Vec<&mut PathBuf> = match self {
            Self::Created(path)
            | Self::CreatedDir(path)
            | Self::Removed(path, _)
            | Self::RemovedDir(path) => {
                vec![path]
            }
            Self::Renamed(old, new, _) => vec![old, new],
        };
        for path in paths {
            if let Ok(below) = path.strip_prefix(from) {
                *path = to.join(below);
            }
        }
    }

    fn touches(&self, directories: &[PathBuf]) -> bool {
        self.directories().iter().any(|own| directories.iter().any(|other| other == own))
    }
}

/// What the operating system holds and the disk does not.
#[derive(Debug)]
pub(super) struct Cache {
    pub(super) stash: TempDir,
    pub(super) stashed: usize,
    /// In the order in which they were made.
    pub(super) entries: Vec<Entry>,
    /// For files with unsynced bytes, those that the disk holds.
    pub(super) unsynced: BTreeMap<PathBuf, Vec<u8>>,
}

impl Cache {
    /// The file is about to be written to.
    pub(super) fn touch(&mut self, path: &Path) -> io::Result<()> {
        if self.unsynced.contains_key(path) {
            return Ok(());
        }
        let durable = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.entries.push(Entry::Created(path.to_owned()));
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        self.unsynced.insert(path.to_owned(), durable);
        Ok(())
    }

    /// Renames a file and takes along what is known of it.
    fn shift(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)?;
        self.renamed(from, to);
        Ok(())
    }

    /// A file or directory has another name, and with it what is below it.
    fn renamed(&mut self, from: &Path, to: &Path) {
        let below = |path: &&PathBuf| path.starts_with(from);
        for old in self.unsynced.keys().filter(below).cloned().collect::<Vec<_>>() {
            if let (Some(durable), Ok(rest)) = (self.unsynced.remove(&old), old.strip_prefix(from)) {
                let new = if rest.as_os_str().is_empty() { to.to_owned() } else { to.join(rest) };
                self.unsynced.insert(new, durable);
            }
        }
    }

    /// Someone else is about to create a directory and its missing parents.
    pub(super) fn before_create_dir(&mut self, path: &Path) {
        let missing: Vec<_> = path.ancestors().take_while(|path| !path.exists()).collect();
        self.entries.extend(missing.into_iter().rev().map(|path| Entry::CreatedDir(path.to_owned())));
    }

    /// Someone else is about to rename a file, or a directory to a name that is free.
    pub(super) fn before_rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let replaced = if to.exists() { Some(self.put_away(to)?) } else { None };
        if from.is_dir() {
            for entry in &mut self.entries {
                entry.shift(from, to);
            }
        }
        self.renamed(from, to);
        self.entries.push(Entry::Renamed(from.to_owned(), to.to_owned(), replaced));
        Ok(())
    }

    /// Someone else is about to remove a directory with everything in it.
    pub(super) fn before_remove_dir(&mut self, path: &Path) -> io::Result<()> {
        if !path.exists() {
            return Ok(());
        }
        for entry in fs::read_dir(path)? {
            let entry = entry?.path();
            if entry.is_dir() { self.before_remove_dir(&entry)? } else { self.remove(&entry)? }
        }
        self.entries.push(Entry::RemovedDir(path.to_owned()));
        Ok(())
    }

    fn put_away(&mut self, path: &Path) -> io::Result<PathBuf> {
        self.stashed += 1;
        let kept = self.stash.path().join(self.stashed.to_string());
        self.shift(path, &kept)?;
        Ok(kept)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        let replaced = if to.exists() { Some(self.put_away(to)?) } else { None };
        self.shift(from, to)?;
        self.entries.push(Entry::Renamed(from.to_owned(), to.to_owned(), replaced));
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> io::Result<()> {
        if path.exists() {
            let kept = self.put_away(path)?;
            self.entries.push(Entry::Removed(path.to_owned(), kept));
        }
        Ok(())
    }

    /// The directory's entries are durable, and all that came before them.
    pub(super) fn sync_dir(&mut self, path: &Path) {
        let mut synced = vec![path.to_owned()];
        let mut kept = Vec::new();
        for entry in std::mem::take(&mut self.entries).into_iter().rev() {
            if entry.touches(&synced) {
                synced.extend(entry.directories().into_iter().map(Path::to_owned));
            } else {
                kept.push(entry);
            }
        }
        kept.reverse();
        self.entries = kept;
    }

    /// The power fails.
    pub(super) fn lose(&mut self, loss: Loss) -> io::Result<()> {
        if loss == Loss::Nothing {
            return Ok(());
        }
        let seed = if let Loss::Some(seed) = loss { seed } else { 0 };
        let mut chance = Seed::root(seed).derive("loss").rng();
        let mut lost: Vec<PathBuf> = Vec::new();
        let mut undone = Vec::new();
        for entry in std::mem::take(&mut self.entries) {
            let goes = match loss {
                Loss::Nothing | Loss::Bytes => false,
                Loss::Everything | Loss::Names => true,
                Loss::Some(_) => chance.random_bool(0.3),
            };
            if goes || entry.touches(&lost) {
                lost.extend(entry.directories().into_iter().map(Path::to_owned));
                undone.push(entry);
            }
        }
        while let Some(entry) = undone.pop() {
            if let Entry::Renamed(from, to, _) = &entry
                && to.is_dir()
            {
                for earlier in &mut undone {
                    earlier.shift(to, from);
                }
            }
            self.undo(entry)?;
        }
        for (path, durable) in std::mem::take(&mut self.unsynced) {
            if path.exists() {
                lose_bytes(&path, &durable, loss, &mut chance)?;
            }
        }
        Ok(())
    }

    fn undo(&mut self, entry: Entry) -> io::Result<()> {
        match entry {
            Entry::Created(path) => {
                self.unsynced.remove(&path);
                fs::remove_file(path)
            }
            Entry::CreatedDir(path) => fs::remove_dir(path),
            Entry::Removed(path, kept) => self.shift(&kept, &path),
            Entry::RemovedDir(path) => fs::create_dir(path),
            Entry::Renamed(from, to, replaced) => {
                self.shift(&to, &from)?;
                replaced.map_or(Ok(()), |kept| self.shift(&kept, &to))
            }
        }
    }
}

/// Bytes that were not synced go back to those that were, or end anywhere.
fn lose_bytes(path: &Path, durable: &[u8], loss: Loss, chance: &mut ChaCha8Rng) -> io::Result<()> {
    match loss {
        Loss::Nothing | Loss::Names => Ok(()),
        Loss::Everything | Loss::Bytes => fs::write(path, durable),
        Loss::Some(_) => match chance.random_range(0..3) {
            0 => Ok(()),
            1 => fs::write(path, durable),
            _ => {
                let bytes = fs::read(path)?;
                // Appending leaves alone what is durable; truncating does not.
                let safe = if bytes.starts_with(durable) { durable.len() } else { 0 };
                fs::write(path, &bytes[..chance.random_range(safe..=bytes.len())])
            }
        },
    }
}
