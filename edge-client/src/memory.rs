//! The memory of this process: how much it has used, and freed memory given back to the system.
//!
//! Pages that go back to the system after each of the buffers that a model's parameters pass through are cleared and
//! mapped again for the next, which is a tenth of a round without training (`federation-lab null-round`): while there is
//! work the process [keeps](keep_freed) them. On a device that trains once an hour they are memory that nobody can use, after
//! a round of `cnn-mnist` about 20 MB (`federation-lab idle`): at rest they are [given back](give_back).
//!
//! Apart from matrix products, this is the project's one use of `unsafe` outside of libraries.

/// Buffers up to this size come from memory that is kept, larger ones from the system: as much as the C library allows.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGEST_KEPT: i32 = 32 << 20;

/// How the threads of a process share the memory that is [kept](keep_freed).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heaps {
    /// All threads have one heap: a device. With one each, what a thread has freed is of no use to the others, and of the heaps
    /// beside the first the C library does not give back the free end, which after a large buffer is most of it.
    One,
    /// Each thread has its own: a simulation. Its threads train at the same time, and every product of matrices in a step
    /// allocates what it packs: on one heap they wait for each other, with small steps for a tenth of the time. What a thread
    /// hands on returns to its heap when others free it.
    Each,
}

/// Keeps freed memory for the next buffer, until [`give_back`]. To be called once, when the process starts, before its
/// threads do.
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
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
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
