//! A curve without axes, beside a name.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::round::RoundRecord;

/// Points of a curve.
const POINTS: usize = 48;
const WIDTH: f64 = 96.0;
const HEIGHT: f64 = 22.0;

/// The accuracies of a run; nothing where fewer than two are known.
pub(super) fn accuracy(rounds: &[RoundRecord]) -> Markup {
    let known: Vec<f64> = rounds.iter().filter_map(|round| round.accuracy).collect();
    if known.len() < 2 {
        return html! {};
    }
    let step = known.len().div_ceil(POINTS);
    // The last one counts most: steps are taken from the end.
    let mut points: Vec<f64> = known.iter().rev().step_by(step).copied().collect();
    points.reverse();
    let [least, most] = [f64::min, f64::max].map(|of| points.iter().copied().fold(points[0], of));
    let span = (most - least).max(1e-3);
    let mut path = String::new();
    for (at, value) in points.iter().enumerate() {
        let x = 1.0 + (WIDTH - 2.0) * at as f64 / (points.len() - 1).max(1) as f64;
        let y = 2.0 + (HEIGHT - 4.0) * (1.0 - (value - least) / span);
        let _ = write!(path, "{x:.1},{y:.1} ");
    }
    let said = format!("accuracy from {:.1} % to {:.1} %", 100.0 * known[0], 100.0 * known[known.len() - 1]);
    html! {
        svg.sparkline.series-1 role="img" aria-label=(said) viewBox=(format!("0 0 {WIDTH} {HEIGHT}")) width=(WIDTH) height=(HEIGHT) {
            polyline points=(path.trim_end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_few_points_and_the_last_one() {
        let rounds: Vec<_> = (0..1000)
            .map(|round| RoundRecord {
                round,
                accuracy: Some(f64::from(round) / 1000.0),
                ..RoundRecord::default()
            })
            .collect();
        let drawn = accuracy(&rounds).into_string();
        assert!(drawn.matches(',').count() <= POINTS && drawn.contains(" 95.0,2.0\""), "{drawn}");
        assert!(drawn.contains("accuracy from 0.0 % to 99.9 %"), "{drawn}");
        assert_eq!(accuracy(&rounds[..1]).into_string(), "");
    }
}
