//! The time of day. Joining a run does not need it, but the times in logs do.

use std::time::{Duration, SystemTime};

use shared::calendar::{moment, utc};

use super::Finding;
use crate::system::System;

const SUBJECT: &str = "clock";
const DAY: Duration = Duration::from_hours(24);
/// A program older than this is not in use.
const MAX_AGE: Duration = Duration::from_hours(20 * 365 * 24);
const SET_IT: &str = "joining works all the same, but lines of logs have wrong times: have it set over the network \
                      (timedatectl set-ntp true), or by a battery-backed clock";

/// Whether the clock is right, as far as that can be told without another clock.
#[must_use]
pub fn look_at(system: &System) -> Vec<Finding> {
    let time = format!("{} UTC", date(system.now));
    let finding = if system.built.is_some_and(|built| system.now + DAY < built) {
        Finding::warning(SUBJECT, format!("{time}, which is before this program was made"), SET_IT)
    } else if system.built.is_some_and(|built| built + MAX_AGE < system.now) {
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

/// `2026-11-22 05:30`.
fn date(time: SystemTime) -> String {
    utc(moment(time))[.."2026-11-22T05:30".len()].replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;
    use crate::system::tests::system;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn dates_are_shown_to_the_minute() {
        assert_eq!(date(at(1_800_000_000)), "2027-01-15 08:00");
    }

    #[test]
    fn a_clock_from_before_the_program_or_long_after_it_is_wrong() {
        let (_root, mut system) = system(&[]);
        for (built, level) in [
            (system.now, Level::Ok),
            // It was built in another time zone, or on a machine with another clock.
            (system.now + DAY / 2, Level::Ok),
            (system.now + 2 * DAY, Level::Warning),
            (system.now - MAX_AGE / 2, Level::Ok),
            (system.now - 2 * MAX_AGE, Level::Warning),
        ] {
            system.built = Some(built);
            assert_eq!(look_at(&system)[0].level, level, "{built:?}");
        }
    }

    #[test]
    fn a_clock_that_was_never_set_is_reported() {
        let (_root, quiet) = system(&[("run/systemd/timesync/other", "")]);
        let finding = &look_at(&quiet)[0];
        assert_eq!(finding.level, Level::Warning);
        assert!(finding.found.starts_with("2027-01-15 08:00 UTC; it was not set"), "{}", finding.found);
        let (_root, set) = system(&[("run/systemd/timesync/synchronized", "")]);
        assert_eq!(look_at(&set)[0].level, Level::Ok);
    }
}
