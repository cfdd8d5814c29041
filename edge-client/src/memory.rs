//! The memory of this process: how much it has used, and freed memory given back to the system.
//!
//! The C library keeps what was freed for the next allocation, which on a device that trains once an hour is memory
//! that nobody can use. After a round of `cnn-mnist` that is about 20 MB (`cargo bench -p federation-tests --bench
//! idle`), so it is [given back](give_back) at rest.
//!
//! A simulation does the opposite: pages that go back to the system after each of the buffers that a model's parameters
//! pass through are cleared and mapped again for the next, so that it [keeps](keep_freed) them. A device does not: it made
//! a round without training a tenth shorter there, and the idle client 7 MB larger.
//!
//! Apart from matrix products, this is the project's one use of `unsafe` outside of libraries.

/// Buffers up to this size come from memory that is kept, larger ones from the system: as much as the C library allows.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGEST_KEPT: i32 = 32 << 20;

/// Keeps freed memory for the next buffer, until [`give_back`]. To be called once, when the process starts.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn keep_freed() {
    for (parameter, value) in [(libc::M_MMAP_THRESHOLD, LARGEST_KEPT), (libc::M_TRIM_THRESHOLD, i32::MAX)] {
        // SAFETY: `mallopt` takes two integers and has no preconditions; a value that it does not know is refused and
        // changes nothing. It is thread-safe in the C library of GNU, which is the one that has these parameters.
        #[expect(unsafe_code, reason = "the C library has no safe way to be told how it should keep memory")]
        let _accepted = unsafe { libc::mallopt(parameter, value) };
    }
}

/// Other C libraries decide this by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn keep_freed() {}

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
