//! The task in training: on the pool's threads, watched and cancelled from here.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;

use shared::message::{Progress, TaskId};
use tokio::sync::mpsc;
use tracing::error;

use crate::pool::TrainPool;
use crate::task::{self, Task, TaskHandle, TaskOutput};

/// A task that came to its end.
pub(super) struct Finished {
    handle: Arc<TaskHandle>,
    result: Result<TaskOutput, String>,
}

struct Running {
    held: TaskId,
    handle: Arc<TaskHandle>,
}

/// At most one task.
pub(super) struct Training {
    running: Option<Running>,
    /// Boxed, since a channel has room for dozens from the start and there is at most one.
    finished: mpsc::UnboundedSender<Box<Finished>>,
}

impl Training {
    /// No task. Those that end are sent to `finished`.
    pub(super) fn new(finished: mpsc::UnboundedSender<Box<Finished>>) -> Self {
        Self { running: None, finished }
    }

    pub(super) fn begin(&mut self, pool: &TrainPool, held: TaskId, task: Task) {
        let handle = Arc::new(TaskHandle::default());
        self.running = Some(Running { held, handle: handle.clone() });
        let finished = self.finished.clone();
        pool.submit(move |bench| {
            let work = || task::run_task(&task, &handle, bench).map_err(|error| error.to_string());
            let result = guarded(work);
            let _ = finished.send(Box::new(Finished { handle, result }));
        });
    }

    /// Asks the task to stop. Nobody waits for its end any more.
    pub(super) fn cancel(&mut self) {
        if let Some(running) = self.running.take() {
            running.handle.cancel();
        }
    }

    /// How far it is, if there is one.
    pub(super) fn progress(&self) -> Option<Progress> {
        self.running.as_ref().map(|running| running.handle.progress(running.held.round))
    }

    /// A number that changes with every step of the task, if there is one.
    pub(super) fn beats(&self) -> Option<u64> {
        self.running.as_ref().map(|running| running.handle.beats())
    }

    /// A task came to its end; `None` if it was cancelled before.
    pub(super) fn ended(&mut self, finished: Finished) -> Option<(TaskId, Result<TaskOutput, String>)> {
        let Finished { handle, result } = finished;
        let running = self.running.take_if(|running| Arc::ptr_eq(&running.handle, &handle))?;
        Some((running.held, result))
    }
}

/// Does `work`. A panic in it is our bug, and one failed round: the server hears of it and the client goes
/// on. What the work had in hand is dropped with it, so that nothing half-done is seen by anybody.
///
/// In the `dist` profile a panic ends the process instead, with the message on standard error and a signal
/// (`SIGABRT`): whoever supervises the program starts it again, and it joins again.
fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let what = message(&*panic);
        error!("training panicked: {what}");
        Err(format!("internal error: training panicked ({what}); please report this"))
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
        type Job = fn() -> Result<(), String>;
        let panics: [(Job, &str); 3] = [
            (|| panic!("a constant"), "a constant"),
            (|| panic!("shape {}", std::hint::black_box(3)), "shape 3"),
            (|| panic::panic_any(7), "without a message"),
        ];
        for (work, said) in panics {
            let reason = guarded(work).unwrap_err();
            assert_eq!(reason, format!("internal error: training panicked ({said}); please report this"));
        }
        assert_eq!(guarded(|| Ok::<_, String>(1)), Ok(1));
        assert_eq!(guarded(|| Err::<(), _>("diverged".to_owned())), Err("diverged".to_owned()));
    }
}
