//! Busy-waiting of the pool's threads during a training step.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::Yield;

/// Multiply-adds of a forward pass from which several threads pay: about 50 microseconds of training.
const MIN_PARALLEL_WORK: u64 = 1 << 20;

/// Spins of a waiting thread between two polls for work: about a microsecond.
const SPINS_PER_POLL: usize = 64;
/// Polls without work, about a millisecond, after which a waiting thread yields its core between polls: with several clients on
/// one machine there are more threads than cores. A smaller number lets background processes slow every step down: measured,
/// with 32 polls `lenet-5` in batches of 64 took twice as long.
const POLLS_BEFORE_YIELD: usize = 1000;

/// Runs `step`, whose forward pass has `multiply_adds`, while the other threads of the pool poll for parts of its work.
///
/// A step is a sequence of parallel sections of some ten microseconds each. A thread that falls asleep between two sections
/// takes longer to wake up than the next section lasts, above all in a virtual machine; so the threads stay awake until the
/// step ends. A small step runs on one thread and lets the others sleep.
///
/// The pool should belong to this step alone: a polling thread may pick up any other job in the pool, and the step would wait
/// for that job.
pub(crate) fn with_spinning_threads<R: Send>(multiply_adds: u64, step: impl FnOnce() -> R + Send) -> R {
    let others = rayon::current_num_threads() - 1;
    let home = rayon::current_thread_index();
    if others == 0 || home.is_none() || multiply_adds < MIN_PARALLEL_WORK {
        return step();
    }
    let over = AtomicBool::new(false);
    rayon::scope(|scope| {
        for _ in 0..others {
            scope.spawn(|_| help(home, &over));
        }
        let _ends = Ends(&over);
        step()
    })
}

/// Polls for work until the step is over. Returns at once on the step's own thread, which may run this job while it waits for
/// another thread, and would then never return.
fn help(home: Option<usize>, over: &AtomicBool) {
    if rayon::current_thread_index() == home {
        return;
    }
    let mut idle_polls = 0;
    while !over.load(Ordering::Acquire) {
        if rayon::yield_now() == Some(Yield::Executed) {
            idle_polls = 0;
            continue;
        }
        (0..SPINS_PER_POLL).for_each(|_| std::hint::spin_loop());
        idle_polls += 1;
        if idle_polls > POLLS_BEFORE_YIELD {
            std::thread::yield_now();
        }
    }
}

/// Marks the step as over when dropped, even by a panic.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn steps_in_parts_come_to_an_end() {
        for threads in 1..=4 {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let sum = || {
                let halves = |from: u64| rayon::join(|| from, || from + 1);
                (0..200).map(halves).map(|(a, b)| a + b).sum::<u64>()
            };
            for _ in 0..20 {
                assert_eq!(
                    pool.install(|| with_spinning_threads(MIN_PARALLEL_WORK, sum)),
                    40_000,
                    "{threads} threads"
                );
            }
        }
        assert_eq!(with_spinning_threads(MIN_PARALLEL_WORK, || 7), 7);
    }

    #[test]
    fn a_step_that_panics_lets_the_others_go() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let step =
            || pool.install(|| with_spinning_threads(MIN_PARALLEL_WORK, || -> u32 { panic!("as meant") }));
        assert!(catch_unwind(AssertUnwindSafe(step)).is_err());
        assert_eq!(pool.install(|| with_spinning_threads(MIN_PARALLEL_WORK, || 7)), 7);
    }
}
