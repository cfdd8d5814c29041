//! A file layer that dies at a chosen operation, as a process does that is killed there, or with the power.
//!
//! What was written and not synced is remembered together with what the disk holds in its place. When the power fails,
//! each piece of it may be lost: a file's bytes back to what was last synced, or cut anywhere; a directory's entries
//! back to what they were when it was last synced. Entries of one directory become durable in the order in which they
//! were made, and a rename is one step for both of its directories: file systems with a journal do that much. Nothing
//! is ever really synced, which would cost time and prove nothing.

mod cache;

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aggregator::storage::{Disk, DurableFile, FileLayer, private};
use edge_client::store::faults::Operation;

use cache::{Cache, Entry};

pub use cache::Loss;

/// Counts operations; at the chosen one it dies, and every later one fails.
#[derive(Clone, Debug)]
pub struct FaultyDisk {
    operations: Arc<AtomicUsize>,
    fatal: usize,
    loss: Loss,
    dead: Arc<AtomicBool>,
    cache: Arc<Mutex<Cache>>,
    /// Operations at which there is no room for anything more.
    full: Range<usize>,
    /// Number of waits for free space.
    waits: Arc<AtomicUsize>,
}

impl FaultyDisk {
    /// Never dies, but counts.
    #[must_use]
    pub fn counting() -> Self {
        Self::dying_at(usize::MAX, Loss::Nothing)
    }

    /// Dies at operation number `fatal`, counted from 0.
    ///
    /// # Panics
    /// If the system has no place for temporary files.
    #[must_use]
    pub fn dying_at(fatal: usize, loss: Loss) -> Self {
        let stash = tempfile::tempdir().expect("the system has a place for temporary files");
        let cache = Cache { stash, stashed: 0, entries: Vec::new(), unsynced: BTreeMap::new() };
        Self {
            operations: Arc::default(),
            fatal,
            loss,
            dead: Arc::default(),
            cache: Arc::new(Mutex::new(cache)),
            full: 0..0,
            waits: Arc::default(),
        }
    }

    /// The disk as the next process finds it, which dies at operation `fatal` of its own. What the one before has
    /// written and not synced is still to be lost.
    #[must_use]
    pub fn next_life(&self, fatal: usize, loss: Loss) -> Self {
        let (operations, dead, waits) = (Arc::default(), Arc::default(), self.waits.clone());
        Self { operations, fatal, loss, dead, cache: self.cache.clone(), full: self.full.clone(), waits }
    }

    /// The same, with no free space at these operations; a wait for space lasts until the next operation.
    #[must_use]
    pub fn full_during(self, full: Range<usize>) -> Self {
        Self { full, ..self }
    }

    /// Number of waits for free space.
    #[must_use]
    pub fn waits(&self) -> usize {
        self.waits.load(Ordering::Relaxed)
    }

    /// Operations so far.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.operations.load(Ordering::Relaxed)
    }

    /// Has it died?
    #[must_use]
    pub fn dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    /// The power fails now.
    ///
    /// # Panics
    /// If the temporary directory cannot be written.
    pub fn cut_power(&self, loss: Loss) {
        self.cache().lose(loss).expect("the temporary directory can be written");
    }

    /// The next operation, which a device's store makes itself afterwards.
    pub fn before(&self, operation: Operation<'_>) -> io::Result<()> {
        let mut cache = self.step()?;
        match operation {
            Operation::CreateDir(path) => {
                cache.before_create_dir(path);
                Ok(())
            }
            Operation::Write(path) => cache.touch(path),
            Operation::Rename(from, to) => cache.before_rename(from, to),
            Operation::RemoveFile(path) => cache.remove(path),
            Operation::RemoveDir(path) => cache.before_remove_dir(path),
            Operation::Sync(path) if path.is_dir() => {
                cache.sync_dir(path);
                Ok(())
            }
            Operation::Sync(path) => {
                cache.unsynced.remove(path);
                Ok(())
            }
        }
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next operation, unless this is where it dies.
    fn step(&self) -> io::Result<MutexGuard<'_, Cache>> {
        let number = self.operations.fetch_add(1, Ordering::Relaxed);
        if number < self.fatal && !self.dead() {
            return Ok(self.cache());
        }
        if !self.dead.swap(true, Ordering::Relaxed) {
            self.cache().lose(self.loss)?;
        }
        Err(io::Error::other("the process died here"))
    }

    /// The next operation, if there is room for it. Payloads under way are another test's.
    fn step_with_room(&self, path: &Path) -> io::Result<MutexGuard<'_, Cache>> {
        let number = self.operations();
        let cache = self.step()?;
        let spooled = path.parent().is_some_and(|parent| parent.ends_with("spool"));
        if self.full.contains(&number) && !spooled {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(cache)
    }

    fn write(&self, path: &Path, file: &mut File, bytes: &[u8]) -> io::Result<()> {
        // Dies before, in the middle, or not at all.
        let (first, second) = bytes.split_at(bytes.len() / 2);
        for half in [first, second] {
            let _alive = self.step_with_room(path)?;
            file.write_all(half)?;
        }
        Ok(())
    }
}

