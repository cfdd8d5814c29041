//! Threads that are at hand when a step needs them.

use std::sync::atomic::{AtomicBool, Ordering};

use rayon::Yield;

/// Multiply-adds of a forward pass from which it is worth more than one thread: about 50 microseconds of training.
const WORTH_THREADS: u64 = 1 << 20;

/// How often a waiting thread looks away between two looks for work: about a microsecond.
const PATIENCE: usize = 64;
/// Looks in vain, about a millisecond of them, after which a waiting thread lets others have its core between two looks, if
/// there are any: more threads than cores are several clients on one machine. Sooner, and whatever runs in the background
/// would slow every step down: measured, `lenet-5` in batches of 64 took twice as long with 32.
const GENEROSITY: usize = 1000;

/// Runs `step`, which takes so many multiply-adds in its forward pass, while the other threads of the pool look for parts
/// of its work.
///
/// A step is a row of parallel sections of some ten microseconds each. A thread that falls asleep between two of them takes
/// longer to wake up than the next one lasts, above all in a virtual machine; so the threads stay awake until the step
/// ends. A small step runs alone, and lets them sleep.
///
/// The pool is to be this step's alone: a thread that helps may take on whatever else is in the pool, and the step would
/// wait for that too.
pub(crate) fn attended<R: Send>(multiply_adds: u64, step: impl FnOnce() -> R + Send) -> R {
    let others = rayon::current_num_threads() - 1;
    let home = rayon::current_thread_index();
    if others == 0 || home.is_none() || multiply_adds < WORTH_THREADS {
        return step();
    }
    let over = AtomicBool::new(false);
    rayon::scope(|scope| {
        for _ in 0..others {
            scope.spawn(|_| attend(home, &over));
        }
        let _ends = Ends(&over);
        step()
    })
}

/// Takes parts of the work on until the step is over. On the thread of the step itself, which may come by here while it
/// waits for a part that another thread has taken, that would be for ever.
fn attend(home: Option<usize>, over: &AtomicBool) {
    if rayon::current_thread_index() == home {
        return;
    }
    let mut in_vain = 0;
    while !over.load(Ordering::Acquire) {
        if rayon::yield_now() == Some(Yield::Executed) {
            in_vain = 0;
            continue;
        }
        (0..PATIENCE).for_each(|_| std::hint::spin_loop());
        in_vain += 1;
        if in_vain > GENEROSITY {
            std::thread::yield_now();
        }
    }
}

/// Says that the step is over when it is dropped, even by a panic.
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
                assert_eq!(pool.install(|| attended(WORTH_THREADS, sum)), 40_000, "{threads} threads");
            }
        }
        assert_eq!(attended(WORTH_THREADS, || 7), 7);
    }

    #[test]
    fn a_step_that_panics_lets_the_others_go() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let step = || pool.install(|| attended(WORTH_THREADS, || -> u32 { panic!("as meant") }));
        assert!(catch_unwind(AssertUnwindSafe(step)).is_err());
        assert_eq!(pool.install(|| attended(WORTH_THREADS, || 7)), 7);
    }
}
