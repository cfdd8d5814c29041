//! The part of a curve that deserves a second look: where it has almost come to rest, an axis that also holds its beginning
//! makes it a flat line.

/// Fewer points are seen well enough.
const LEAST_POINTS: usize = 20;
/// The second half of the points takes less than this share of the axis.
const FLAT: f64 = 0.2;
/// How many times the height of the second half the part that is shown again may have.
const ROOM: f64 = 2.0;

/// The round from which on `points` are to be drawn once more, on an axis of their own; `None` if they need not be.
///
/// `points` are rounds and values of one or several lines, in any order.
pub(super) fn begins(points: &[(u32, f64)]) -> Option<u32> {
    let mut rounds: Vec<u32> = points.iter().map(|&(round, _)| round).collect();
    rounds.sort_unstable();
    rounds.dedup();
    let middle = *rounds.get(rounds.len() / 2).filter(|_| rounds.len() >= LEAST_POINTS)?;
    let extent = |from: u32| {
        let values = points.iter().filter(|(round, _)| *round >= from).map(|&(_, value)| value);
        values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
    };
    let height = |from: u32| {
        let (low, high) = extent(from);
        high - low
    };
    let (whole, late) = (height(rounds[0]), height(middle));
    if late <= 0.0 || late > FLAT * whole {
        return None;
    }
    let (low, high) = extent(middle);
    let margin = (ROOM - 1.0) * late;
    let fits = |&(_, value): &&(u32, f64)| (low - margin..=high + margin).contains(value);
    // The round after the last one that has a value elsewhere.
    let far = points.iter().filter(|point| !fits(point)).map(|&(round, _)| round).max()?;
    rounds.into_iter().find(|&round| round > far)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(value: impl Fn(u32) -> f64) -> Vec<(u32, f64)> {
        (1..=100).map(|round| (round, value(round))).collect()
    }

    #[test]
    fn a_curve_that_came_to_rest_is_shown_again_from_there() {
        let from = begins(&curve(|round| 98.0 - 88.0 * (-f64::from(round) / 5.0).exp())).expect("it is flat");
        assert!((20..60).contains(&from), "{from}");
        let wobbling = curve(|round| if round < 4 { 10.0 } else { 97.0 + f64::from(round % 5) / 5.0 });
        assert_eq!(begins(&wobbling), Some(4));
    }

    #[test]
    fn others_are_not() {
        assert_eq!(begins(&[]), None);
        assert_eq!(begins(&curve(f64::from)), None, "it still rises");
        assert_eq!(begins(&curve(|_| 50.0)), None, "there is nothing to see");
        assert_eq!(begins(&curve(|round| if round < 4 { 10.0 } else { 97.0 })[..19]), None, "few points");
        assert_eq!(
            begins(&curve(|round| 97.0 + f64::from(round % 5) / 5.0)),
            None,
            "the axis is close already"
        );
    }
}
