//! The threads that train, apart from those that answer the server.
//!
//! A device has one worker that uses all of its cores; a simulation has one worker per core, each with one thread. The result
//! of a task does not depend on it.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use shared::algorithm::Workbench;

/// A job of a worker, which gets the worker's bench if there is one.
type Job = Box<dyn FnOnce(Option<&mut Workbench>) + Send>;

/// A fixed set of workers with one queue of jobs. Clones share the workers, which end when the last clone is dropped.
#[derive(Clone)]
pub struct TrainPool {
    jobs: mpsc::Sender<Job>,
}

/// The operating system refuses more threads.
#[derive(Debug, thiserror::Error)]
#[error("cannot start the threads that train: {0}")]
pub struct NoThreads(pub String);

impl TrainPool {
    /// One job at a time, with `threads` threads for its tensor operations. Its memory is freed when it ends.
    pub fn single(threads: usize) -> Result<Self, NoThreads> {
        Self::new(1, threads, || None)
    }

    /// `workers` jobs at a time, each with one thread and the workbench of its worker, which many clients use in turn.
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
                // The worker is one of the pool's threads, so no other has to wake up for a job to begin or end.
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
                    // The submitter handles panics of its job; here they must not end a worker. The message was printed.
                    let _ = panic::catch_unwind(AssertUnwindSafe(|| pool.install(|| job(bench.as_mut()))));
                }
            });
            spawned.map_err(|error| NoThreads(error.to_string()))?;
            started.recv().expect("a worker reports how it began")?;
        }
        Ok(Self { jobs })
    }

    /// Queues a job.
    ///
    /// # Panics
    /// Never: the workers, which receive from the queue, live as long as there is a sender. A job that panics does not end its
    /// worker.
    pub fn submit(&self, job: impl FnOnce(Option<&mut Workbench>) + Send + 'static) {
        self.jobs.send(Box::new(job)).expect("workers live as long as their pool");
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
