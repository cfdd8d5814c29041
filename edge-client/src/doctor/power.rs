//! Temperature, voltage and battery.

use super::Finding;
use crate::system::System;
use crate::system::power::{Zone, batteries, plugged_in, zones};

/// Devices start to slow down at about this temperature.
const HOT: f64 = 80.0;
/// Devices switch off not far above this temperature.
const TOO_HOT: f64 = 95.0;
/// A battery with less charge does not last for a round.
const EMPTY: u8 = 20;

/// The findings about those that the system reports.
#[must_use]
pub fn look_at(system: &System) -> Vec<Finding> {
    temperature(system).into_iter().chain(voltage(system)).chain(battery(system)).collect()
}

/// The hottest thermal zone.
fn temperature(system: &System) -> Option<Finding> {
    const SUBJECT: &str = "temperature";
    let zones = zones(system).into_iter();
    let Zone { celsius: degrees, name } = zones.max_by(|a, b| a.celsius.total_cmp(&b.celsius))?;
    let found = format!("{degrees:.0} \u{b0}C ({name})");
    let advice = "cool the device: it slows down to protect itself";
    Some(match degrees {
        TOO_HOT.. => Finding::problem(SUBJECT, found, format!("{advice}, and switches itself off next")),
        HOT.. => Finding::warning(SUBJECT, found, advice),
        _ => Finding::ok(SUBJECT, found),
    })
}

/// A Raspberry Pi's firmware reports whether the voltage is too low now (bit 0) or was since the start (bit 16).
fn voltage(system: &System) -> Option<Finding> {
    const SUBJECT: &str = "voltage";
    let text = system.read("sys/devices/platform/soc/soc:firmware/get_throttled")?;
    let bits = u32::from_str_radix(text.trim_start_matches("0x"), 16).ok()?;
    let advice =
        "use the power supply that the device was made for: without one it runs slowly, and may stop";
    Some(if bits & 1 != 0 {
        Finding::warning(SUBJECT, "too low", advice)
    } else if bits & 1 << 16 != 0 {
        Finding::warning(SUBJECT, "it was too low for a while since the device was started", advice)
    } else {
        Finding::ok(SUBJECT, "as it should be")
    })
}

/// The emptiest battery that the device runs from.
fn battery(system: &System) -> Option<Finding> {
    const SUBJECT: &str = "battery";
    let known =
        batteries(system).into_iter().filter_map(|battery| Some((battery.percent?, battery.discharging)));
    let (charge, discharging) = known.min()?;
    if plugged_in(system) || !discharging {
        return Some(Finding::ok(SUBJECT, format!("{charge} %, plugged in")));
    }
    // A low battery alone keeps no device out; a run with a condition on the charge says so when it applies.
    let advice = match charge {
        0..EMPTY => "plug the device in: the battery does not last for a round of training",
        _ => "plug the device in: training empties a battery",
    };
    Some(Finding::warning(SUBJECT, format!("{charge} %, and not charging"), advice))
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;
    use crate::system::tests::system;

    fn only(files: &[(&str, &str)]) -> Finding {
        let mut findings = look_at(&system(files).1);
        assert_eq!(findings.len(), 1, "{findings:?}");
        findings.remove(0)
    }

    #[test]
    fn the_hottest_zone_counts() {
        let zones = |first, second| {
            only(&[
                ("sys/class/thermal/thermal_zone0/temp", first),
                ("sys/class/thermal/thermal_zone0/type", "CPU-therm\n"),
                ("sys/class/thermal/thermal_zone1/temp", second),
                ("sys/class/thermal/thermal_zone1/type", "GPU-therm\n"),
                ("sys/class/thermal/cooling_device0/cur_state", "1\n"),
            ])
        };
        assert_eq!(zones("45000\n", "44000\n").found, "45 \u{b0}C (CPU-therm)");
        let hot = zones("45000\n", "84500\n");
        assert_eq!((hot.level, &hot.found[..]), (Level::Warning, "84 \u{b0}C (GPU-therm)"));
        assert_eq!(zones("96000\n", "84500\n").level, Level::Problem);
        let pmic = |degrees| {
            look_at(
                &system(&[
                    ("sys/class/thermal/thermal_zone0/temp", degrees),
                    ("sys/class/thermal/thermal_zone0/type", "PMIC-Die\n"),
                ])
                .1,
            )
        };
        assert_eq!(pmic("100000\n"), []);
        // A sensor that is off, and one that talks nonsense.
        assert_eq!(zones("-256000\n", "44000\n").level, Level::Ok);
        assert_eq!(zones("45000\n", "9999000\n").level, Level::Ok);
    }

    #[test]
    fn low_voltage_is_reported_now_and_later() {
        let says = |bits| only(&[("sys/devices/platform/soc/soc:firmware/get_throttled", bits)]);
        assert_eq!(says("0\n").level, Level::Ok);
        assert_eq!((says("50005\n").level, &says("50005\n").found[..]), (Level::Warning, "too low"));
        assert!(says("0x50000\n").found.contains("for a while"));
    }

    #[test]
    fn a_battery_matters_while_it_is_not_charged() {
        let with = |capacity, status, scope| {
            let place = "sys/class/power_supply/BAT0";
            let files = ["type", "capacity", "status", "scope"].map(|file| format!("{place}/{file}"));
            let content = ["Battery\n", capacity, status, scope];
            let files: Vec<(&str, &str)> = files.iter().map(String::as_str).zip(content).collect();
            look_at(&system(&files).1)
        };
        assert_eq!(with("80\n", "Charging\n", "System\n")[0].level, Level::Ok);
        assert_eq!(with("15\n", "Charging\n", "System\n")[0].level, Level::Ok);
        assert_eq!(with("80\n", "Discharging\n", "System\n")[0].level, Level::Warning);
        let low = &with("15\n", "Discharging\n", "System\n")[0];
        assert_eq!(low.level, Level::Warning);
        assert!(low.advice.as_ref().is_some_and(|advice| advice.contains("does not last")), "{low:?}");
        let on_mains = [
            ("sys/class/power_supply/AC/type", "Mains\n"),
            ("sys/class/power_supply/AC/online", "1\n"),
            ("sys/class/power_supply/BAT0/type", "Battery\n"),
            ("sys/class/power_supply/BAT0/capacity", "15\n"),
            ("sys/class/power_supply/BAT0/status", "Discharging\n"),
        ];
        assert_eq!(look_at(&system(&on_mains).1)[0].level, Level::Ok, "a weak supply, but one");
        assert!(with("15\n", "Discharging\n", "Device\n").is_empty(), "a mouse");
    }
}
