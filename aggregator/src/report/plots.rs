//! The charts of a run: which columns of its rounds are drawn together, in which unit.

use maud::Markup;
use models::Measure;
use shared::cli::measure_text;

use super::chart::{Axis, Bars, Floor, Line, Lines, Stack};
use super::summary::Summary;
use super::units::{self, bytes, counted, percent, seconds};
use crate::round::{Criterion, RoundRecord};

fn points(rounds: &[RoundRecord], value: impl Fn(&RoundRecord) -> Option<f64>) -> Vec<(u32, f64)> {
    rounds.iter().filter_map(|round| Some((round.round, value(round)?))).collect()
}

/// The last round of training.
fn last_round(rounds: &[RoundRecord]) -> u32 {
    rounds.iter().rfind(|round| !round.closing).map_or(0, |round| round.round)
}

/// Test accuracy over rounds; `None` if the model was never tested.
pub(super) fn accuracy(rounds: &[RoundRecord], summary: &Summary) -> Option<Markup> {
    let (best, best_round) = summary.best?;
    let (last, last_tested) = summary.last?;
    Lines {
        title: "Test accuracy",
        description: &format!(
            "{} after round {last_tested}; the best is {} in round {best_round}.",
            percent(last),
            percent(best)
        ),
        unit: "%",
        floor: Floor::Data,
        ceiling: Some(100.0),
        target: summary
            .target
            .map(|target| (target.accuracy * 100.0, format!("target {}", percent(target.accuracy)))),
        axis: Axis::Rounds(last_round(rounds)),
        mark: Some((best_round, best * 100.0, format!("best, round {best_round}: {}", percent(best)))),
        closer: true,
        series: [Line {
            name: "accuracy",
            class: "series-1",
            points: points(rounds, |round| Some(round.accuracy? * 100.0)),
            runs: Vec::new(),
        }]
        .into_iter()
        .chain(validation(rounds, Criterion::ValidationAccuracy, 100.0))
        .collect(),
    }
    .draw()
}

/// What was measured on the samples that the server keeps to choose models by, in this unit, if it was.
fn validation(rounds: &[RoundRecord], criterion: Criterion, unit: f64) -> Option<Line<'static>> {
    let points = points(rounds, |round| Some(unit * round.metrics.get(criterion.name())?));
    let line = Line { name: "validation", class: "series-3", points, runs: Vec::new() };
    (!line.points.is_empty()).then_some(line)
}

/// What was measured on the test set beside accuracy and loss, with titles: of flags, or of numbers. None for classification.
pub(super) fn measures(rounds: &[RoundRecord]) -> Vec<(&'static str, Markup)> {
    const CLASSES: [&str; 3] = ["series-1", "series-2", "series-3"];
    let charts: [(&str, &[Measure]); 3] = [
        ("Flags that are right", &[Measure::F1, Measure::Precision, Measure::Recall]),
        ("Errors", &[Measure::Mae, Measure::Rmse]),
        ("Coefficient of determination", &[Measure::R2]),
    ];
    let draw = |(title, of): (&'static str, &[Measure])| {
        let scale = if of[0].is_share() { 100.0 } else { 1.0 };
        let series = of.iter().zip(CLASSES).map(|(measure, class)| Line {
            name: measure.title(),
            class,
            points: points(rounds, |round| Some(scale * round.metrics.get(measure.name())?)),
            runs: Vec::new(),
        });
        let series: Vec<_> = series.filter(|line| !line.points.is_empty()).collect();
        let last = rounds.iter().rev().map(RoundRecord::measures).find(|found| !found.is_empty())?;
        let said = last.into_iter().filter(|(measure, _)| of.contains(measure));
        let said: Vec<_> = said.map(|(measure, value)| measure_text(measure, value)).collect();
        let chart = Lines {
            title,
            description: &format!("Last: {}.", said.join(", ")),
            unit: if of[0].is_share() { "%" } else { "" },
            floor: if of == [Measure::R2] { Floor::Data } else { Floor::Zero },
            ceiling: of[0].is_share().then_some(100.0),
            target: None,
            mark: None,
            closer: false,
            axis: Axis::Rounds(last_round(rounds)),
            series,
        };
        Some((title, chart.draw()?))
    };
    charts.into_iter().filter_map(draw).collect()
}

/// Test and training loss over rounds; `None` if neither is known.
pub(super) fn loss(rounds: &[RoundRecord]) -> Option<Markup> {
    let test = points(rounds, |round| round.loss);
    let train = points(rounds, |round| round.train_loss);
    let said = |name: &str, points: &[(u32, f64)]| match (points.first(), points.last()) {
        (Some((first, from)), Some((last, to))) => {
            format!("{name} loss goes from {from:.3} in round {first} to {to:.3} in round {last}.")
        }
        _ => format!("{name} loss was not measured."),
    };
    Lines {
        title: "Loss",
        description: &format!("{} {}", said("Test", &test), said("Training", &train)),
        unit: "",
        floor: Floor::Zero,
        ceiling: None,
        target: None,
        mark: None,
        closer: false,
        axis: Axis::Rounds(last_round(rounds)),
        series: [
            Line { name: "test", class: "series-1", points: test, runs: Vec::new() },
            Line { name: "training, on the clients", class: "series-2", points: train, runs: Vec::new() },
        ]
        .into_iter()
        .chain(validation(rounds, Criterion::ValidationLoss, 1.0))
        .collect(),
    }
    .draw()
}

