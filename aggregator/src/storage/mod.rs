//! The file operations of the aggregator's durable steps.
//!
//! A step is durable when its bytes and its directory entry are synced; only then is it reported. Everything durable goes
//! through [`FileLayer`], so that tests can crash the process between any two calls.

pub mod checksum;
pub mod descriptors;
pub mod held;
pub mod outage;
pub mod retry_full;
pub mod unsynced;

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, BufWriter, Read, Seek as _, SeekFrom, Write};
use std::path::Path;

use checksum::{ChecksumMismatch, Verification};
use retry_full::{FullDetector, retry_while_full};
use shared::chown::chown_like_parent;
use shared::durable::{self, absent_is_ok};
pub use shared::durable::{parent, partial};

/// The file operations that durable steps consist of.
pub trait FileLayer: Send + Sync {
    /// Creates or truncates a file.
    fn create(&self, path: &Path) -> io::Result<Box<dyn DurableFile>>;
    /// Creates a file that only its owner can read, in place of an existing one.
    fn create_private(&self, path: &Path) -> io::Result<Box<dyn DurableFile>>;
    /// There was no room to write `path`: waits until it is worth another try. By default it does not wait.
    fn wait_for_space(&self, path: &Path, error: io::Error) -> io::Result<()> {
        let _ = path;
        Err(error)
    }
    /// A step that had to wait has succeeded.
    fn found_space(&self) {}
    /// Whether a step waits for space now.
    fn lacks_space(&self) -> bool {
        false
    }
    /// Appends to a file, creating it if need be, and syncs it. If that fails and the process lives, nothing is appended.
    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// Opens a file to read it from its start.
    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>>;
    /// Opens a file to read it from this byte on.
    fn open_at(&self, path: &Path, start: u64) -> io::Result<Box<dyn Read + Send>> {
        let mut file = self.open(path)?;
        io::copy(&mut (&mut file).take(start), &mut io::sink())?;
        Ok(file)
    }
    /// Length of a file in bytes; `None` if it is not there.
    fn length(&self, path: &Path) -> io::Result<Option<u64>>;
    /// Syncs an existing file's bytes.
    fn sync_file(&self, path: &Path) -> io::Result<()>;
    /// [`sync_file`](Self::sync_file) of a file that belongs to a step: not where steps are not durable.
    fn sync_written(&self, path: &Path) -> io::Result<()> {
        self.sync_file(path)
    }
    /// Renames a file over another, atomically.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file; one that is not there is no error.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Creates a directory and its parents.
    fn create_dir(&self, path: &Path) -> io::Result<()>;
    /// Creates a directory in one that is there, for its owner alone. By default permissions do not matter.
    fn create_private_dir(&self, path: &Path) -> io::Result<()> {
        self.create_dir(path)
    }
    /// Removes a directory and all in it; one that is not there is no error.
    fn remove_dir(&self, path: &Path) -> io::Result<()>;
    /// Syncs a directory's entries.
    fn sync_dir(&self, path: &Path) -> io::Result<()>;
    /// Locks a file against other processes, creating it if need be. The lock is held as long as the file is kept, and
    /// ends with the process.
    fn lock(&self, path: &Path) -> Result<File, TryLockError>;
    /// Names in a directory, sorted.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
}

/// A file being written.
pub trait DurableFile: Write + Send {
    /// Makes all that was written durable.
    fn sync(&mut self) -> io::Result<()>;
}

