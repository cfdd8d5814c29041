//! The card on pseudo-labels: how many samples pass the gate, and whether the model still tells classes apart.

use maud::{Markup, html};

use crate::report::chart::{Axis, Floor, Line, Lines};
use crate::report::units::percent;
use crate::round::RoundRecord;

/// What is drawn, by its name in a round's record.
const SERIES: [(&str, &str, &str); 4] = [
    ("global-class-coverage", "classes that the global model names", "series-1"),
    ("global-entropy", "its entropy", "series-2"),
    ("class-coverage", "classes that a client predicts", "series-3"),
    ("coverage", "samples past the gate", "series-4"),
];

/// The card; `None` if nothing was measured of it.
pub(super) fn card(rounds: &[RoundRecord]) -> Option<Markup> {
    let points = |name: &str| -> Vec<(u32, f64)> {
        let value = |record: &RoundRecord| Some((record.round, 100.0 * record.metrics.get(name)?));
        rounds.iter().filter_map(value).collect()
    };
    let series =
        SERIES.map(|(name, says, class)| Line { name: says, class, points: points(name), runs: Vec::new() });
    let series: Vec<Line<'_>> = series.into_iter().filter(|line| !line.points.is_empty()).collect();
    let last = |line: &Line<'_>| {
        line.points
            .last()
            .map(|&(round, value)| format!("{}: {} in round {round}.", line.name, percent(value / 100.0)))
    };
    let description = series.iter().filter_map(last).collect::<Vec<_>>().join(" ");
    let chart = Lines {
        title: "Predictions",
        description: &description,
        unit: "%",
        floor: Floor::Zero,
        ceiling: Some(100.0),
        target: None,
        mark: None,
        closer: false,
        axis: Axis::Rounds(rounds.iter().rfind(|round| !round.closing).map_or(0, |round| round.round)),
        series,
    };
    let those = |which: fn(&RoundRecord) -> bool| -> Vec<String> {
        rounds.iter().filter(|record| which(record)).map(|record| record.round.to_string()).collect()
    };
    let collapsed = those(|record| record.collapsed);
    let diverged = those(|record| record.diverged);
    let chart = chart.draw()?;
    Some(html! {
        section.card {
            h2 { "Predictions" }
            @if !collapsed.is_empty() {
                p { strong { "Collapse" } ": the model named few classes for all inputs after "
                    @if collapsed.len() == 1 { "round " } @else { "rounds " } (collapsed.join(", ")) "." }
            }
            @if !diverged.is_empty() {
                p { strong { "Divergence" } ": the server's own training gave no numbers and counted for nothing in "
                    @if diverged.len() == 1 { "round " } @else { "rounds " } (diverged.join(", ")) "." }
            }
            (chart)
        }
    })
}
