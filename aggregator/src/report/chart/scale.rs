//! Axes: ranges and ticks at round numbers.

/// A linear axis from `low` to `high` with ticks at multiples of 1, 2 or 5 times a power of ten.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scale {
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) ticks: Vec<f64>,
    /// Decimals that tell the ticks apart.
    pub(super) decimals: usize,
}

impl Scale {
    /// An axis that contains `[low, high]` and ends at ticks, of which there are about `wanted`.
    ///
    /// Both ends must be finite. A range without an extent is widened to one.
    pub(super) fn containing(low: f64, high: f64, wanted: usize) -> Self {
        let (low, high) = (low.clamp(-1e100, 1e100), high.clamp(-1e100, 1e100));
        let (low, high) = widened(low.min(high), high.max(low));
        let step = step((high - low) / wanted.max(1) as f64);
        let (first, last) = ((low / step).floor(), (high / step).ceil());
        let count = (last - first) as usize;
        let ticks: Vec<f64> = (0..=count).map(|index| (first + index as f64) * step).collect();
        let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
        Self { low: first * step, high: last * step, ticks, decimals }
    }

    /// Ticks for the rounds `from..=to`: whole numbers, and the axis leaves half a round on both sides.
    pub(super) fn rounds(from: u32, to: u32) -> Self {
        let (from, to) = (f64::from(from.max(1)), f64::from(to.max(from).max(1)));
        let step = step((to - from + 1.0) / 6.0).max(1.0);
        let (first, last) = ((from / step).ceil() as usize, (to / step).floor() as usize);
        let ticks = (first..=last).map(|index| index as f64 * step).collect();
        Self { low: from - 0.5, high: to + 0.5, ticks, decimals: 0 }
    }

    /// Where `value` lies on an axis drawn from `start` to `end`; values outside lie at its ends.
    pub(super) fn place(&self, value: f64, start: f64, end: f64) -> f64 {
        let share = ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        start + share * (end - start)
    }

    /// A tick's label.
    pub(super) fn label(&self, tick: f64) -> String {
        let text = format!("{tick:.*}", self.decimals);
        // Rounding can leave "-0".
        if text.trim_start_matches(['-', '0', '.']).is_empty() {
            text.trim_start_matches('-').to_owned()
        } else {
            text
        }
    }
}

/// A range wide enough for ticks to differ.
fn widened(low: f64, high: f64) -> (f64, f64) {
    let least = low.abs().max(high.abs()) * 1e-6;
    if high - low > least && high - low > 1e-9 {
        (low, high)
    } else if low == 0.0 {
        (0.0, 1.0)
    } else {
        let margin = (low.abs() * 0.1).max(1e-3);
        (low - margin, high + margin)
    }
}

/// The least of 1, 2, 5 times a power of ten that is at least `size`.
fn step(size: f64) -> f64 {
    let power = 10_f64.powf(size.log10().floor());
    // The last one is for a logarithm that was rounded.
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= size * (1.0 - 1e-9));
    factor.unwrap_or(10.0) * power
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn labels(scale: &Scale) -> Vec<String> {
        scale.ticks.iter().map(|&tick| scale.label(tick)).collect()
    }

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(labels(&Scale::containing(0.0, 2.3, 5)), ["0.0", "0.5", "1.0", "1.5", "2.0", "2.5"]);
        assert_eq!(labels(&Scale::containing(31.0, 97.2, 5)), ["20", "40", "60", "80", "100"]);
        assert_eq!(labels(&Scale::containing(-0.4, 0.4, 4)), ["-0.4", "-0.2", "0.0", "0.2", "0.4"]);
        assert_eq!(labels(&Scale::containing(0.0, 0.0, 5)), ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]);
    }

    #[test]
    fn round_ticks_are_whole() {
        assert_eq!(labels(&Scale::rounds(1, 0)), ["1"]);
        assert_eq!(labels(&Scale::rounds(1, 1)), ["1"]);
        assert_eq!(labels(&Scale::rounds(1, 6)), ["1", "2", "3", "4", "5", "6"]);
        assert_eq!(labels(&Scale::rounds(1, 15)), ["5", "10", "15"]);
        assert_eq!(labels(&Scale::rounds(37, 100)), ["40", "60", "80", "100"]);
        assert_eq!(labels(&Scale::rounds(1, 120)), ["20", "40", "60", "80", "100", "120"]);
        assert!(Scale::rounds(1, u32::MAX).ticks.len() <= 6);
    }

    #[test]
    fn places_are_linear_and_stay_on_the_axis() {
        let scale = Scale::containing(0.0, 10.0, 5);
        for (value, place) in [(0.0, 100.0), (5.0, 50.0), (10.0, 0.0), (11.0, 0.0), (-1.0, 100.0)] {
            assert!((scale.place(value, 100.0, 0.0) - place).abs() < 1e-9, "{value}");
        }
    }

    proptest! {
        #[test]
        fn every_range_gets_a_few_increasing_ticks_around_it(
            a in proptest::num::f64::NORMAL | proptest::num::f64::ZERO | proptest::num::f64::SUBNORMAL,
            b in proptest::num::f64::NORMAL | proptest::num::f64::ZERO,
        ) {
            let scale = Scale::containing(a, b, 5);
            prop_assert!((2..=12).contains(&scale.ticks.len()), "{:?}", scale);
            prop_assert!(scale.ticks.is_sorted_by(|x, y| x < y), "{:?}", scale);
            let tolerance = (scale.high - scale.low) * 1e-6;
            for end in [a, b].map(|end| end.clamp(-1e100, 1e100)) {
                prop_assert!(scale.low - tolerance <= end && end <= scale.high + tolerance, "{:?}", scale);
            }
        }
    }
}
