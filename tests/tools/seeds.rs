//! Many simulations, one of each seed, on all processors.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

#[cfg(target_os = "linux")]
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Does this with each seed. What panics in [`played`] is left to the caller to print.
pub(crate) fn each(seeds: Range<u64>, work: impl Fn(u64) + Sync) {
    std::panic::set_hook(Box::new(|_| {}));
    let next = AtomicU64::new(seeds.start);
    let work = |thread| {
        stay_on_one_processor(thread);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            work(seed);
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let work = &work;
    thread::scope(|scope| (0..threads).for_each(|thread| drop(scope.spawn(move || work(thread)))));
}

/// Keeps this thread, and those that it starts, on one of the processors that the program may use. Threads of one simulation take
/// turns: on two processors each turn would wait for the other one to wake up.
#[cfg(target_os = "linux")]
fn stay_on_one_processor(thread: usize) {
    // Where the system refuses, the simulation is slower and otherwise the same.
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut usable = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor));
    if let Some(processor) = usable.nth(thread) {
        let mut one = CpuSet::new();
        one.set(processor);
        let _ = sched_setaffinity(None, &one);
    }
}

#[cfg(not(target_os = "linux"))]
fn stay_on_one_processor(_thread: usize) {}

/// Plays a simulation in an empty folder. What it panics with is the error.
pub(crate) fn played<T>(play: impl FnOnce(&Path) -> T) -> Result<T, String> {
    let folder = tempfile::tempdir().expect("the system has a place for temporary files");
    catch_unwind(AssertUnwindSafe(|| play(folder.path()))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
    })
}
