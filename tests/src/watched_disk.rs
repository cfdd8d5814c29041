//! A disk that reports every operation to the test before it is made.

use std::fs::{File, TryLockError};
use std::io::{self, Read};
use std::path::Path;

use aggregator::storage::{Disk, DurableFile, FileLayer};

/// The operating system's files, after `watch` has been told the operation's name and its path. If it gives an error,
/// the operation fails with it.
pub struct WatchedDisk<F>(pub F);

impl<F: Fn(&'static str, &Path) -> io::Result<()> + Send + Sync> FileLayer for WatchedDisk<F> {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DurableFile>> {
        (self.0)("create", path)?;
        Disk.create(path)
    }

    fn create_private(&self, path: &Path) -> io::Result<Box<dyn DurableFile>> {
        (self.0)("create", path)?;
        Disk.create_private(path)
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        (self.0)("append", path)?;
        Disk.append(path, bytes)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        (self.0)("open", path)?;
        Disk.open(path)
    }

    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        (self.0)("length", path)?;
        Disk.length(path)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        (self.0)("sync", path)?;
        Disk.sync_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        (self.0)("rename", to)?;
        Disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        (self.0)("remove", path)?;
        Disk.remove(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        (self.0)("create", path)?;
        Disk.create_dir(path)
    }

    fn create_private_dir(&self, path: &Path) -> io::Result<()> {
        (self.0)("create", path)?;
        Disk.create_private_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        (self.0)("remove", path)?;
        Disk.remove_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        (self.0)("sync", path)?;
        Disk.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> Result<File, TryLockError> {
        (self.0)("lock", path).map_err(TryLockError::Error)?;
        Disk.lock(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        (self.0)("list", path)?;
        Disk.list(path)
    }
}
