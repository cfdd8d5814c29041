//! A curve without axes, beside a name.

use std::fmt::Write as _;

use maud::{Markup, html};

use crate::round::RoundRecord;

/// Points of a curve.
const POINTS: usize = 48;
const WIDTH: f64 = 96.0;
const HEIGHT: f64 = 22.0;

/// The accuracies of a run, or where numbers are learned its losses; nothing where fewer than two are known.
pub(super) fn progress(rounds: &[RoundRecord]) -> Markup {
    let accuracies: Vec<f64> = rounds.iter().filter_map(|round| round.accuracy).collect();
    let ends = |of: &[f64]| Some((*of.first()?, *of.last()?));
    if let Some((first, last)) = ends(&accuracies) {
        let said = format!("accuracy from {:.1} % to {:.1} %", 100.0 * first, 100.0 * last);
        return curve(&accuracies, &said);
    }
    let losses: Vec<f64> = rounds.iter().filter_map(|round| round.loss).collect();
    ends(&losses).map_or_else(
        || html! {},
        |(first, last)| curve(&losses, &format!("loss from {first:.4} to {last:.4}")),
    )
}

fn curve(known: &[f64], said: &str) -> Markup {
    if known.len() < 2 {
        return html! {};
    }
    let step = known.len().div_ceil(POINTS);
    // The last one counts most: steps are taken from the end.
    let mut points: Vec<f64> = known.iter().rev().step_by(step).copied().collect();
    points.reverse();
    let [least, most] = [f64::min, f64::max].map(|of| points.iter().copied().fold(points[0], of));
    let span = (most - least).max(1e-3 * most.abs().min(1.0));
    let span = if span > 0.0 { span } else { 1.0 };
    let mut path = String::new();
    for (at, value) in points.iter().enumerate() {
        let x = 1.0 + (WIDTH - 2.0) * at as f64 / (points.len() - 1).max(1) as f64;
        let y = 2.0 + (HEIGHT - 4.0) * (1.0 - (value - least) / span);
        let _ = write!(path, "{x:.1},{y:.1} ");
    }
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
        let drawn = progress(&rounds).into_string();
        assert!(drawn.matches(',').count() <= POINTS && drawn.contains(" 95.0,2.0\""), "{drawn}");
        assert!(drawn.contains("accuracy from 0.0 % to 99.9 %"), "{drawn}");
        assert_eq!(progress(&rounds[..1]).into_string(), "");
        let numbers: Vec<_> = [4.0, 0.25]
            .map(|loss| RoundRecord { loss: Some(loss), ..RoundRecord::default() })
            .into_iter()
            .collect();
        assert!(progress(&numbers).into_string().contains("loss from 4.0000 to 0.2500"));
    }
}
