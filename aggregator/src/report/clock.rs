//! Spans of time in the database, for people.

use super::units::seconds;

/// `42 s`, `3.3 min`, `2.1 h` of milliseconds. A clock that was set back gives `0 s`.
pub(crate) fn elapsed(millis: i64) -> String {
    let whole = millis.max(0) / 1000;
    if whole < 120 { format!("{whole} s") } else { seconds(whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_whole_seconds_first() {
        let cases =
            [(-5, "0 s"), (999, "0 s"), (119_999, "119 s"), (120_000, "2.0 min"), (7_200_000, "2.0 h")];
        for (span, shown) in cases {
            assert_eq!(elapsed(span), shown);
        }
    }
}
