//! The state that the device is in, as Linux tells it in `/sys` and `/proc`. Elsewhere nothing is known of it.

use std::fs;
use std::path::{Path, PathBuf};

use shared::eligibility::{Condition, Eligibility, Unready};

use crate::doctor::disk::room;

const MEGABYTE: u64 = 1_000_000;

/// What is looked at before a task is begun.
#[derive(Clone, Debug)]
pub struct Sensors {
    /// Where `/sys` and `/proc` are; `None`: nothing is looked at.
    root: Option<PathBuf>,
    /// Where the device keeps its state.
    state: PathBuf,
}

impl Sensors {
    /// This device's, which keeps its state in `state`.
    #[must_use]
    pub fn of_device(state: &Path) -> Self {
        Self::below(Path::new("/"), state)
    }

    /// The same with `/sys` and `/proc` below `root`.
    #[must_use]
    pub fn below(root: &Path, state: &Path) -> Self {
        Self { root: Some(root.to_owned()), state: state.to_owned() }
    }

    /// None: a simulated device is always ready.
    #[must_use]
    pub fn none() -> Self {
        Self { root: None, state: PathBuf::new() }
    }

    /// Whether the device meets what a run asks for. Looks at nothing if that is nothing.
    pub fn check(&self, asked: &Eligibility) -> Result<(), Unready> {
        match &self.root {
            Some(root) if *asked != Eligibility::default() => asked.judge(&self.condition(root)),
            _ => Ok(()),
        }
    }

    fn condition(&self, root: &Path) -> Condition {
        Condition {
            celsius: hottest(&root.join("sys/class/thermal")),
            battery: on_battery(&root.join("sys/class/power_supply")),
            memory: available(&root.join("proc/meminfo")),
            disk: free(&self.state),
        }
    }
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

fn folders(path: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(path).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()))
}

/// Zones give thousandths of a degree. A zone that is off gives an error, or nonsense below zero.
fn hottest(zones: &Path) -> Option<u16> {
    let celsius = |zone: PathBuf| {
        let thousandths: i64 = text(&zone.join("temp"))?.parse().ok()?;
        u16::try_from(thousandths.div_euclid(1000)).ok()
    };
    folders(zones).filter_map(celsius).max()
}

/// What is left of the emptiest battery, if the device runs on one: one is discharging, and nothing else supplies power. The
/// batteries of its accessories are their own affair.
fn on_battery(supplies: &Path) -> Option<u8> {
    let of_device = |supply: &PathBuf| text(&supply.join("scope")).as_deref() != Some("Device");
    let mut left = None;
    for supply in folders(supplies).filter(of_device) {
        if text(&supply.join("type")).as_deref() == Some("Battery") {
            if text(&supply.join("status")).as_deref() == Some("Discharging") {
                // One that does not say how full it is cannot be too empty.
                let percent = text(&supply.join("capacity")).and_then(|percent| percent.parse().ok());
                let percent = percent.unwrap_or(100);
                left = Some(left.map_or(percent, |least: u8| least.min(percent)));
            }
        } else if text(&supply.join("online")).as_deref() == Some("1") {
            return None;
        }
    }
    left
}

fn available(meminfo: &Path) -> Option<u32> {
    let text = fs::read_to_string(meminfo).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(megabytes(kibibytes.saturating_mul(1024)))
}

fn free(state: &Path) -> Option<u32> {
    Some(megabytes(room(state)?.bytes))
}

fn megabytes(bytes: u64) -> u32 {
    u32::try_from(bytes / MEGABYTE).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, content: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn condition(files: &[(&str, &str)]) -> Condition {
        let folder = tempfile::tempdir().unwrap();
        for (path, content) in files {
            write(folder.path(), path, content);
        }
        let sensors = Sensors::below(folder.path(), folder.path());
        Condition { disk: None, ..sensors.condition(folder.path()) }
    }

    #[test]
    fn the_hottest_zone_counts_and_broken_ones_do_not() {
        let zones = [
            ("sys/class/thermal/thermal_zone0/temp", "48312\n"),
            ("sys/class/thermal/thermal_zone1/temp", "61999\n"),
            ("sys/class/thermal/thermal_zone2/temp", "-256000\n"),
            ("sys/class/thermal/thermal_zone3/temp", "none\n"),
            ("sys/class/thermal/cooling_device0/type", "fan\n"),
        ];
        assert_eq!(condition(&zones).celsius, Some(61));
        assert_eq!(condition(&[]), Condition::default());
    }

    #[test]
    fn a_battery_counts_while_the_device_runs_on_it() {
        let battery = |status, capacity| {
            vec![
                ("sys/class/power_supply/BAT0/type", "Battery\n"),
                ("sys/class/power_supply/BAT0/status", status),
                ("sys/class/power_supply/BAT0/capacity", capacity),
            ]
        };
        let mouse = [
            ("sys/class/power_supply/mouse/type", "Battery\n"),
            ("sys/class/power_supply/mouse/scope", "Device\n"),
            ("sys/class/power_supply/mouse/status", "Discharging\n"),
            ("sys/class/power_supply/mouse/capacity", "3\n"),
        ];
        let mains = |online| {
            [("sys/class/power_supply/AC/type", "Mains\n"), ("sys/class/power_supply/AC/online", online)]
        };
        let on = |parts: &[&[(&'static str, &'static str)]]| condition(&parts.concat()).battery;
        assert_eq!(on(&[&battery("Discharging\n", "42\n")]), Some(42));
        assert_eq!(on(&[&battery("Discharging\n", "42\n"), &mains("0\n"), &mouse]), Some(42));
        assert_eq!(on(&[&battery("Discharging\n", "42\n"), &mains("1\n")]), None);
        assert_eq!(on(&[&battery("Charging\n", "42\n")]), None);
        assert_eq!(on(&[&mouse]), None);
        let second = [
            ("sys/class/power_supply/BAT1/type", "Battery\n"),
            ("sys/class/power_supply/BAT1/status", "Discharging\n"),
            ("sys/class/power_supply/BAT1/capacity", "7\n"),
        ];
        assert_eq!(on(&[&battery("Discharging\n", "42\n"), &second]), Some(7));
    }

    #[test]
    fn memory_is_what_is_available() {
        let text = "MemTotal:        3884560 kB\nMemFree:          100000 kB\nMemAvailable:    1000000 kB\n";
        assert_eq!(condition(&[("proc/meminfo", text)]).memory, Some(1024));
    }

    #[test]
    fn only_what_is_asked_for_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "sys/class/thermal/thermal_zone0/temp", "90000\n");
        let sensors = Sensors::below(folder.path(), folder.path());
        assert_eq!(sensors.check(&Eligibility::default()), Ok(()));
        let cool = Eligibility { max_temperature: 80, ..Eligibility::default() };
        assert_eq!(sensors.check(&cool), Err(Unready::Hot { celsius: 90, limit: 80 }));
        assert_eq!(Sensors::none().check(&cool), Ok(()));
        let roomy = Eligibility { min_disk: u32::MAX, ..Eligibility::default() };
        assert!(matches!(sensors.check(&roomy), Err(Unready::Disk { .. })), "no disk is that large");
    }
}
