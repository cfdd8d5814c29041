//! What is free for training.

use super::{Finding, bytes};
use crate::system::System;
use crate::system::memory::{Memory, memory};

const SUBJECT: &str = "memory";
/// Training the smallest networks takes about as much (`cargo bench -p federation-tests --bench idle`).
const LEAST: u64 = 60_000_000;
/// Enough for what devices usually train.
const ENOUGH: u64 = 300_000_000;
const ADVICE: &str =
    "close other programs, take a smaller model or smaller batches, or give the device swap space";

/// What the system says is free, and how bad that is.
#[must_use]
pub fn look_at(system: &System) -> Vec<Finding> {
    let Some(Memory { total, available, free }) = memory(system) else { return Vec::new() };
    let limited = if free < available { ", which is what a limit for this process leaves" } else { "" };
    let found = format!("{} of {} are free{limited}", bytes(free), bytes(total));
    vec![match free {
        0..LEAST => Finding::problem(SUBJECT, found, ADVICE),
        LEAST..ENOUGH => Finding::warning(SUBJECT, format!("{found}: enough for small models alone"), ADVICE),
        _ => Finding::ok(SUBJECT, found),
    }]
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
        // Most of what is used are files that give way.
        let stat = "anon 100000000\ninactive_file 700000000\nactive_file 100000000\n";
        let stat = ("sys/fs/cgroup/system.slice/edge-client.service/memory.stat", stat);
        assert_eq!(level(4_000_000, &[group, own("1000000000\n"), used, stat]), Level::Ok);
    }
}
