//! Free memory for training.

use super::{Finding, bytes};
use crate::allowance::default_share;
use crate::system::System;
use crate::system::memory::{Memory, limits_are_kept, memory};

const SUBJECT: &str = "memory";
/// Training the smallest networks takes about as much (`federation-lab idle`).
const MIN_FREE: u64 = 60_000_000;
/// Enough for models that devices usually train.
const ENOUGH: u64 = 300_000_000;
const ADVICE: &str =
    "close other programs, take a smaller model or smaller batches, or give the device swap space";

/// The free memory, and whether memory limits are enforced.
#[must_use]
pub fn look_at(system: &System) -> Vec<Finding> {
    let Some(Memory { total, available, free }) = memory(system) else { return Vec::new() };
    let limited = if free < available { ", which is what a limit for this process leaves" } else { "" };
    let found = format!("{} of {} are free{limited}", bytes(free), bytes(total));
    let runs = bytes(default_share(system).unwrap_or(free));
    let of_free = match free {
        0..MIN_FREE => Finding::problem(SUBJECT, found, ADVICE),
        MIN_FREE..ENOUGH => {
            Finding::warning(SUBJECT, format!("{found}: enough for small models alone"), ADVICE)
        }
        _ => Finding::ok(
            SUBJECT,
            format!("{found}; runs may take {runs}, or what joining says with --max-memory"),
        ),
    };
    std::iter::once(of_free).chain(limits(system)).collect()
}

/// Whether the system enforces the service's limit, `MemoryMax`. By default a Raspberry Pi does not.
fn limits(system: &System) -> Option<Finding> {
    (!limits_are_kept(system)).then(|| {
        Finding::warning(
            "memory limit",
            "this system was started without limits (cgroup_disable=memory)",
            "add cgroup_enable=memory cgroup_memory=1 to the kernel's command line (on a Raspberry Pi, to the line in \
             /boot/firmware/cmdline.txt) and start the device again: until then the service may take all memory",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;
    use crate::system::tests::system;

    fn level(kibibytes: u64, more: &[(&str, &str)]) -> Level {
        let meminfo = format!("MemTotal:        8000000 kB\nMemFree: 1 kB\nMemAvailable:  {kibibytes} kB\n");
        let mut files = vec![("proc/meminfo", &meminfo[..])];
        files.extend(more);
        look_at(&system(&files).1)[0].level
    }

    #[test]
    fn little_memory_is_reported() {
        assert_eq!(level(4_000_000, &[]), Level::Ok);
        assert_eq!(level(200_000, &[]), Level::Warning);
        assert_eq!(level(50_000, &[]), Level::Problem);
    }

    #[test]
    fn limits_that_are_not_enforced_are_reported() {
        let findings = |cmdline, controllers| {
            let files = [
                ("proc/meminfo", "MemTotal: 8000000 kB\nMemAvailable: 4000000 kB\n"),
                ("proc/cmdline", cmdline),
                ("sys/fs/cgroup/cgroup.controllers", controllers),
            ];
            look_at(&system(&files).1)
        };
        let pi = "coherent_pool=1M cgroup_disable=memory root=/dev/mmcblk0p2\n";
        let told = findings(pi, "cpuset cpu io pids\n");
        assert_eq!((told.len(), told[1].subject, told[1].level), (2, "memory limit", Level::Warning));
        let enabled = "cgroup_disable=memory root=/dev/mmcblk0p2 cgroup_enable=memory cgroup_memory=1\n";
        assert_eq!(findings(enabled, "cpuset cpu io memory pids\n").len(), 1);
        assert_eq!(
            findings("root=/dev/sda1\n", "cpuset cpu io pids\n").len(),
            1,
            "a part of another system's groups"
        );
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
        // Most of what is used are files that give way.
        let stat = "anon 100000000\ninactive_file 700000000\nactive_file 100000000\n";
        let stat = ("sys/fs/cgroup/system.slice/edge-client.service/memory.stat", stat);
        assert_eq!(level(4_000_000, &[group, own("1000000000\n"), used, stat]), Level::Ok);
    }
}
