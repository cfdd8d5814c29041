//! Watching and cancelling a running task from another thread.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use shared::message::Progress;

/// Shared by the task and its watcher.
#[derive(Debug, Default)]
pub struct TaskHandle {
    done: AtomicU64,
    total: AtomicU64,
    cancelled: AtomicBool,
    /// Training steps and test batches.
    steps: AtomicU64,
}

impl TaskHandle {
    /// Asks the task to stop at its next step.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Training steps done, and to do.
    #[must_use]
    pub fn progress(&self, round: u32) -> Progress {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        Progress { round: Some(round), done, total }
    }

    /// A number that changes with every training step and every batch of a test.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Relaxed)
    }

    /// Reports the progress of training; breaks if the task is cancelled.
    pub(super) fn train_step(&self, progress: Progress) -> ControlFlow<()> {
        self.done.store(progress.done, Ordering::Relaxed);
        self.total.store(progress.total, Ordering::Relaxed);
        self.step()
    }

    /// Counts a step; breaks if the task is cancelled.
    pub(super) fn step(&self) -> ControlFlow<()> {
        self.steps.fetch_add(1, Ordering::Relaxed);
        if self.cancelled.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}
