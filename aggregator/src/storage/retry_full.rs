//! Waiting for room on a disk that is full.
//!
//! A full disk is the one failure that passes by itself once the operator makes room, or by a clean-up of the system's own.
//! Durable steps are made in order by one thread, so that waiting there is all it takes to pause a run: half-written
//! files have another name, and the step is made anew.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::outage::Outage;
use super::{Disk, DurableFile, FileLayer};

/// Interval of retries.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Whether there was no room, on the disk or in the user's quota.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Repeats a step while the disk is full, if `files` waits for space. The step must be repeatable.
pub fn retry_while_full<T>(
    files: &dyn FileLayer,
    path: &Path,
    mut step: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    let mut waited = false;
    loop {
        match step() {
            Err(error) if is_full(&error) => files.wait_for_space(path, error)?,
            done => {
                if waited {
                    files.found_space();
                }
                return done;
            }
        }
        waited = true;
    }
}

/// Free bytes for this user on the disk of `path`, which need not exist; `None` if the system does not say.
#[must_use]
pub fn free_bytes(path: &Path) -> Option<u64> {
    let there = path.ancestors().find(|path| path.exists())?;
    let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
    let disk = rustix::fs::statvfs(there).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// A writer that remembers whether there was no room, in case its caller changes the error.
pub(super) struct FullDetector<'a> {
    pub(super) file: &'a mut dyn Write,
    pub(super) full: Option<io::Error>,
}

impl FullDetector<'_> {
    fn note<T>(&mut self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result
            && is_full(error)
        {
            self.full = Some(error.kind().into());
        }
        result
    }
}

impl Write for FullDetector<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes);
        self.note(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = self.file.flush();
        self.note(flushed)
    }
}

/// A change that the operator is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpaceChange {
    /// A step waits for space.
    Full {
        /// The file that cannot be written.
        path: PathBuf,
        /// What the system says.
        error: String,
        /// Bytes that are free, where the system says so.
        free: Option<u64>,
    },
    /// There clearly is space again.
    Recovered,
}

#[derive(Debug, Default)]
struct State {
    waits: bool,
    lacking: Option<PathBuf>,
    outage: Outage,
    news: Option<SpaceChange>,
}

impl State {
    /// Records that the disk was full for `path`.
    fn lacks(&mut self, path: &Path, error: &io::Error, now: Instant) {
        self.lacking.get_or_insert_with(|| path.to_owned());
        if self.outage.fails(error.kind(), now) {
            let (path, error, free) = (path.to_owned(), error.to_string(), free_bytes(path));
            self.news = Some(SpaceChange::Full { path, error, free });
        }
    }

    /// Records that the waiting step has succeeded.
    fn found(&mut self) {
        if self.lacking.take().is_some() {
            self.outage.succeeds();
        }
    }

    fn take_news(&mut self, now: Instant) -> Option<SpaceChange> {
        let over = self.outage.over(now).map(|_| SpaceChange::Recovered);
        self.news.take().or(over)
    }
}

/// Whether the disk is full: shared by the writers and the task that tells the operator.
#[derive(Clone, Debug, Default)]
pub struct FullDisk(Arc<(Mutex<State>, Condvar)>);

impl FullDisk {
    /// From now on, writers wait while the disk is full.
    pub fn wait_from_now_on(&self) {
        self.state().waits = true;
    }

    /// Waiting ends: present and later waits give up.
    pub fn give_up(&self) {
        self.state().waits = false;
        self.0.1.notify_all();
    }

    /// Gives up when `stop` changes.
    pub async fn give_up_when(&self, mut stop: watch::Receiver<bool>) {
        if stop.changed().await.is_ok() {
            self.give_up();
        }
    }

    /// The file that there is no room for.
    #[must_use]
    pub fn lacking(&self) -> Option<PathBuf> {
        self.state().lacking.clone()
    }

    /// News for the operator, once.
    #[must_use]
    pub fn take_news(&self) -> Option<SpaceChange> {
        self.state().take_news(Instant::now())
    }

    fn wait(&self, path: &Path, error: io::Error) -> io::Result<()> {
        let mut state = self.state();
        let now = Instant::now();
        if state.waits {
            state.lacks(path, &error, now);
        }
        let until = now + RETRY_INTERVAL;
        while state.waits {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let woken = self.0.1.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        Err(error)
    }

    fn over(&self) {
        self.state().found();
    }

    /// A panic leaves the state consistent: each change is one assignment.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The operating system's files, for a run that waits while the disk is full.
#[derive(Clone, Debug, Default)]
pub struct RetryingDisk {
    /// Whether the disk is full.
    pub shortage: FullDisk,
}

impl FileLayer for RetryingDisk {
    fn wait_for_space(&self, path: &Path, error: io::Error) -> io::Result<()> {
        self.shortage.wait(path, error)
    }

    fn found_space(&self) {
        self.shortage.over();
    }

    fn lacks_space(&self) -> bool {
        self.shortage.lacking().is_some()
    }

    fn create(&self, path: &Path) -> io::Result<Box<dyn DurableFile>> {
        Disk.create(path)
    }

    fn create_private(&self, path: &Path) -> io::Result<Box<dyn DurableFile>> {
        Disk.create_private(path)
    }

    fn append(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        Disk.append(path, bytes)
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

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        Disk.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> Result<File, TryLockError> {
        Disk.lock(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        Disk.list(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::outage::QUIET_PERIOD;

    #[test]
    fn a_disk_with_room_for_one_step_and_none_for_the_next_is_not_told_of_each_time() {
        let full: io::Error = io::ErrorKind::StorageFull.into();
        let pauses = |change: &SpaceChange| matches!(change, SpaceChange::Full { .. });
        let (mut state, begin) = (State::default(), Instant::now());
        let mut told = Vec::new();
        let mut now = begin;
        for step in 0..50 {
            now = begin + step * RETRY_INTERVAL;
            state.lacks(Path::new("/nowhere/checkpoint"), &full, now);
            assert!(state.lacking.is_some(), "the run stands still each time");
            told.extend(state.take_news(now));
            state.found();
            assert!(state.lacking.is_none(), "and goes on each time");
            told.extend(state.take_news(now));
        }
        let [first, over, again] = &told[..] else { panic!("{told:?}") };
        assert!(pauses(first) && *over == SpaceChange::Recovered && pauses(again), "{told:?}");
        assert_eq!(state.take_news(now + QUIET_PERIOD), Some(SpaceChange::Recovered));
        assert_eq!(state.take_news(now + 2 * QUIET_PERIOD), None);
    }
}
