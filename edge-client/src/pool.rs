//! Threads that train, so that heart-beats keep flowing.
//!
//! A device has one worker that uses all of its cores; a simulation has one worker per core that uses one
//! each. Either way the result of a task does not depend on it.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use shared::algorithm::Workbench;

/// What is done at a worker's bench, if it has one.
type Job = Box<dyn FnOnce(Option<&mut Workbench>) + Send>;

/// A fixed set of workers that take jobs in turn. Clones share the workers; they end when the last clone is
/// dropped.
#[derive(Clone)]
pub struct TrainPool {
    jobs: mpsc::Sender<Job>,
}

/// The operating system gives no more threads.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the threads that train: {0}")]
pub struct NoThreads(String);

impl From<String> for NoThreads {
    fn from(reason: String) -> Self {
        Self(reason)
    }
}

impl TrainPool {
    /// One job at a time, with `threads` threads for its tensor operations. Nothing of it is kept when it ends.
    pub fn single(threads: usize) -> Result<Self, NoThreads> {
        Self::new(1, threads, || None)
    }

    /// `workers` jobs at a time, each with a thread and a workbench of its worker's, at which many clients take turns.
    pub fn with_workers(workers: usize) -> Result<Self, NoThreads> {
        Self::new(workers, 1, || Some(Workbench::default()))
    }

    fn new(workers: usize, threads: usize, bench: fn() -> Option<Workbench>) -> Result<Self, NoThreads> {
        let (jobs, queue) = mpsc::channel::<Job>();
        let queue = Arc::new(Mutex::new(queue));
        for number in 0..workers.max(1) {
            let queue = queue.clone();
            let (ready, started) = mpsc::channel();
            let worker = std::thread::Builder::new().name(format!("train-{number}-0"));
            let spawned = worker.spawn(move || {
                // One of the pool's threads: no other has to be woken for a job to begin, nor for its end to be heard of.
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(threads.max(1))
                    .use_current_thread()
                    .thread_name(move |thread| format!("train-{number}-{thread}"))
                    .build();
                let pool = match pool {
                    Ok(pool) => pool,
                    Err(error) => return drop(ready.send(Err(NoThreads(error.to_string())))),
                };
                let _ = ready.send(Ok(()));
                let mut bench = bench();
                while let Some(job) = next(&queue) {
                    // Whoever submits a job sees to its panics; here they must not cost a worker. The
                    // message has been printed.
                    let _ = panic::catch_unwind(AssertUnwindSafe(|| pool.install(|| job(bench.as_mut()))));
                }
            });
            spawned.map_err(|error| NoThreads(error.to_string()))?;
            started.recv().expect("a worker says how it began")?;
        }
        Ok(Self { jobs })
    }

    /// Queues a job.
    ///
    /// # Panics
    /// Never: workers, and with them the queue's other end, live as long as there is a sender. A job that
    /// panics does not end its worker.
    pub fn submit(&self, job: impl FnOnce(Option<&mut Workbench>) + Send + 'static) {
        self.jobs.send(Box::new(job)).expect("workers live as long as a pool does");
    }
}

fn next(queue: &Mutex<mpsc::Receiver<Job>>) -> Option<Job> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_panics_costs_no_worker() {
        let pool = TrainPool::single(2).unwrap();
        for _ in 0..3 {
            pool.submit(|_| panic!("on purpose, in a test"));
        }
        let (done, after) = mpsc::channel();
        pool.submit(move |_| done.send(()).unwrap());
        after.recv().expect("the one worker is still there");
    }
}
