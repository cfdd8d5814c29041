//! Temperatures, and whether the device runs on a battery.

use super::System;

/// A thermal zone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Zone {
    pub(crate) celsius: f64,
    /// Its name, such as `CPU-therm`.
    pub(crate) name: String,
}

/// One of the device's own batteries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Battery {
    /// The charge, if it reports that.
    pub(crate) percent: Option<u8>,
    pub(crate) discharging: bool,
}

pub(crate) fn zones(system: &System) -> Vec<Zone> {
    let zones = system.entries("sys/class/thermal", "thermal_zone").into_iter();
    let measured = zones.filter_map(|zone| {
        let millidegrees: f64 = system.read(&format!("{zone}/temp"))?.parse().ok()?;
        let name = system.read(&format!("{zone}/type")).unwrap_or_default();
        // For a Jetson's power management chip the kernel knows only alarms, and reports a made-up value without one.
        if name.to_ascii_lowercase().starts_with("pmic") {
            return None;
        }
        // Disabled sensors report -256 or 0, and broken ones any value.
        let celsius = Some(millidegrees / 1000.0).filter(|celsius| (1.0..200.0).contains(celsius))?;
        Some(Zone { celsius, name })
    });
    measured.collect()
}

/// The device's own batteries, without those of accessories such as a mouse.
pub(crate) fn batteries(system: &System) -> Vec<Battery> {
    let own =
        supplies(system).into_iter().filter(|supply| supply.is_battery).map(|Supply { path, .. }| {
            let percent = system.read(&format!("{path}/capacity")).and_then(|percent| percent.parse().ok());
            let discharging = system.read(&format!("{path}/status")).as_deref() == Some("Discharging");
            Battery { percent, discharging }
        });
    own.collect()
}

/// Whether a supply other than a battery is online.
pub(crate) fn plugged_in(system: &System) -> bool {
    let online = |supply: &Supply| system.read(&format!("{}/online", supply.path)).as_deref() == Some("1");
    supplies(system).iter().any(|supply| !supply.is_battery && online(supply))
}

/// A power supply of the device, not of an accessory.
struct Supply {
    path: String,
    is_battery: bool,
}

fn supplies(system: &System) -> Vec<Supply> {
    let supplies = system.entries("sys/class/power_supply", "").into_iter();
    let of_device = |path: &String| system.read(&format!("{path}/scope")).as_deref() != Some("Device");
    let supply = |path: String| {
        let is_battery = system.read(&format!("{path}/type")).as_deref() == Some("Battery");
        Supply { path, is_battery }
    };
    supplies.filter(of_device).map(supply).collect()
}
