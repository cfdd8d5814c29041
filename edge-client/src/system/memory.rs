//! What is free for this process.

use super::System;

/// In bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The device's.
    pub total: u64,
    /// What the system could give to programs.
    pub available: u64,
    /// What a limit for this process leaves of that; all of it where there is none.
    pub free: u64,
}

/// What the system says of it; `None` where it says nothing.
#[must_use]
pub fn memory(system: &System) -> Option<Memory> {
    let available = meminfo(system, "MemAvailable:")?;
    let total = meminfo(system, "MemTotal:").unwrap_or(available);
    let free = limit(system).map_or(available, |left| available.min(left));
    Some(Memory { total, available, free })
}

/// Whether the kernel keeps control groups to the memory that they may have: some systems start it with the order not to.
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

/// What is left of the least limit of this process's control group and those above it (version 2), if there is one.
fn limit(system: &System) -> Option<u64> {
    let groups = system.read("proc/self/cgroup")?;
    let mut group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mut least = None;
    loop {
        let place = format!("sys/fs/cgroup/{group}");
        let number = |file: &str| system.read(&format!("{place}/{file}"))?.parse::<u64>().ok();
        if let Some(most) = number("memory.max") {
            let used = number("memory.current").unwrap_or(0);
            // Files that were read and not looked at since count as used, and give way to whoever needs memory.
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
