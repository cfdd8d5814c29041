//! What a listener is at, for those who watch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;

use super::limits::UPLOADS;
use crate::coordinator::Load;

/// Counts what the connections of one listener do. All clones count the same.
#[derive(Clone, Debug)]
pub(crate) struct LoadMeter {
    refused: Arc<AtomicU64>,
    /// Turns at uploading, first come first served.
    pub(super) uploads: Arc<Semaphore>,
    /// Every peer that waits for a turn at uploading holds a clone, so that they can be counted.
    pub(super) waiting: Arc<()>,
}

impl Default for LoadMeter {
    fn default() -> Self {
        Self { refused: Arc::default(), uploads: Arc::new(Semaphore::new(UPLOADS)), waiting: Arc::default() }
    }
}

impl LoadMeter {
    /// A connection was refused.
    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Peers that wait for a turn at uploading.
    pub(super) fn waiting(&self) -> usize {
        // Every meter of the listener holds one as well.
        Arc::strong_count(&self.waiting) - Arc::strong_count(&self.refused)
    }

    /// What the listener is at now.
    pub(crate) fn now(&self) -> Load {
        Load {
            refused: self.refused.load(Ordering::Relaxed),
            uploading: UPLOADS - self.uploads.available_permits().min(UPLOADS),
            waiting: self.waiting(),
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
        let turn = meter.uploads.clone().try_acquire_owned().expect("there are turns");
        let waits = meter.waiting.clone();
        assert_eq!(watches.now(), Load { refused: 1, uploading: 1, waiting: 1 });
        drop((turn, waits));
        assert_eq!(meter.now(), Load { refused: 1, uploading: 0, waiting: 0 });
    }
}
