//! What the connections of one listener share: slots, turns and partial uploads.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::limits::{MIN_PROGRESS, UPLOAD_TIMEOUTS};
use super::load::LoadMeter;
use super::preauth::PreauthSlots;
use super::resume::PartialUploads;

/// What the connections of one listener share.
pub(super) struct Budget {
    /// The directory that updates are written to as they arrive.
    pub(super) spool: PathBuf,
    /// The largest payload of an update, in bytes.
    pub(super) max_payload: u64,
    /// A peer that makes no progress in a transfer for this long is lost.
    pub(super) timeout: Duration,
    /// Slots for connections.
    pub(super) connections: Arc<Semaphore>,
    /// Slots for those that are not admitted yet.
    pub(super) preauth: PreauthSlots,
    /// Turns at uploading, and who waits for one.
    pub(super) load: LoadMeter,
    /// Uploads that were cut off.
    pub(super) partials: PartialUploads,
    /// The turn at hashing.
    hashing: Arc<Semaphore>,
}

impl Budget {
    pub(super) fn new(
        spool: PathBuf,
        max_payload: u64,
        timeout: Duration,
        connections: usize,
        over: Arc<AtomicBool>,
        load: LoadMeter,
    ) -> Self {
        Self {
            spool,
            max_payload,
            timeout,
            connections: Arc::new(Semaphore::new(connections)),
            preauth: PreauthSlots::new(connections),
            load,
            partials: PartialUploads::new(over),
            hashing: Arc::new(Semaphore::new(1)),
        }
    }

    /// Runs `hash`, which reads up to a whole model, on a blocking thread. Any peer can cause it and it cannot be
    /// interrupted, so one runs at a time, and none for a connection that has closed before its turn.
    pub(super) async fn hashed<T: Send + 'static>(&self, hash: impl FnOnce() -> T + Send + 'static) -> T {
        let turn = self.hashing.clone().acquire_owned().await.expect("the semaphore is never closed");
        let hashed = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            hash()
        });
        hashed.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }

    /// Bytes of an upload of `payload` bytes that must arrive within the next timeout.
    pub(super) fn progress(&self, payload: u64) -> u64 {
        if self.load.waiting() == 0 {
            MIN_PROGRESS
        } else {
            MIN_PROGRESS.max(payload.div_ceil(UPLOAD_TIMEOUTS))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// That of a listener with a place for one connection.
    fn budget() -> Budget {
        let (spool, timeout) = (PathBuf::new(), Duration::from_secs(1));
        Budget::new(spool, u64::MAX, timeout, 1, Arc::default(), LoadMeter::default())
    }

    #[tokio::test]
    async fn models_are_hashed_one_at_a_time_and_not_for_those_that_are_gone() {
        let budget = budget();
        let (go, waits) = std::sync::mpsc::channel::<()>();
        let begun = Arc::new(AtomicUsize::new(0));
        let count = || {
            let begun = begun.clone();
            move || begun.fetch_add(1, Ordering::Relaxed)
        };
        let mut first = std::pin::pin!(budget.hashed(move || waits.recv().is_ok()));
        let mut last = std::pin::pin!(budget.hashed(count()));
        {
            let mut gone = std::pin::pin!(budget.hashed(count()));
            tokio::select! {
                biased;
                _ = &mut first => panic!("it waits"),
                _ = &mut gone => panic!("it is not its turn"),
                _ = &mut last => panic!("it is not its turn"),
                () = std::future::ready(()) => {}
            }
        }
        go.send(()).expect("it waits for this");
        assert!(first.await);
        last.await;
        assert_eq!(begun.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn whoever_has_a_turn_must_hurry_while_others_wait() {
        let budget = budget();
        assert_eq!(budget.progress(100 << 20), MIN_PROGRESS);
        let _waits = budget.load.wait();
        assert_eq!(budget.progress(100 << 20) * UPLOAD_TIMEOUTS, 100 << 20);
        // A small one is over sooner anyway.
        assert_eq!(budget.progress(1), MIN_PROGRESS);
    }
}
