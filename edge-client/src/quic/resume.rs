//! Resumable downloads: the next connection brings the rest of an interrupted task, also in the next process.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use shared::message::ResumePoint;

use crate::store::{Beginning, SharedDownload};

/// The length of a task that is worth keeping for the next process.
const MIN_KEPT: u64 = 1 << 20;
/// How long a task arrives before it is written down. What a fast network brings sooner never wears a memory card.
const KEPT_AFTER: Duration = Duration::from_secs(1);
/// Limit of the buffer allocated for an announced length; a longer one grows as bytes arrive.
const MAX_PREALLOCATED: u64 = 16 << 20;

/// The received part of the newest interrupted task. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupted {
    part: Arc<Mutex<Option<Beginning>>>,
    /// Where a part is kept for the next process.
    download: Option<SharedDownload>,
}

/// A task that is arriving. When dropped before it is complete, its received part is [kept](Interrupted).
#[derive(Debug)]
pub(crate) struct Arriving {
    part: Beginning,
    resumed: bool,
    interrupted: Interrupted,
}

impl Interrupted {
    /// Begins with what an earlier process has left, and keeps long downloads there.
    pub(crate) fn kept_in(download: SharedDownload) -> Self {
        let part = download.lock().unwrap_or_else(PoisonError::into_inner).load();
        Self { part: Arc::new(Mutex::new(part)), download: Some(download) }
    }

    fn part(&self) -> MutexGuard<'_, Option<Beginning>> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn discard(&self, round: Option<u32>) {
        if let Some(download) = &self.download {
            download.lock().unwrap_or_else(PoisonError::into_inner).discard(round);
        }
    }

    /// The resume point for the server, if enough was received.
    pub(crate) fn partial(&self) -> Option<ResumePoint> {
        let part = self.part();
        let part = part.as_ref().filter(|part| part.payload.len() >= ResumePoint::MIN_BYTES)?;
        Some(ResumePoint::of(part.round, &part.payload))
    }

    /// Begins a task of `total` bytes from its first byte, and drops the received part of another.
    pub(crate) fn begin(&self, round: u32, total: u64) -> Arriving {
        *self.part() = None;
        self.discard(None);
        let payload = Vec::with_capacity(total.min(MAX_PREALLOCATED) as usize);
        Arriving { part: Beginning { round, total, payload }, resumed: false, interrupted: self.clone() }
    }

    /// Resumes a task of `total` bytes at `offset`; `None` if that is not where the received part ends.
    pub(crate) fn go_on(&self, round: u32, offset: u64, total: u64) -> Option<Arriving> {
        let part = self.part().take();
        let mut part = part.filter(|part| part.round == round && part.payload.len() as u64 == offset)?;
        part.total = total;
        part.payload.reserve_exact(total.saturating_sub(offset).min(MAX_PREALLOCATED) as usize);
        Some(Arriving { part, resumed: true, interrupted: self.clone() })
    }
}

impl Arriving {
    /// The bytes received so far.
    pub(crate) fn payload(&mut self) -> &mut Vec<u8> {
        &mut self.part.payload
    }

    /// Keeps them for the next process too, if the task is long and has been arriving for a while, `took`.
    pub(crate) fn keep(&self, took: Duration) {
        let Beginning { round, total, payload } = &self.part;
        if *total < MIN_KEPT || (took < KEPT_AFTER && !self.resumed) {
            return;
        }
        if let Some(download) = &self.interrupted.download {
            download.lock().unwrap_or_else(PoisonError::into_inner).keep(*round, *total, payload);
        }
    }

    /// Takes the complete payload. It stays kept until the task is done: a process that ends before asks for its last bytes.
    pub(crate) fn take(mut self) -> Vec<u8> {
        std::mem::take(&mut self.part.payload)
    }

    /// Drops the payload, which is no longer wanted.
    pub(crate) fn abandon(mut self) {
        self.part.payload.clear();
        self.interrupted.discard(Some(self.part.round));
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        if !self.part.payload.is_empty() {
            let Beginning { round, total, payload } = &mut self.part;
            let part = Beginning { round: *round, total: *total, payload: std::mem::take(payload) };
            *self.interrupted.part() = Some(part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{MemoryStore, Store as _};

    const LONG: u64 = MIN_KEPT;

    #[test]
    fn what_was_interrupted_goes_on_and_what_is_whole_is_forgotten() {
        let interrupted = Interrupted::default();
        let mut arriving = interrupted.begin(3, LONG);
        arriving.payload().extend(vec![7; ResumePoint::MIN_BYTES - 1]);
        drop(arriving);
        assert_eq!(interrupted.partial(), None, "little is not worth it");
        let mut arriving = interrupted.go_on(3, ResumePoint::MIN_BYTES as u64 - 1, LONG).unwrap();
        arriving.payload().push(7);
        drop(arriving);
        let partial = interrupted.partial().unwrap();
        let mut payload = vec![7; ResumePoint::MIN_BYTES + 1];
        assert_eq!(partial.offset_in(3, &payload), Some(ResumePoint::MIN_BYTES));
        assert_eq!(partial.offset_in(3, &payload[..ResumePoint::MIN_BYTES]), None, "nothing is left");
        assert_eq!(partial.offset_in(4, &payload), None, "of another round");
        payload[9] = 8;
        assert_eq!(partial.offset_in(3, &payload), None, "of another payload");
        let arriving = interrupted.go_on(3, partial.bytes, LONG).unwrap();
        assert_eq!(arriving.take().len(), ResumePoint::MIN_BYTES);
        assert_eq!(interrupted.partial(), None);
        assert!(interrupted.go_on(3, partial.bytes, LONG).is_none());
    }

    #[test]
    fn a_rest_that_does_not_fit_is_none() {
        let interrupted = Interrupted::default();
        for (round, offset) in [(4, ResumePoint::MIN_BYTES as u64), (3, 1)] {
            interrupted.begin(3, LONG).payload().extend(vec![7; ResumePoint::MIN_BYTES]);
            assert!(interrupted.go_on(round, offset, LONG).is_none());
        }
    }

    #[test]
    fn a_long_download_goes_on_in_the_next_process() {
        let store = MemoryStore::new();
        let process = || Interrupted::kept_in(store.download().unwrap());
        let half = vec![7; LONG as usize / 2];
        let arrive = |total, took| {
            let mut arriving = process().begin(3, total);
            arriving.payload().extend(&half);
            arriving.keep(took);
        };
        arrive(LONG - 1, KEPT_AFTER);
        assert_eq!(process().partial(), None, "a short one is not kept");
        arrive(LONG, KEPT_AFTER.mul_f32(0.9));
        assert_eq!(process().partial(), None, "nor one that comes fast");
        arrive(LONG, KEPT_AFTER);
        assert_eq!(process().partial(), Some(ResumePoint::of(3, &half)));
        // What goes on is kept at once.
        let mut arriving = process().go_on(3, half.len() as u64, LONG).unwrap();
        arriving.payload().push(8);
        arriving.keep(Duration::ZERO);
        assert_eq!(process().partial().unwrap().bytes, half.len() as u64 + 1);
        assert_eq!(arriving.take().len(), half.len() + 1);
        assert!(process().partial().is_some(), "it stays until the task is done");
        process().go_on(3, half.len() as u64 + 1, LONG).unwrap().abandon();
        assert_eq!(process().partial(), None, "its round has closed");
        arrive(LONG, KEPT_AFTER);
        drop(process().begin(4, 1));
        assert_eq!(process().partial(), None, "another task has come");
    }
}
