//! What a listener is at, for those who watch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;

use super::limits::UPLOADS;
use crate::coordinator::Load;

/// Counts what the connections of one listener do. All clones count the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadMeter(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    refused: AtomicU64,
    /// Turns at uploading, first come first served.
    uploads: Arc<Semaphore>,
    /// Every peer that waits for a turn at uploading holds a clone, so that they can be counted.
    waiting: Arc<()>,
}

impl Default for Counts {
    fn default() -> Self {
        let uploads = Arc::new(Semaphore::new(UPLOADS));
        Self { refused: AtomicU64::default(), uploads, waiting: Arc::default() }
    }
}

impl LoadMeter {
    /// A connection was refused.
    pub(super) fn refuse(&self) {
        self.0.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Turns at uploading.
    pub(super) fn uploads(&self) -> Arc<Semaphore> {
        self.0.uploads.clone()
    }

    /// Waits for a turn at uploading as long as this is held.
    pub(super) fn wait(&self) -> Arc<()> {
        self.0.waiting.clone()
    }

    /// Peers that wait for a turn at uploading.
    pub(super) fn waiting(&self) -> usize {
        Arc::strong_count(&self.0.waiting) - 1
    }

    /// What the listener is at now.
    pub(crate) fn now(&self) -> Load {
        Load {
            refused: self.0.refused.load(Ordering::Relaxed),
            uploading: UPLOADS - self.0.uploads.available_permits().min(UPLOADS),
            waiting: self.waiting(),
            checking: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_listener_is_at_is_counted_whoever_watches() {
        let meter = LoadMeter::default();
        let watches = meter.clone();
        assert_eq!(watches.now(), Load::default());
        meter.refuse();
        let turn = meter.uploads().try_acquire_owned().expect("there are turns");
        let waits = meter.wait();
        assert_eq!(watches.now(), Load { refused: 1, uploading: 1, waiting: 1, checking: 0 });
        drop((turn, waits));
        assert_eq!(meter.now(), Load { refused: 1, uploading: 0, waiting: 0, checking: 0 });
    }
}
