//! What is free for training.

use super::{Finding, System, bytes};

const SUBJECT: &str = "memory";
/// Training the smallest networks takes about as much (`cargo bench -p federation-tests --bench idle`).
const LEAST: u64 = 60_000_000;
/// Enough for what devices usually train.
const ENOUGH: u64 = 300_000_000;
const ADVICE: &str =
    "close other programs, take a smaller model or smaller batches, or give the device swap space";

/// What the system says is available, or what a limit leaves of it.
#[must_use]
pub fn look_at(system: &System) -> Vec<Finding> {
    let Some(available) = meminfo(system, "MemAvailable:") else { return Vec::new() };
    let total = meminfo(system, "MemTotal:").unwrap_or(available);
    let limit = limit(system);
    let free = limit.map_or(available, |left| available.min(left));
    let limited = if free < available { ", which is what a limit for this process leaves" } else { "" };
    let found = format!("{} of {} are free{limited}", bytes(free), bytes(total));
    vec![match free {
        0..LEAST => Finding::problem(SUBJECT, found, ADVICE),
        LEAST..ENOUGH => Finding::warning(SUBJECT, format!("{found}: enough for small models alone"), ADVICE),
        _ => Finding::ok(SUBJECT, found),
    }]
}

/// A figure of `/proc/meminfo`, in bytes.
fn meminfo(system: &System, name: &str) -> Option<u64> {
    let text = system.read("proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
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
            let left = most.saturating_sub(number("memory.current").unwrap_or(0));
            least = Some(least.map_or(left, |least: u64| least.min(left)));
        }
        if group.is_empty() {
            return least;
        }
        group = group.rsplit_once('/').map_or("", |(above, _)| above);
    }
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::tests::system;
    use super::*;

    fn level(kibibytes: u64, more: &[(&str, &str)]) -> Level {
        let meminfo = format!("MemTotal:        8000000 kB\nMemFree: 1 kB\nMemAvailable:  {kibibytes} kB\n");
        let mut files = vec![("proc/meminfo", &meminfo[..])];
        files.extend(more);
        look_at(&system(&files).1)[0].level
    }

    #[test]
    fn little_memory_is_told_of() {
        assert_eq!(level(4_000_000, &[]), Level::Ok);
        assert_eq!(level(200_000, &[]), Level::Warning);
        assert_eq!(level(50_000, &[]), Level::Problem);
    }

    #[test]
    fn the_least_limit_of_the_groups_above_counts() {
        let group = ("proc/self/cgroup", "1:name=systemd:/x\n0::/system.slice/edge-client.service\n");
        let own = |most| ("sys/fs/cgroup/system.slice/edge-client.service/memory.max", most);
        let above = |most| ("sys/fs/cgroup/system.slice/memory.max", most);
        let used = ("sys/fs/cgroup/system.slice/edge-client.service/memory.current", "900000000\n");
        assert_eq!(level(4_000_000, &[group, own("max\n"), above("max\n")]), Level::Ok);
        assert_eq!(level(4_000_000, &[group, own("200000000\n"), above("max\n")]), Level::Warning);
        assert_eq!(level(4_000_000, &[group, own("max\n"), above("9000000\n")]), Level::Problem);
        assert_eq!(level(4_000_000, &[group, own("1000000000\n"), above("max\n")]), Level::Ok);
        assert_eq!(level(4_000_000, &[group, own("1000000000\n"), used]), Level::Warning);
    }
}
