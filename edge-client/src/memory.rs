//! The memory of this process: what it takes, its peak, and returning freed memory to the system.
//!
//! If the C library returned the pages of each freed buffer, the next buffer would have to clear and map them again, which takes
//! a tenth of a round without training (`federation-lab null-round`): while there is work, the process [keeps](keep_freed) freed
//! memory. A device that trains once an hour would waste it, about 20 MB after a round of `cnn-mnist` (`federation-lab idle`): an
//! idle process [returns it](give_back).
//!
//! Apart from matrix products, this is the project's one use of `unsafe` outside of libraries.

/// Largest buffer that is served from kept memory; the C library allows no larger value.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGEST_KEPT: i32 = 32 << 20;

/// How the threads of a process share the memory that is [kept](keep_freed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heaps {
    /// One heap for all threads: a device. With one heap each, a thread could not use memory that another has freed, and the C
    /// library returns only the free end of the first heap.
    One,
    /// One heap per thread: a simulation. Its threads train at the same time, and each matrix product allocates its packed
    /// operands: on one heap, threads with small steps wait for each other a tenth of the time. A buffer returns to the heap of
    /// the thread that allocated it.
    Each,
}

/// Keeps freed memory for the next buffer, until [`give_back`]. Call it once, before the process starts threads.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn keep_freed(heaps: Heaps) {
    let kept = [(libc::M_MMAP_THRESHOLD, LARGEST_KEPT), (libc::M_TRIM_THRESHOLD, i32::MAX)];
    let one = (heaps == Heaps::One).then_some((libc::M_ARENA_MAX, 1));
    for (parameter, value) in kept.into_iter().chain(one) {
        // SAFETY: `mallopt` takes two integers and has no preconditions; a value that it does not know is refused and
        // changes nothing. It is thread-safe in the C library of GNU, which is the one that has these parameters.
        #[expect(unsafe_code, reason = "the C library has no safe way to be told how it should keep memory")]
        let _accepted = unsafe { libc::mallopt(parameter, value) };
    }
}

/// Other C libraries decide this by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_freed(_heaps: Heaps) {}

/// Gives free heap pages back to the system. Takes milliseconds: for a process that is at rest.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn give_back() {
    // SAFETY: `malloc_trim` takes a number of bytes to keep, has no preconditions, is thread-safe, and touches free
    // memory only.
    #[expect(unsafe_code, reason = "the C library has no safe way to give memory back")]
    let _released = unsafe { libc::malloc_trim(0) };
}

/// Other C libraries give memory back by themselves, or have no way to.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn give_back() {}

/// The most memory that this process has had resident so far, in bytes: `VmHWM` of Linux. Absent on other systems.
#[must_use]
pub fn peak() -> Option<u64> {
    own("VmHWM:")
}

/// The memory that this process has resident now, in bytes: `VmRSS` of Linux. Absent on other systems.
#[must_use]
pub fn resident() -> Option<u64> {
    own("VmRSS:")
}

/// The most memory that another process of this user has had resident so far, in bytes. Absent on other systems than Linux.
#[must_use]
pub fn peak_of(process: u32) -> Option<u64> {
    figure(&process.to_string(), "VmHWM:")
}

/// A figure of this process's status, in bytes.
fn own(name: &str) -> Option<u64> {
    figure("self", name)
}

fn figure(process: &str, name: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    #[test]
    fn the_peak_counts_what_was_touched() {
        let before = super::peak().unwrap();
        let touched = vec![1u8; 64 << 20];
        let after = super::peak().unwrap();
        assert!(after >= 64 << 20 && after >= before, "{before} {after} {}", touched.len());
    }

    #[test]
    fn memory_in_use_is_left_alone() {
        let kept: Vec<u64> = (0..1 << 20).collect();
        let freed: Vec<Vec<u8>> = (0..1000).map(|_| vec![1; 10_000]).collect();
        drop(freed);
        super::give_back();
        assert!(kept.iter().copied().eq(0..1 << 20));
    }
}
