//! The time of day. Joining a run does not depend on it; the times in logs do, and whoever reads them.

use std::time::{Duration, SystemTime};

use super::{Finding, System};

const SUBJECT: &str = "clock";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Nobody runs a program that is so old.
const AGES: Duration = Duration::from_secs(20 * 365 * 24 * 60 * 60);
const SET_IT: &str = "joining works all the same, but lines of logs have wrong times: have it set over the network \
                      (timedatectl set-ntp true), or by a battery-backed clock";

/// Is it right, as far as that can be told without another one?
#[must_use]
pub fn look_at(system: &System) -> Vec<Finding> {
    let time = format!("{} UTC", date(system.now));
    let finding = if system.built.is_some_and(|built| system.now + DAY < built) {
        Finding::warning(SUBJECT, format!("{time}, which is before this program was made"), SET_IT)
    } else if system.built.is_some_and(|built| built + AGES < system.now) {
        Finding::warning(SUBJECT, format!("{time}, which is decades after this program was made"), SET_IT)
    } else if system.exists("run/systemd/timesync") && !system.exists("run/systemd/timesync/synchronized") {
        Finding::warning(
            SUBJECT,
            format!("{time}; it was not set over the network since the device was started"),
            "let the device reach a time server: timedatectl timesync-status says which it asks",
        )
    } else {
        Finding::ok(SUBJECT, time)
    };
    vec![finding]
}

/// `2026-11-22 05:30`. A proleptic Gregorian date from days since 1970 (Howard Hinnant, "chrono-Compatible Low-Level Date
/// Algorithms", `civil_from_days`).
fn date(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, minutes) = (seconds / 86_400, seconds % 86_400 / 60);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::super::tests::system;
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00"),
            (951_782_399, "2000-02-28 23:59"),
            (951_782_400, "2000-02-29 00:00"),
            (1_709_251_199, "2024-02-29 23:59"),
            (1_800_000_000, "2027-01-15 08:00"),
            (4_107_542_400, "2100-03-01 00:00"),
        ] {
            assert_eq!(date(at(seconds)), text);
        }
    }

    #[test]
    fn a_clock_from_before_the_program_or_long_after_it_is_wrong() {
        let (_root, mut system) = system(&[]);
        for (built, level) in [
            (system.now, Level::Ok),
            // Somebody built it in another time zone, or with a clock of its own.
            (system.now + DAY / 2, Level::Ok),
            (system.now + 2 * DAY, Level::Warning),
            (system.now - AGES / 2, Level::Ok),
            (system.now - 2 * AGES, Level::Warning),
        ] {
            system.built = Some(built);
            assert_eq!(look_at(&system)[0].level, level, "{built:?}");
        }
    }

    #[test]
    fn a_clock_that_nobody_has_set_is_told_of() {
        let (_root, quiet) = system(&[("run/systemd/timesync/other", "")]);
        let finding = &look_at(&quiet)[0];
        assert_eq!(finding.level, Level::Warning);
        assert!(finding.found.starts_with("2027-01-15 08:00 UTC; it was not set"), "{}", finding.found);
        let (_root, set) = system(&[("run/systemd/timesync/synchronized", "")]);
        assert_eq!(look_at(&set)[0].level, Level::Ok);
    }
}
