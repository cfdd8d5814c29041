//! A file layer that dies at a chosen operation, as a process does that is killed there.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use aggregator::files::{Disk, DurableFile, FileLayer};

/// Counts operations; from the chosen one on, every operation fails and nothing reaches the disk.
#[derive(Clone, Debug)]
pub struct FaultyDisk {
    operations: Arc<AtomicUsize>,
    fatal: usize,
}

impl FaultyDisk {
    /// Dies at operation number `fatal`, counted from 0.
    #[must_use]
    pub fn dying_at(fatal: usize) -> Self {
        Self { operations: Arc::default(), fatal }
    }

    /// Never dies, but counts.
    #[must_use]
    pub fn counting() -> Self {
        Self::dying_at(usize::MAX)
    }

    /// Operations so far.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.operations.load(Ordering::Relaxed)
    }

    fn step(&self) -> io::Result<()> {
        if self.operations.fetch_add(1, Ordering::Relaxed) < self.fatal {
            Ok(())
        } else {
            Err(io::Error::other("the process was killed here"))
        }
    }
}

struct FaultyFile {
    inner: Box<dyn DurableFile>,
    disk: FaultyDisk,
}

impl Write for FaultyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.disk.step()?;
        // Half of what was asked for, so that a death leaves half-written files.
        let half = bytes.len().div_ceil(2);
        self.inner.write(&bytes[..half])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.disk.step()?;
        self.inner.flush()
    }
}

impl DurableFile for FaultyFile {
    fn sync(&mut self) -> io::Result<()> {
        self.disk.step()?;
        self.inner.flush()
    }
}

impl FileLayer for FaultyDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DurableFile>> {
        self.step()?;
        Ok(Box::new(FaultyFile { inner: Disk.create(path)?, disk: self.clone() }))
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        // An append may be torn: it dies once before, once in the middle.
        self.step()?;
        if self.step().is_err() {
            let _ = Disk.append(path, &bytes[..bytes.len() / 2]);
            return Err(io::Error::other("the process was killed here"));
        }
        Disk.append(path, bytes)
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        self.step()?;
        Disk.open(path)
    }

    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        self.step()?;
        Disk.length(path)
    }

    fn sync_file(&self, _path: &Path) -> io::Result<()> {
        self.step()
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        Disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        Disk.remove(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        Disk.create_dir(path)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        Disk.remove_dir(path)
    }

    fn sync_dir(&self, _path: &Path) -> io::Result<()> {
        self.step()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        self.step()?;
        Disk.list(path)
    }
}
