//! Moments, as milliseconds since 1970, and their dates.

use std::time::SystemTime;

use jiff::Timestamp;

/// Milliseconds since 1970; negative before.
#[must_use]
pub fn moment(time: SystemTime) -> i64 {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis),
    }
}

/// `2025-11-21T15:35:07Z`: the date and time of a moment, in UTC. What is after the year 9999 is shown as its end.
#[must_use]
pub fn utc(moment: i64) -> String {
    // With no digits after the point: whole seconds.
    format!("{:.0}", Timestamp::from_millisecond(moment).unwrap_or(Timestamp::MAX))
}

/// The moment that [`utc`] has written so; `None` of any other text.
#[must_use]
pub fn moment_in(utc: &str) -> Option<i64> {
    Some(utc.parse::<Timestamp>().ok()?.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_763_739_307, "2025-11-21T15:35:07Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ];
        for (seconds, shown) in cases {
            assert_eq!(utc(seconds * 1000), shown);
            assert_eq!(moment_in(shown), Some(seconds * 1000));
        }
        assert_eq!(moment_in("yesterday"), None);
        let cases = [(-1, "1969-12-31T23:59:59Z"), (1_763_739_307_999, "2025-11-21T15:35:07Z")];
        for (moment, shown) in cases {
            assert_eq!(utc(moment), shown);
        }
        assert!(utc(i64::MAX).starts_with("9999-12-30"));
    }
}
