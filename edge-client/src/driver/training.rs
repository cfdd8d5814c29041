//! The task in training: runs on the pool's threads, is watched and cancelled from the driver.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use shared::message::{Progress, TaskId};
use tokio::sync::mpsc;
use tracing::error;

use crate::failure::{Blame, Failure};
use crate::masking::{Job, Masked};
use crate::pool::TrainPool;
use crate::task::{Output, Task, TaskHandle, run_task};

/// A finished job of the threads that train.
pub(super) enum Finished {
    /// A task.
    Task(TaskResult),
    /// The hiding of an update.
    Hidden(Masked),
}

/// A finished task.
pub(super) struct TaskResult {
    handle: Arc<TaskHandle>,
    result: Result<Output, Failure>,
}

struct Running {
    id: TaskId,
    handle: Arc<TaskHandle>,
}

/// At most one running task.
pub(super) struct Training {
    running: Option<Running>,
    /// Boxed: a channel reserves room for dozens of messages, and at most one is sent at a time.
    finished: mpsc::UnboundedSender<Box<Finished>>,
}

impl Training {
    /// No task. Finished jobs are sent to `finished`.
    pub(super) fn new(finished: mpsc::UnboundedSender<Box<Finished>>) -> Self {
        Self { running: None, finished }
    }

    pub(super) fn begin(&mut self, pool: &TrainPool, id: TaskId, task: Task) {
        let handle = Arc::new(TaskHandle::default());
        self.running = Some(Running { id, handle: handle.clone() });
        let finished = self.finished.clone();
        pool.submit(move |bench| {
            let result = guarded(|| run_task(&task, &handle, bench).map_err(|error| error.failure()));
            let _ = finished.send(Box::new(Finished::Task(TaskResult { handle, result })));
        });
    }

    /// Hides an update.
    pub(super) fn hide(&self, pool: &TrainPool, job: Job) {
        let finished = self.finished.clone();
        pool.submit(move |_| {
            let masked = guarded(|| Ok(job.run())).unwrap_or_else(|failure| job.failed(failure));
            let _ = finished.send(Box::new(Finished::Hidden(masked)));
        });
    }

    /// Asks the task to stop. Its result is dropped.
    pub(super) fn cancel(&mut self) {
        if let Some(running) = self.running.take() {
            running.handle.cancel();
        }
    }

    /// The progress of the running task.
    pub(super) fn progress(&self) -> Option<Progress> {
        self.running.as_ref().map(|running| running.handle.progress(running.id.round))
    }

    /// A number that changes with every step of the running task.
    pub(super) fn steps(&self) -> Option<u64> {
        self.running.as_ref().map(|running| running.handle.steps())
    }

    /// Takes a finished task in; `None` if it was cancelled before.
    pub(super) fn finish(&mut self, finished: TaskResult) -> Option<(TaskId, Result<Output, Failure>)> {
        let TaskResult { handle, result } = finished;
        let running = self.running.take_if(|running| Arc::ptr_eq(&running.handle, &handle))?;
        Some((running.id, result))
    }
}

/// Runs `work` and turns a panic, which is a bug, into a failed round: the server is told and the client goes on. The
/// work's data is dropped, so half-finished data is never used.
///
/// In the `dist` profile a panic ends the process instead, with its message on standard error and `SIGABRT`; the supervisor
/// restarts the program, which joins again.
fn guarded<T>(work: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let what = message(&*panic);
        error!("training panicked: {what}");
        let reason = format!("internal error: training panicked ({what}); please report this");
        Err(Failure::new(Blame::Program, reason))
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failed_round_with_its_message() {
        type Job = fn() -> Result<(), Failure>;
        let panics: [(Job, &str); 3] = [
            (|| panic!("a constant"), "a constant"),
            (|| panic!("shape {}", std::hint::black_box(3)), "shape 3"),
            (|| panic::panic_any(7), "without a message"),
        ];
        for (work, said) in panics {
            let failure = guarded(work).unwrap_err();
            let reason = format!("internal error: training panicked ({said}); please report this");
            assert_eq!((failure.reason, failure.blame), (reason, Blame::Program));
        }
        assert_eq!(guarded(|| Ok(1)), Ok(1));
        let diverged = Failure::new(Blame::Server, "diverged");
        assert_eq!(guarded(|| Err::<(), _>(diverged.clone())), Err(diverged));
    }
}
