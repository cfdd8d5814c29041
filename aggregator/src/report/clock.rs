//! Moments and spans of the database for people.

use super::units::seconds;

/// `2025-11-21T15:35:07Z`: milliseconds since 1970 in UTC.
pub(crate) fn utc(moment: i64) -> String {
    let (days, second) = (moment.div_euclid(86_400_000), moment.rem_euclid(86_400_000) / 1000);
    // Days from civil, the other way round (Hinnant, "chrono-compatible low-level date algorithms"): years that begin in
    // March have the leap day last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// `42 s`, `3.3 min`, `2.1 h` of milliseconds. A clock that was set back gives `0 s`.
pub(crate) fn elapsed(millis: i64) -> String {
    let whole = millis.max(0) / 1000;
    if whole < 120 { format!("{whole} s") } else { seconds(whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_399_000, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (951_868_800_000, "2000-03-01T00:00:00Z"),
            (1_763_739_307_000, "2025-11-21T15:35:07Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ];
        for (moment, shown) in cases {
            assert_eq!(utc(moment), shown);
        }
    }

    #[test]
    fn spans_are_whole_seconds_first() {
        let cases =
            [(-5, "0 s"), (999, "0 s"), (119_999, "119 s"), (120_000, "2.0 min"), (7_200_000, "2.0 h")];
        for (span, shown) in cases {
            assert_eq!(elapsed(span), shown);
        }
    }
}
