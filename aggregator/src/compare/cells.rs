//! Cells of the tables: means over seeds as text.

use super::results::{Line, Mean, Traffic};
use crate::report::units::bytes;

/// `97.1 +- 0.1 %`, `97.2 % (1 of 3)`; where numbers are learned `loss 0.2031 +- 0.0012`.
pub(super) fn accuracy(line: &Line) -> String {
    let loss =
        || line.loss.map(|mean| format!("loss {}{}", spread(mean, 1.0, 4, false), of_seeds(mean, line)));
    let accuracy = line.accuracy.map(|mean| share(mean, line, 1));
    accuracy.or_else(loss).unwrap_or_else(|| "-".to_owned())
}

/// The chosen values of what is tuned: `learning-rate=0.1`, or how many were tried so far.
pub(super) fn chosen(line: &Line) -> String {
    let settled = line.tried.iter().filter(|candidate| candidate.settled).count();
    match &line.chosen {
        Some(values) => values.clone(),
        None if line.tried.is_empty() => String::new(),
        None => format!("{settled} of {} tried", line.tried.len()),
    }
}

/// The best accuracy of each run.
pub(super) fn best(line: &Line) -> String {
    line.best.map_or_else(|| "-".to_owned(), |mean| share(mean, line, 1))
}

/// An accuracy in percent.
pub(super) fn share(mean: Mean, line: &Line, decimals: usize) -> String {
    format!("{} %{}", spread(mean, 100.0, decimals, false), of_seeds(mean, line))
}

/// The difference to the baseline in points: `+5.9 +- 0.2`, `+5.9 (1 of 3)`; where numbers are learned of the losses.
pub(super) fn points(line: &Line) -> String {
    let text =
        |mean, unit, decimals| format!("{}{}", spread(mean, unit, decimals, true), of_seeds(mean, line));
    match (line.difference, line.loss_difference) {
        (Some(mean), _) => text(mean, 100.0, 1),
        (None, Some(mean)) => text(mean, 1.0, 4),
        (None, None) => "-".to_owned(),
    }
}

/// `84.1 MB (42.1 MB)`: bytes in both directions, and in brackets what clients have sent.
pub(super) fn traffic(traffic: Option<Traffic<Mean>>) -> String {
    let text = |Traffic { down, up }: Traffic<Mean>| {
        format!("{} ({})", bytes((down.mean + up.mean) as u64), bytes(up.mean as u64))
    };
    traffic.map_or_else(String::new, text)
}

/// Rounds to the target: `53 +- 2`, `53 +- 2 (2 of 3)`, `none of 3`. Only complete seeds with a target count: a target that is
/// another variant's accuracy is unknown until that run is complete.
pub(super) fn to_target(line: &Line) -> String {
    let runs = line.aimed().count();
    match line.rounds {
        None if runs == 0 => "-".to_owned(),
        None => format!("none of {runs}"),
        Some(mean) => format!("{}{}", spread(mean, 1.0, 0, false), of_seeds(mean, line)),
    }
}

/// The optimiser's steps that a client takes in a round: `5`, `7.4 +- 0.1`.
pub(super) fn steps(line: &Line) -> String {
    let text = |mean: Mean| {
        let whole = mean.mean.fract().abs() < 0.05 && mean.spread.is_none_or(|spread| spread < 0.05);
        let decimals = usize::from(!whole);
        let mean = if whole { Mean { spread: None, ..mean } } else { mean };
        format!("{}{}", spread(mean, 1.0, decimals, false), of_seeds(mean, line))
    };
    line.steps.map_or_else(|| "-".to_owned(), text)
}

/// A measurement by its name: `0.871 +- 0.012`, `0.871 (1 of 3)`.
pub(super) fn metric(line: &Line, name: &str) -> String {
    let text = |&mean| format!("{}{}", spread(mean, 1.0, 3, false), of_seeds(mean, line));
    line.metrics.get(name).map_or_else(|| "-".to_owned(), text)
}

/// The number of seeds that a mean is over, unless it is over all of them.
fn of_seeds(mean: Mean, line: &Line) -> String {
    if mean.seeds == line.planned { String::new() } else { format!(" ({} of {})", mean.seeds, line.planned) }
}

fn spread(mean: Mean, unit: f64, decimals: usize, signed: bool) -> String {
    let value = mean.mean * unit;
    let value = if signed { format!("{value:+.decimals$}") } else { format!("{value:.decimals$}") };
    match mean.spread {
        Some(spread) => format!("{value} +- {:.decimals$}", spread * unit),
        None => value,
    }
}