/// Writes `path` atomically and durably: readers, and restarts, see the old bytes or the new ones. `write` may be called more
/// than once, each time with an empty file, while the disk is full.
pub fn write_durably(
    files: &dyn FileLayer,
    path: &Path,
    mut write: impl FnMut(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let partial = partial(path);
    retry_while_full(files, path, || {
        let mut file = files.create(&partial)?;
        let mut attentive = FullDetector { file: &mut *file, full: None };
        let written = write(&mut attentive);
        if let Err(error) = written {
            return Err(attentive.full.unwrap_or(error));
        }
        file.sync()
    })?;
    retry_while_full(files, path, || files.rename(&partial, path))?;
    retry_while_full(files, path, || files.sync_dir(parent(path)))
}

/// Writes `path` atomically and durably, for its owner alone to read.
pub fn write_privately(files: &dyn FileLayer, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let partial = partial(path);
    let mut out = files.create_private(&partial)?;
    out.write_all(bytes)?;
    out.sync()?;
    drop(out);
    files.rename(&partial, path)?;
    files.sync_dir(parent(path))
}

/// The bytes of a small file; `None` if it is not there.
pub fn read_if_there(files: &dyn FileLayer, path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = match files.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Creates a directory and its parents, and makes those durable that were not there.
pub fn create_dir_durably(files: &dyn FileLayer, path: &Path) -> io::Result<()> {
    let mut missing = Vec::new();
    for folder in path.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
        if files.length(folder)?.is_some() {
            break;
        }
        missing.push(folder);
    }
    retry_while_full(files, path, || files.create_dir(path))?;
    missing.into_iter().rev().try_for_each(|folder| files.sync_dir(parent(folder)))
}

/// Creates a directory that its owner alone can read, and its parents as [`create_dir_durably`] does, durably. One that is there
/// stays as it is.
pub fn create_private_dir_durably(files: &dyn FileLayer, path: &Path) -> io::Result<()> {
    if files.length(path)?.is_some() {
        return Ok(());
    }
    create_dir_durably(files, parent(path))?;
    retry_while_full(files, path, || files.create_private_dir(path))?;
    files.sync_dir(parent(path))
}

/// Appends to a file durably, its name included if it is new.
pub fn append_durably(files: &dyn FileLayer, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = files.length(path)?.is_none();
    retry_while_full(files, path, || files.append(path, bytes))?;
    if new { files.sync_dir(parent(path)) } else { Ok(()) }
}

/// A file being read, without its [checksum], which is compared at the end. It remembers whether the disk failed:
/// decoders report that as malformed content, and content is another one's fault.
pub struct Reading {
    file: Box<dyn Read + Send>,
    verification: Option<Verification>,
    failure: Option<io::Error>,
}

impl Reading {
    /// Opens a file to read it from its start.
    pub fn open(files: &dyn FileLayer, path: &Path) -> io::Result<Self> {
        let file = files.open(path)?;
        Ok(Self { file, verification: Verification::of(files, path)?, failure: None })
    }

    /// Opens a file to read it from this byte on. A part of a file has no checksum.
    pub fn open_at(files: &dyn FileLayer, path: &Path, start: u64) -> io::Result<Self> {
        Ok(Self { file: files.open_at(path, start)?, verification: None, failure: None })
    }

    /// What a decoder made of the file, unless the disk failed meanwhile.
    pub fn judge<T>(self, decoded: T) -> io::Result<T> {
        self.failure.map_or(Ok(decoded), Err)
    }
}

impl Read for Reading {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = match &mut self.verification {
            Some(verification) => verification.read(&mut *self.file, bytes),
            None => self.file.read(bytes),
        };
        read.inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted && !ChecksumMismatch::is(error) {
                let copy = match error.raw_os_error() {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => io::Error::new(error.kind(), error.to_string()),
                };
                self.failure = Some(copy);
            }
        })
    }
}

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Disk;

struct DiskFile(BufWriter<File>);

impl Write for DiskFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl DurableFile for DiskFile {
    fn sync(&mut self) -> io::Result<()> {
        self.0.flush()?;
        self.0.get_ref().sync_all()
    }
}

/// A new file that only its owner can read.
pub fn private(path: &Path) -> io::Result<File> {
    let file = durable::private().create_new(true).open(path)?;
    chown_like_parent(&file, path);
    Ok(file)
}

impl FileLayer for Disk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DurableFile>> {
        let file = File::create(path)?;
        chown_like_parent(&file, path);
        Ok(Box::new(DiskFile(BufWriter::with_capacity(1 << 16, file))))
    }

    fn create_private(&self, path: &Path) -> io::Result<Box<dyn DurableFile>> {
        self.remove(path)?;
        Ok(Box::new(DiskFile(BufWriter::new(private(path)?))))
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = File::options().create(true).append(true).open(path)?;
        let before = file.metadata()?.len();
        if before == 0 {
            chown_like_parent(&file, path);
        }
        let appended = file.write_all(bytes).and_then(|()| file.sync_all());
        if appended.is_err() {
            // Cutting off needs no room. If it fails as well, a restart cuts the line off.
            let _ = file.set_len(before);
        }
        appended
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(File::open(path)?))
    }

    fn open_at(&self, path: &Path, start: u64) -> io::Result<Box<dyn Read + Send>> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(start))?;
        Ok(Box::new(file))
    }

    fn length(&self, path: &Path) -> io::Result<Option<u64>> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn sync_file(&self, path: &Path) -> io::Result<()> {
        durable::sync_file(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        absent_is_ok(fs::remove_file(path))
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        durable::create_dir(path, DirBuilder::new()).map(drop)
    }

    fn create_private_dir(&self, path: &Path) -> io::Result<()> {
        durable::create_dir(path, durable::private_dir()).map(drop)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        absent_is_ok(fs::remove_dir_all(path))
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn lock(&self, path: &Path) -> Result<File, TryLockError> {
        let file = File::options().create(true).append(true).open(path).map_err(TryLockError::Error)?;
        chown_like_parent(&file, path);
        durable::lock(&file)?;
        Ok(file)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = fs::read_dir(path)?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect::<io::Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Failing;

    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(5))
        }
    }

    #[test]
    fn a_disk_that_fails_is_told_apart_from_malformed_content() {
        let decode = |mut reading: Reading| {
            let mut byte = [0];
            let decoded = reading.read_exact(&mut byte).map_err(|_| "malformed");
            reading.judge(decoded)
        };
        let failing = Reading { file: Box::new(Failing), verification: None, failure: None };
        let error = decode(failing).expect_err("the disk fails");
        assert_eq!(error.raw_os_error(), Some(5));
        let empty = Reading { file: Box::new(io::empty()), verification: None, failure: None };
        assert_eq!(decode(empty).expect("the disk is fine"), Err("malformed"));
    }

    #[test]
    fn appending_writes_whole_lines_one_after_the_other() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("log");
        append_durably(&Disk, &path, b"one\n").expect("written");
        append_durably(&Disk, &path, b"two\n").expect("written");
        assert_eq!(fs::read_to_string(&path).expect("there"), "one\ntwo\n");
    }
}
