//! What a process uses, as Linux tells it in `/proc`.

use std::fs;

/// `USER_HZ` of Linux, in which it tells times on every architecture that we run on.
const TICKS: f64 = 100.0;

/// A figure of `/proc/PID/status`, in bytes: `VmRSS` (resident now) or `VmHWM` (resident at most).
#[must_use]
pub fn memory(process: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// Seconds that the threads of a process have been running, all together.
#[must_use]
pub fn processor_time(process: u32) -> Option<f64> {
    times(process, 11)
}

/// The same of its children that have ended.
#[must_use]
pub fn ended_children_time(process: u32) -> Option<f64> {
    times(process, 13)
}

/// The process that started it.
#[must_use]
pub fn parent(process: u32) -> Option<u32> {
    stat(process)?.get(1)?.parse().ok()
}

/// The sum of two times that stand side by side: in user mode and in the kernel.
fn times(process: u32, first: usize) -> Option<f64> {
    let fields = stat(process)?;
    let ticks: Option<f64> =
        fields.get(first..first + 2)?.iter().map(|ticks| ticks.parse::<f64>().ok()).sum();
    Some(ticks? / TICKS)
}

/// The fields of `/proc/PID/stat` after the second, which is a name in brackets and may hold anything.
fn stat(process: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}