/// Bytes over the network, round by round; `None` without rounds.
pub(super) fn traffic(rounds: &[RoundRecord], summary: &Summary) -> Option<Markup> {
    let highest = rounds.iter().map(|round| round.bytes_down.saturating_add(round.bytes_up)).max()?;
    let unit = units::of_bytes(highest as f64);
    let amounts =
        |count: fn(&RoundRecord) -> u64| rounds.iter().map(|round| count(round) as f64 / unit.size).collect();
    Bars {
        title: "Traffic",
        description: &format!(
            "{} down and {} up in all, at most {} in one round.",
            bytes(summary.bytes_down),
            bytes(summary.bytes_up),
            bytes(highest)
        ),
        unit: unit.name,
        decimals: 2,
        rounds: &numbers(rounds),
        stacks: vec![
            Stack { name: "down, to clients", class: "series-1", amounts: amounts(|round| round.bytes_down) },
            Stack { name: "up, from clients", class: "series-2", amounts: amounts(|round| round.bytes_up) },
        ],
    }
    .draw()
}

/// What the time from one round to the next went to; `None` without rounds. Parts that never occur are left out.
pub(super) fn times(rounds: &[RoundRecord], summary: &Summary) -> Option<Markup> {
    type Part = fn(&RoundRecord) -> f64;
    let parts: [(&str, &str, Part); 4] = [
        ("training", "series-1", |round| round.seconds),
        ("waiting", "lost", |round| round.waited_seconds.unwrap_or_default()),
        ("test", "series-2", |round| round.test_seconds.unwrap_or_default()),
        ("aggregation and disk", "series-3", |round| round.disk_seconds.unwrap_or_default()),
    ];
    let finite = |time: f64| if time.is_finite() { time.max(0.0) } else { 0.0 };
    let longest = rounds.iter().map(|round| finite(round.wall_seconds())).fold(0.0, f64::max);
    let unit = units::of_seconds(longest);
    let stacks = parts.into_iter().map(|(name, class, part)| Stack {
        name,
        class,
        amounts: rounds.iter().map(|round| finite(part(round)) / unit.size).collect(),
    });
    let occurs = |stack: &Stack<'_>| stack.name == "training" || stack.amounts.iter().any(|&time| time > 0.0);
    let went = summary.times.parts().into_iter().map(|(name, time)| format!("{name} {}", seconds(time)));
    Bars {
        title: "Time",
        description: &format!(
            "Half of the rounds took at most {}, the longest took {}. In all: {}.",
            seconds(summary.median_seconds?),
            seconds(longest),
            went.collect::<Vec<_>>().join(", ")
        ),
        unit: unit.name,
        decimals: 2,
        rounds: &numbers(rounds),
        stacks: stacks.filter(occurs).collect(),
    }
    .draw()
}

/// The outcomes of the cohort and of arrived updates, round by round; `None` without rounds. Parts that never occur are
/// left out.
pub(super) fn arrivals(rounds: &[RoundRecord], summary: &Summary) -> Option<Markup> {
    type Count = fn(&RoundRecord) -> usize;
    let parts: [(&str, &str, Count); 7] = [
        ("accepted", "series-1", |round| round.accepted - round.late.min(round.accepted)),
        ("accepted late", "series-2", |round| round.late),
        ("rejected", "rejected", |round| round.rejected),
        ("discarded", "discarded", |round| round.discarded),
        ("failed", "failed", |round| round.failed),
        ("not now", "series-5", |round| round.not_now),
        ("lost", "lost", |round| round.lost),
    ];
    let stacks: Vec<_> = parts
        .into_iter()
        .map(|(name, class, count)| Stack {
            name,
            class,
            amounts: rounds.iter().map(|round| count(round) as f64).collect(),
        })
        .filter(|stack| stack.name == "accepted" || stack.amounts.iter().any(|&amount| amount > 0.0))
        .collect();
    let arrivals = summary.arrivals;
    let troubles: Vec<_> =
        arrivals.troubles().into_iter().map(|(count, what)| format!(", {count} {what}")).collect();
    Bars {
        title: "Clients and their updates",
        description: &format!(
            "{} asked, {} accepted{}.",
            arrivals.sampled,
            counted(arrivals.accepted, "update"),
            troubles.concat()
        ),
        unit: "",
        decimals: 0,
        rounds: &numbers(rounds),
        stacks,
    }
    .draw()
}

fn numbers(rounds: &[RoundRecord]) -> Vec<u32> {
    rounds.iter().map(|round| round.round).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn validation_is_drawn_where_it_was_measured() {
        let round = |round: u32, validation: Option<f64>| RoundRecord {
            round,
            loss: Some(1.0 / f64::from(round)),
            metrics: validation.map(|loss| ("validation-loss".to_owned(), loss)).into_iter().collect(),
            ..RoundRecord::default()
        };
        let drawn = |validation| {
            let rounds: Vec<RoundRecord> = (1..=3).map(|number| round(number, validation)).collect();
            loss(&rounds).expect("a chart").into_string().contains("validation")
        };
        assert!(drawn(Some(0.5)) && !drawn(None));
    }
}
