//! Free memory for this process.

use super::System;

/// Memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// All of the device's.
    pub total: u64,
    /// What the system can give to programs.
    pub available: u64,
    /// The part of that which this process may use, given its limits.
    pub free: u64,
}

/// The memory; `None` if the system does not report it.
#[must_use]
pub fn memory(system: &System) -> Option<Memory> {
    let available = meminfo(system, "MemAvailable:")?;
    let total = meminfo(system, "MemTotal:").unwrap_or(available);
    let free = limit(system).map_or(available, |left| available.min(left));
    Some(Memory { total, available, free })
}

/// Whether the kernel enforces memory limits of control groups: some systems disable that at boot.
#[must_use]
pub fn limits_are_kept(system: &System) -> bool {
    let line = system.read("proc/cmdline").unwrap_or_default();
    let disabled = line.split_whitespace().any(|word| word == "cgroup_disable=memory");
    let controllers = system.read("sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
    let has_one =
        system.exists("sys/fs/cgroup/memory") || controllers.split_whitespace().any(|name| name == "memory");
    !disabled || has_one
}

/// A figure of `/proc/meminfo`, in bytes.
fn meminfo(system: &System, name: &str) -> Option<u64> {
    let text = system.read("proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// A figure of a control group's `memory.stat`, in bytes.
fn counted(system: &System, place: &str, name: &str) -> Option<u64> {
    let text = system.read(&format!("{place}/memory.stat"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.trim().parse().ok()
}

/// The rest of the lowest limit among this process's control group and its ancestors (version 2), if there is one.
fn limit(system: &System) -> Option<u64> {
    let groups = system.read("proc/self/cgroup")?;
    let mut group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut least = None;
    loop {
        let place = format!("sys/fs/cgroup/{group}");
        let number = |file: &str| system.read(&format!("{place}/{file}"))?.parse::<u64>().ok();
        if let Some(most) = number("memory.max") {
            let used = number("memory.current").unwrap_or(0);
            // Inactive file pages count as used, but the kernel reclaims them on demand.
            let kept = counted(system, &place, "inactive_file").unwrap_or(0);
            let left = most.saturating_sub(used.saturating_sub(kept));
            least = Some(least.map_or(left, |least: u64| least.min(left)));
        }
        if group.is_empty() {
            return least;
        }
        group = group.rsplit_once('/').map_or("", |(above, _)| above);
    }
}
