//! Sensors: whether the device meets a run's conditions for training.

use std::path::{Path, PathBuf};

use shared::eligibility::{Condition, Eligibility, Ineligible};

use crate::doctor::disk::room;
use crate::system::System;
use crate::system::memory::memory;
use crate::system::power::{batteries, plugged_in, zones};

const MEGABYTE: u64 = 1_000_000;

/// What is checked before a task begins.
#[derive(Clone, Debug)]
pub struct Sensors {
    /// `None`: nothing is checked.
    system: Option<System>,
    /// The state directory.
    state: PathBuf,
}

impl Sensors {
    /// The sensors of this device, whose state directory is `state`.
    #[must_use]
    pub fn of_device(state: &Path) -> Self {
        Self { system: Some(System::this()), state: state.to_owned() }
    }

    /// No sensors: a simulated device is always eligible.
    #[must_use]
    pub fn none() -> Self {
        Self { system: None, state: PathBuf::new() }
    }

    /// Whether the device meets the conditions `asked`. Reads no sensor if there are none.
    pub fn check(&self, asked: &Eligibility) -> Result<(), Ineligible> {
        match &self.system {
            Some(system) if *asked != Eligibility::default() => asked.judge(&self.condition(system)),
            _ => Ok(()),
        }
    }

    fn condition(&self, system: &System) -> Condition {
        Condition {
            celsius: hottest(system),
            battery: on_battery(system),
            memory: memory(system).map(|memory| megabytes(memory.free)),
            disk: room(&self.state).map(|room| megabytes(room.bytes)),
        }
    }
}

/// The highest temperature in whole degrees: a limit is exceeded at the next degree.
fn hottest(system: &System) -> Option<u16> {
    zones(system).iter().map(|zone| zone.celsius as u16).max()
}

/// Per cent left in the emptiest battery if the device runs on battery: one is discharging, and no other supply is online.
fn on_battery(system: &System) -> Option<u8> {
    let discharging = batteries(system).into_iter().filter(|battery| battery.discharging);
    // A battery that does not report its charge counts as full.
    let least = discharging.map(|battery| battery.percent.unwrap_or(100)).min()?;
    (!plugged_in(system)).then_some(least)
}

fn megabytes(bytes: u64) -> u32 {
    u32::try_from(bytes / MEGABYTE).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::tests::system;

    fn sensors(files: &[(&str, &str)]) -> (tempfile::TempDir, Sensors) {
        let (root, system) = system(files);
        let state = root.path().to_owned();
        (root, Sensors { system: Some(system), state })
    }

    fn condition(files: &[(&str, &str)]) -> Condition {
        let (_root, sensors) = sensors(files);
        let system = sensors.system.as_ref().unwrap();
        Condition { disk: None, ..sensors.condition(system) }
    }

    #[test]
    fn the_hottest_zone_counts_and_broken_ones_do_not() {
        let zones = [
            ("sys/class/thermal/thermal_zone0/temp", "48312\n"),
            ("sys/class/thermal/thermal_zone1/temp", "61999\n"),
            ("sys/class/thermal/thermal_zone2/temp", "-256000\n"),
            ("sys/class/thermal/thermal_zone3/temp", "none\n"),
            ("sys/class/thermal/thermal_zone4/temp", "9999000\n"),
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
    fn memory_is_what_is_available_and_a_limit_leaves() {
        let text = "MemTotal:        3884560 kB\nMemFree:          100000 kB\nMemAvailable:    1000000 kB\n";
        let meminfo = ("proc/meminfo", text);
        assert_eq!(condition(&[meminfo]).memory, Some(1024));
        let group = ("proc/self/cgroup", "0::/client\n");
        let limit = ("sys/fs/cgroup/client/memory.max", "100000000\n");
        assert_eq!(condition(&[meminfo, group, limit]).memory, Some(100));
    }

    #[test]
    fn only_what_is_asked_for_is_looked_at() {
        let (_root, sensors) = sensors(&[("sys/class/thermal/thermal_zone0/temp", "90000\n")]);
        assert_eq!(sensors.check(&Eligibility::default()), Ok(()));
        let cool = Eligibility { max_temperature: 80, ..Eligibility::default() };
        assert_eq!(sensors.check(&cool), Err(Ineligible::Hot { celsius: 90, limit: 80 }));
        assert_eq!(Sensors::none().check(&cool), Ok(()));
        let roomy = Eligibility { min_disk: u32::MAX, ..Eligibility::default() };
        assert!(matches!(sensors.check(&roomy), Err(Ineligible::Disk { .. })), "no disk is that large");
    }
}
