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

use aggregator::files::{Disk, DurableFile, FileLayer, private};

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
    /// How often somebody waited for room.
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

    /// The same, with no room at these of the operations; whoever waits for room waits for the next operation.
    #[must_use]
    pub fn full_during(self, full: Range<usize>) -> Self {
        Self { full, ..self }
    }

    /// How often somebody waited for room.
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
    fn wait_for_room(&self, _: &Path, _: io::Error) -> io::Result<()> {
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
mod tests {
    use aggregator::files::write_durably;

    use super::*;

    /// Does `work` on a disk where `old` lies durably, lets the power fail, and gives what is left.
    fn after(loss: Loss, work: impl Fn(&FaultyDisk, &Path)) -> BTreeMap<String, String> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("old"), "old").unwrap();
        let disk = FaultyDisk::dying_at(usize::MAX, loss);
        work(&disk, folder.path());
        disk.cut_power(loss);
        let names = Disk.list(folder.path()).unwrap();
        let content = |name: String| {
            let text =
                fs::read_to_string(folder.path().join(&name)).unwrap_or_else(|_| "a folder".to_owned());
            (name, text)
        };
        names.into_iter().map(content).collect()
    }

    fn files(expected: &[(&str, &str)]) -> BTreeMap<String, String> {
        expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    fn write(disk: &FaultyDisk, path: &Path, text: &str, sync: bool) {
        let mut file = disk.create(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
        if sync {
            file.sync().unwrap();
        }
    }

    #[test]
    fn bytes_and_names_are_lost_until_they_are_synced() {
        let work = |disk: &FaultyDisk, folder: &Path| write(disk, &folder.join("new"), "new", false);
        assert_eq!(after(Loss::Nothing, work), files(&[("new", "new"), ("old", "old")]));
        assert_eq!(after(Loss::Names, work), files(&[("old", "old")]));
        assert_eq!(after(Loss::Bytes, work), files(&[("new", ""), ("old", "old")]));
        assert_eq!(after(Loss::Everything, work), files(&[("old", "old")]));
        let synced = |disk: &FaultyDisk, folder: &Path| {
            write(disk, &folder.join("new"), "new", true);
            disk.sync_dir(folder).unwrap();
        };
        assert_eq!(after(Loss::Everything, synced), files(&[("new", "new"), ("old", "old")]));
    }

    #[test]
    fn a_rename_that_is_not_synced_brings_back_what_it_replaced() {
        let work = |disk: &FaultyDisk, folder: &Path| {
            write(disk, &folder.join("new"), "new", true);
            disk.sync_dir(folder).unwrap();
            disk.rename(&folder.join("new"), &folder.join("old")).unwrap();
        };
        assert_eq!(after(Loss::Nothing, work), files(&[("old", "new")]));
        assert_eq!(after(Loss::Names, work), files(&[("new", "new"), ("old", "old")]));
        let unsynced = |disk: &FaultyDisk, folder: &Path| {
            write(disk, &folder.join("new"), "new", false);
            disk.rename(&folder.join("new"), &folder.join("old")).unwrap();
        };
        assert_eq!(
            after(Loss::Bytes, unsynced),
            files(&[("old", "")]),
            "the trap of renaming before syncing"
        );
    }

    #[test]
    fn what_is_removed_or_appended_or_truncated_comes_back_until_it_is_synced() {
        let removed = |disk: &FaultyDisk, folder: &Path| disk.remove(&folder.join("old")).unwrap();
        assert_eq!(after(Loss::Nothing, removed), files(&[]));
        assert_eq!(after(Loss::Everything, removed), files(&[("old", "old")]));
        let truncated = |disk: &FaultyDisk, folder: &Path| write(disk, &folder.join("old"), "new", false);
        assert_eq!(after(Loss::Nothing, truncated), files(&[("old", "new")]));
        assert_eq!(after(Loss::Everything, truncated), files(&[("old", "old")]));
        let appended = |disk: &FaultyDisk, folder: &Path| disk.append(&folder.join("log"), b"line").unwrap();
        assert_eq!(after(Loss::Bytes, appended), files(&[("log", "line"), ("old", "old")]), "it syncs bytes");
        assert_eq!(after(Loss::Names, appended), files(&[("old", "old")]), "it does not sync the name");
    }

    #[test]
    fn directories_and_what_is_in_them_come_and_go_together() {
        let made = |disk: &FaultyDisk, folder: &Path| {
            disk.create_dir(&folder.join("a/b")).unwrap();
            write(disk, &folder.join("a/b/c"), "c", true);
            disk.rename(&folder.join("a/b/c"), &folder.join("c")).unwrap();
        };
        assert_eq!(after(Loss::Everything, made), files(&[("old", "old")]));
        let synced = |disk: &FaultyDisk, folder: &Path| {
            made(disk, folder);
            disk.sync_dir(folder).unwrap();
        };
        let all = files(&[("a", "a folder"), ("c", "c"), ("old", "old")]);
        assert_eq!(after(Loss::Everything, synced), all, "what a durable entry came from is durable");
        let removed = |disk: &FaultyDisk, folder: &Path| {
            synced(disk, folder);
            disk.remove_dir(&folder.join("a")).unwrap();
        };
        assert_eq!(after(Loss::Nothing, removed), files(&[("c", "c"), ("old", "old")]));
        assert_eq!(after(Loss::Everything, removed), all);
    }

    #[test]
    fn a_durable_write_is_all_or_nothing_wherever_it_dies() {
        let write = |disk: &FaultyDisk, path: &Path| {
            write_durably(disk, path, |out| out.write_all(b"a longer new text")).is_ok()
        };
        for seed in 0..20 {
            for fatal in 0.. {
                let folder = tempfile::tempdir().unwrap();
                let path = folder.path().join("old");
                fs::write(&path, "old").unwrap();
                let disk = FaultyDisk::dying_at(fatal, Loss::Some(seed));
                let done = write(&disk, &path);
                let text = fs::read_to_string(&path).unwrap();
                assert!(text == "a longer new text" || text == "old" && !done, "{text:?} at {fatal}");
                if done {
                    break;
                }
            }
        }
    }

    #[test]
    fn the_next_process_may_still_lose_what_the_last_one_did_not_sync() {
        let folder = tempfile::tempdir().unwrap();
        let first = FaultyDisk::dying_at(3, Loss::Nothing);
        write(&first, &folder.path().join("new"), "new", false);
        assert!(first.sync_dir(folder.path()).is_err() && first.dead());
        assert!(folder.path().join("new").exists(), "only the process died");
        let second = first.next_life(0, Loss::Everything);
        assert!(second.list(folder.path()).is_err() && second.dead());
        assert!(!folder.path().join("new").exists());
    }
}
