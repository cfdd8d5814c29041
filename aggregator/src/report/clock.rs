//! Moments and spans of the database for people.

use shared::calendar::Date;

use super::units::seconds;

/// `2025-11-21T15:35:07Z`: milliseconds since 1970 in UTC.
pub(crate) fn utc(moment: i64) -> String {
    let Date { year, month, day, hour, minute, second } = Date::of(moment.div_euclid(1000));
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
    fn moments_are_shown_in_utc() {
        let cases = [(-1, "1969-12-31T23:59:59Z"), (1_763_739_307_999, "2025-11-21T15:35:07Z")];
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
