//! The results for a terminal and for spreadsheets.

use std::fmt::Write as _;

use super::experiment::Experiment;
use super::notes::notes;
use super::personal;
use super::plan::Plan;
use super::results::{Line, Mean, Traffic, measured};
use crate::report::units::bytes;

/// One table per cell, under what it is about.
///
/// ```text
/// FedAvg against FedSGD
/// form "full", seeds 1, 2, 3
///
/// iid          final accuracy   against fedsgd   rounds to 97.0 %    bytes to it (up)          bytes (up)       paper
/// fedsgd        91.2 +- 0.3 %         baseline          none of 3                       318 MB (159.2 MB)
/// fedavg-b10    97.1 +- 0.1 %      +5.9 +- 0.2            53 +- 2   84.1 MB (42.1 MB)    159 MB (79.7 MB)   87 rounds
/// ```
#[must_use]
pub fn table(plan: &Plan, lines: &[Line]) -> String {
    let Experiment { title, form, .. } = &plan.experiment;
    let mut text = format!("{title}\nform \"{form}\", seeds {}\n\n", plan.seeds());
    for (cell, setting) in plan.cells.iter().enumerate() {
        let name = if setting.name.is_empty() { "variant" } else { &setting.name };
        let mut header = vec![name.to_owned(), "final accuracy".to_owned()];
        let of_cell = || lines.iter().filter(|line| line.cell == cell);
        if let Some(baseline) = &plan.experiment.baseline {
            header.push(format!("against {baseline}"));
        }
        if let Some(target) = &setting.target {
            header.extend([format!("rounds to {target}"), "bytes to it (up)".to_owned()]);
        }
        header.push("bytes (up)".to_owned());
        let published = of_cell().any(|line| plan.published(cell, line.variant).is_some());
        if published {
            header.push(plan.paper_head().to_owned());
        }
        let mut measured = measured(of_cell());
        measured.retain(|name| !personal::is_personal(name));
        header.extend(measured.iter().map(|&name| name.to_owned()));
        let mut rows = vec![header];
        for line in of_cell() {
            let mut row = vec![plan.experiment.variants[line.variant].name.clone(), accuracy(line)];
            if let Some(baseline) = plan.baseline() {
                row.push(if baseline == line.variant { "baseline".to_owned() } else { points(line) });
            }
            if setting.target.is_some() {
                row.extend([to_target(line), traffic(line.until)]);
            }
            row.push(traffic(line.traffic));
            if published {
                row.push(plan.published(cell, line.variant).unwrap_or_default());
            }
            row.extend(measured.iter().map(|name| metric(line, name)));
            rows.push(row);
        }
        text.push_str(&aligned(&rows));
        text.push('\n');
        let personal = personal::text(plan, of_cell());
        if !personal.is_empty() {
            text.push_str(&personal);
            text.push('\n');
        }
    }
    for note in notes(plan, &lines.iter().collect::<Vec<_>>()) {
        text.push_str(&note);
        text.push('\n');
    }
    text
}

/// `97.1 +- 0.1 %`, `97.2 % (1 of 3)`.
pub(super) fn accuracy(line: &Line) -> String {
    let Some(mean) = line.accuracy else { return "-".to_owned() };
    format!("{} %{}", spread(mean, 100.0, 1, false), of_seeds(mean, line))
}

/// `+5.9 +- 0.2`, in points; `+5.9 (1 of 3)`.
pub(super) fn points(line: &Line) -> String {
    let text = |mean| format!("{}{}", spread(mean, 100.0, 1, true), of_seeds(mean, line));
    line.difference.map_or_else(|| "-".to_owned(), text)
}

/// Over how many seeds a mean is, if not over all.
pub(super) fn of_seeds(mean: Mean, line: &Line) -> String {
    if mean.seeds == line.planned { String::new() } else { format!(" ({} of {})", mean.seeds, line.planned) }
}

/// `84.1 MB (42.1 MB)`: in both directions, and what clients have sent of it.
pub(super) fn traffic(traffic: Option<Traffic<Mean>>) -> String {
    let text = |Traffic { down, up }: Traffic<Mean>| {
        format!("{} ({})", bytes((down.mean + up.mean) as u64), bytes(up.mean as u64))
    };
    traffic.map_or_else(String::new, text)
}

/// `53 +- 2`, `53 +- 2 (2 of 3)`, `none of 3`; of the seeds that have a target, which one of another variant is not before that
/// is complete.
pub(super) fn to_target(line: &Line) -> String {
    let runs = line.aimed().count();
    match line.rounds {
        None if runs == 0 => "-".to_owned(),
        None => format!("none of {runs}"),
        Some(mean) if mean.seeds == runs => spread(mean, 1.0, 0, false),
        Some(mean) => format!("{} ({} of {runs})", spread(mean, 1.0, 0, false), mean.seeds),
    }
}

/// `0.871 +- 0.012`, `0.871 (1 of 3)`.
pub(super) fn metric(line: &Line, name: &str) -> String {
    let text = |&mean| format!("{}{}", spread(mean, 1.0, 3, false), of_seeds(mean, line));
    line.metrics.get(name).map_or_else(|| "-".to_owned(), text)
}

pub(super) fn spread(mean: Mean, unit: f64, decimals: usize, signed: bool) -> String {
    let value = mean.mean * unit;
    let value = if signed { format!("{value:+.decimals$}") } else { format!("{value:.decimals$}") };
    match mean.spread {
        Some(spread) => format!("{value} +- {:.decimals$}", spread * unit),
        None => value,
    }
}

/// The first column to the left, the others to the right.
pub(super) fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = format!("{:<width$}", row[0], width = widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            let _ = write!(line, "   {cell:>width$}");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// One line per run: `results.csv`. The last columns are what clients measured, if they did.
#[must_use]
pub fn csv(plan: &Plan, lines: &[Line]) -> String {
    let measured = measured(lines);
    let mut text = "cell,variant,seed,run,complete,rounds,accuracy,best_accuracy,target,rounds_to_target,\
                    bytes_to_target,bytes_up_to_target,bytes,bytes_up,void_rounds,rejected,failed,missing,collapsed,diverged"
        .to_owned();
    for name in &measured {
        text.extend([",", *name]);
    }
    text.push('\n');
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for line in lines {
        for seed in &line.seeds {
            let (rounds, until) = seed.reached.unzip();
            let sum = |traffic: Traffic<u64>| traffic.down.saturating_add(traffic.up).to_string();
            // Names have no commas and no quotation marks.
            let _ = write!(
                text,
                "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}",
                plan.cells[line.cell].name,
                plan.experiment.variants[line.variant].name,
                seed.seed,
                seed.run,
                seed.complete,
                seed.rounds,
                number(seed.accuracy),
                number(seed.best),
                number(seed.target),
                rounds.map_or_else(String::new, |rounds| rounds.to_string()),
                until.map_or_else(String::new, sum),
                until.map_or_else(String::new, |until| until.up.to_string()),
                sum(seed.traffic),
                seed.traffic.up,
                seed.troubles.void,
                seed.troubles.rejected,
                seed.troubles.failed,
                seed.troubles.missing,
                seed.troubles.collapsed,
                seed.troubles.diverged
            );
            for name in &measured {
                let _ = write!(text, ",{}", number(seed.metrics.get(*name).copied()));
            }
            text.push('\n');
        }
    }
    text
}
