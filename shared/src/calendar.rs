//! Calendar dates of timestamps.

/// A date and time in the proleptic Gregorian calendar, in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// Astronomical year: 0 is 1 BC.
    pub year: i64,
    /// 1 to 12.
    pub month: u8,
    /// 1 to 31.
    pub day: u8,
    /// 0 to 23.
    pub hour: u8,
    /// 0 to 59.
    pub minute: u8,
    /// 0 to 59, without leap seconds.
    pub second: u8,
}

impl Date {
    /// The date of a Unix timestamp in seconds (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms",
    /// `civil_from_days`: years that begin in March have the leap day last).
    #[must_use]
    pub fn of(seconds: i64) -> Self {
        let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        Self {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month: month as u8,
            day: (day_of_year - (153 * shifted_month + 2) / 5 + 1) as u8,
            hour: (second / 3600) as u8,
            minute: (second / 60 % 60) as u8,
            second: (second % 60) as u8,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        let cases = [
            (0, (1970, 1, 1), (0, 0, 0)),
            (-1, (1969, 12, 31), (23, 59, 59)),
            (951_782_399, (2000, 2, 28), (23, 59, 59)),
            (951_782_400, (2000, 2, 29), (0, 0, 0)),
            (951_868_800, (2000, 3, 1), (0, 0, 0)),
            (1_709_251_199, (2024, 2, 29), (23, 59, 59)),
            (1_763_739_307, (2025, 11, 21), (15, 35, 7)),
            (4_107_542_400, (2100, 3, 1), (0, 0, 0)),
        ];
        for (moment, (year, month, day), (hour, minute, second)) in cases {
            assert_eq!(Date::of(moment), Date { year, month, day, hour, minute, second }, "{moment}");
        }
    }
}