struct FaultyFile {
    file: File,
    path: PathBuf,
    disk: FaultyDisk,
}

impl Write for FaultyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.disk.write(&self.path, &mut self.file, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.disk.step_with_room(&self.path).map(drop)
    }
}

impl DurableFile for FaultyFile {
    fn sync(&mut self) -> io::Result<()> {
        self.disk.step_with_room(&self.path)?.unsynced.remove(&self.path);
        Ok(())
    }
}

impl FileLayer for FaultyDisk {
    fn wait_for_space(&self, _: &Path, _: io::Error) -> io::Result<()> {
        self.waits.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DurableFile>> {
        self.step_with_room(path)?.touch(path)?;
        Ok(Box::new(FaultyFile { file: File::create(path)?, path: path.to_owned(), disk: self.clone() }))
    }

    fn create_private(&self, path: &Path) -> io::Result<Box<dyn DurableFile>> {
        self.remove(path)?;
        self.step()?.touch(path)?;
        Ok(Box::new(FaultyFile { file: private(path)?, path: path.to_owned(), disk: self.clone() }))
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        self.step_with_room(path)?.touch(path)?;
        let mut file = File::options().create(true).append(true).open(path)?;
        let before = file.metadata()?.len();
        let appended = self.write(path, &mut file, bytes).and_then(|()| self.step_with_room(path));
        match appended {
            Ok(mut cache) => {
                cache.unsynced.remove(path);
                Ok(())
            }
            Err(error) => {
                if !self.dead() {
                    file.set_len(before)?;
                }
                Err(error)
            }
        }
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        let _alive = self.step()?;
        Disk.open(path)
    }

    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        let _alive = self.step()?;
        Disk.length(path)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        self.step()?.unsynced.remove(path);
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step_with_room(to)?.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?.remove(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let missing: Vec<_> = path.ancestors().take_while(|path| !path.exists()).collect();
        for path in missing.into_iter().rev() {
            let mut cache = self.step_with_room(path)?;
            fs::create_dir(path)?;
            cache.entries.push(Entry::CreatedDir(path.to_owned()));
        }
        self.step().map(drop)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        if !path.exists() {
            return self.step().map(drop);
        }
        for entry in fs::read_dir(path)? {
            let entry = entry?.path();
            if entry.is_dir() {
                self.remove_dir(&entry)?;
            } else {
                self.step()?.remove(&entry)?;
            }
        }
        let mut cache = self.step()?;
        fs::remove_dir(path)?;
        cache.entries.push(Entry::RemovedDir(path.to_owned()));
        Ok(())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.step()?.sync_dir(path);
        Ok(())
    }

    fn lock(&self, path: &Path) -> Result<File, TryLockError> {
        let mut cache = self.step().map_err(TryLockError::Error)?;
        if !path.exists() {
            cache.touch(path).map_err(TryLockError::Error)?;
        }
        Disk.lock(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let _alive = self.step()?;
        Disk.list(path)
    }
}

#[cfg(test)]
mod tests;
