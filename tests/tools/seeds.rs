//! Many simulations, one of each seed, on all processors.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Does this with each seed. What panics in [`played`] is left to the caller to print.
pub(crate) fn each(seeds: Range<u64>, work: impl Fn(u64) + Sync) {
    std::panic::set_hook(Box::new(|_| {}));
    let next = AtomicU64::new(seeds.start);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                break;
            }
            work(seed);
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
}

/// Plays a simulation in an empty folder. What it panics with is the error.
pub(crate) fn played<T>(play: impl FnOnce(&Path) -> T) -> Result<T, String> {
    let folder = tempfile::tempdir().expect("the system has a place for temporary files");
    catch_unwind(AssertUnwindSafe(|| play(folder.path()))).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|&text| text.to_owned())).unwrap_or_default()
    })
}
