//! Numbers with their units, as people read them.

pub(crate) use shared::cli::{counted, grouped};

/// A unit and how many base units it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unit {
    pub(super) name: &'static str,
    pub(super) size: f64,
}

const fn unit(name: &'static str, size: f64) -> Unit {
    Unit { name, size }
}

/// Decimal multiples, as networks and disks are sold.
const BYTES: [Unit; 5] =
    [unit("B", 1.0), unit("kB", 1e3), unit("MB", 1e6), unit("GB", 1e9), unit("TB", 1e12)];
/// Minutes and hours begin at three of them: `1.5 min` is `90 s` to people.
const TIMES: [(Unit, f64); 4] = [
    (unit("ms", 1e-3), 0.0),
    (unit("s", 1.0), 1.0),
    (unit("min", 60.0), 180.0),
    (unit("h", 3600.0), 10_800.0),
];

/// The unit in which a chart with this greatest number of bytes is labelled.
pub(super) fn of_bytes(greatest: f64) -> Unit {
    *BYTES.iter().rev().find(|unit| greatest >= unit.size).unwrap_or(&BYTES[0])
}

/// The unit in which a chart with this longest time in seconds is labelled.
pub(super) fn of_seconds(longest: f64) -> Unit {
    TIMES.iter().rev().find(|(_, from)| longest >= *from).unwrap_or(&TIMES[0]).0
}

/// `0.6 MB`: decimal multiples with one decimal; bytes alone are whole.
pub(crate) fn bytes(count: u64) -> String {
    // From 999,950 bytes on, a kilobyte figure would round to 1000.0.
    let unit = of_bytes(count as f64 * 1.000_05);
    let decimals = usize::from(unit.size > 1.0);
    format!("{:.decimals$} {}", count as f64 / unit.size, unit.name)
}

/// `12 ms`, `1.2 s`, `3.3 min`, `2.1 h`, `30 days`.
pub(crate) fn seconds(time: f64) -> String {
    if time < 0.0995 {
        format!("{:.0} ms", time * 1e3)
    } else if time < 99.95 {
        format!("{time:.1} s")
    } else if time < 99.95 * 60.0 {
        format!("{:.1} min", time / 60.0)
    } else if time < 72.0 * 3600.0 {
        format!("{:.1} h", time / 3600.0)
    } else {
        let days = time / 86_400.0;
        if (days - days.round()).abs() < 0.05 { format!("{days:.0} days") } else { format!("{days:.1} days") }
    }
}

/// `93.1 %` of a share in `[0, 1]`. A share below 1 is never shown as 100 %.
pub(crate) fn percent(share: f64) -> String {
    let tenths = (share * 1000.0).round();
    let tenths = if share < 1.0 { tenths.min(999.0) } else { tenths };
    format!("{:.1} %", tenths / 10.0)
}

/// `12 training samples`, as a device may say of itself: any number.
pub(crate) fn training_samples(samples: u64) -> String {
    counted(usize::try_from(samples).unwrap_or(usize::MAX), "training sample")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_decimal_and_never_show_a_thousand() {
        let cases = [
            (0, "0 B"),
            (999, "999 B"),
            (1_000, "1.0 kB"),
            (999_949, "999.9 kB"),
            (999_960, "1.0 MB"),
            (642_000, "642.0 kB"),
            (1_500_000_000, "1.5 GB"),
            (u64::MAX, "18446744.1 TB"),
        ];
        for (count, shown) in cases {
            assert_eq!(bytes(count), shown);
        }
    }

    #[test]
    fn times_change_units_where_people_do() {
        let cases = [
            (0.0, "0 ms"),
            (0.0123, "12 ms"),
            (0.0996, "0.1 s"),
            (1.25, "1.2 s"),
            (99.94, "99.9 s"),
            (100.0, "1.7 min"),
            (5996.0, "99.9 min"),
            (6000.0, "1.7 h"),
            (7500.0, "2.1 h"),
            (86_400.0, "24.0 h"),
            (30.0 * 86_400.0, "30 days"),
            (3.5 * 86_400.0, "3.5 days"),
        ];
        for (time, shown) in cases {
            assert_eq!(seconds(time), shown);
        }
    }

    #[test]
    fn percentages_do_not_flatter() {
        assert_eq!(percent(0.931), "93.1 %");
        assert_eq!(percent(0.9999), "99.9 %");
        assert_eq!(percent(1.0), "100.0 %");
        assert_eq!(percent(0.0), "0.0 %");
    }

    #[test]
    fn digits_are_grouped() {
        for (count, shown) in
            [(0, "0"), (999, "999"), (1_000, "1,000"), (199_210, "199,210"), (1_663_370, "1,663,370")]
        {
            assert_eq!(grouped(count), shown);
        }
        assert_eq!(counted(1, "client"), "1 client");
        assert_eq!(counted(1000, "client"), "1,000 clients");
    }

    #[test]
    fn chart_units_fit_the_greatest_value() {
        let name = |unit: Unit| unit.name;
        assert_eq!([0.0, 999.0, 5e5, 2e6].map(|bytes| name(of_bytes(bytes))), ["B", "B", "kB", "MB"]);
        assert_eq!(
            [0.0, 0.5, 1.0, 100.0, 200.0, 12_000.0].map(|time| name(of_seconds(time))),
            ["ms", "ms", "s", "s", "min", "h"]
        );
    }
}
