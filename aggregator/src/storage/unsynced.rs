//! Files without syncs: for simulations, and for what can be made again, such as the page of a run that goes on.

use std::fs::{File, TryLockError};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use super::{Disk, DurableFile, FileLayer};

/// The operating system's files for a simulation: steps do not wait for the disk.
///
/// A process that is killed loses nothing, since the system has what it wrote. A power failure may cost the current run, whose
/// clients it ends as well. A round of small models takes milliseconds, and syncing it would take longer than training.
/// [`FileLayer::sync_file`] does sync: a run is complete only when everything that it leaves is on disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unsynced;

struct UnsyncedFile(BufWriter<File>);

impl Write for UnsyncedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl DurableFile for UnsyncedFile {
    fn sync(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl FileLayer for Unsynced {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DurableFile>> {
        Ok(Box::new(UnsyncedFile(BufWriter::with_capacity(1 << 16, File::create(path)?))))
    }

    fn create_private(&self, path: &Path) -> io::Result<Box<dyn DurableFile>> {
        Disk.create_private(path)
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        File::options().create(true).append(true).open(path)?.write_all(bytes)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        Disk.open(path)
    }

    fn open_at(&self, path: &Path, start: u64) -> io::Result<Box<dyn Read + Send>> {
        Disk.open_at(path, start)
    }

    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        Disk.length(path)
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        Disk.sync_file(path)
    }

    fn sync_written(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        Disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        Disk.remove(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        Disk.create_dir(path)
    }

    fn create_private_dir(&self, path: &Path) -> io::Result<()> {
        Disk.create_private_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        Disk.remove_dir(path)
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> Result<File, TryLockError> {
        Disk.lock(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        Disk.list(path)
    }
}
