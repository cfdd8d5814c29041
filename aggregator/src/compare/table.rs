//! The results for a terminal and for spreadsheets.

use std::fmt::Write as _;

use super::personal;
use super::plan::Plan;
use super::results::{Line, Mean, measured};
use crate::report::units::{bytes, percent};

/// One table per cell.
///
/// ```text
/// iid                 final accuracy   against fedsgd   rounds to 97.0 %   bytes to it     paper
/// fedsgd               91.2 +- 0.3 %         baseline       none of 3
/// fedavg-b10           97.1 +- 0.1 %    +5.9 +- 0.2        53 +- 2         84.1 MB     87 rounds
/// ```
#[must_use]
pub fn table(plan: &Plan, lines: &[Line]) -> String {
    let mut text = String::new();
    for (cell, setting) in plan.cells.iter().enumerate() {
        let name = if setting.name.is_empty() { "variant" } else { &setting.name };
        let mut header = vec![name.to_owned(), "final accuracy".to_owned()];
        let of_cell = || lines.iter().filter(|line| line.cell == cell);
        if let Some(baseline) = &plan.experiment.baseline {
            header.push(format!("against {baseline}"));
        }
        if let Some(target) = setting.target {
            header.extend([format!("rounds to {}", percent(target)), "bytes to it".to_owned()]);
        } else {
            header.push("bytes".to_owned());
        }
        let published = of_cell().any(|line| paper(line).is_some());
        if published {
            header.push("paper".to_owned());
        }
        let mut measured = measured(of_cell());
        measured.retain(|name| !personal::is_personal(name));
        header.extend(measured.iter().map(|&name| name.to_owned()));
        let mut rows = vec![header];
        for line in of_cell() {
            let mut row = vec![plan.experiment.variants[line.variant].name.clone(), accuracy(line)];
            if let Some(baseline) = plan.baseline() {
                row.push(if baseline == line.variant {
                    "baseline".to_owned()
                } else {
                    points(line.difference)
                });
            }
            if setting.target.is_some() {
                row.extend([
                    to_target(line),
                    line.bytes.map_or_else(String::new, |mean| bytes(mean.mean as u64)),
                ]);
            } else {
                row.push(line.traffic.map_or_else(String::new, |mean| bytes(mean.mean as u64)));
            }
            if published {
                row.push(paper(line).unwrap_or_default());
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
    let seeds = plan.experiment.seeds.len();
    let _ = writeln!(
        text,
        "Means over {seeds} seed{} +- sample standard deviation{}.",
        if seeds == 1 { "" } else { "s" },
        if plan.experiment.baseline.is_some() {
            "; differences are paired by seed, in points of accuracy"
        } else {
            ""
        }
    );
    if !plan.experiment.paper.source.is_empty() {
        let _ = writeln!(text, "Paper: {}.", plan.experiment.paper.source.trim_end_matches('.'));
    }
    text
}

/// `97.1 +- 0.1 %`.
pub(super) fn accuracy(line: &Line) -> String {
    let Some(mean) = line.accuracy else { return "-".to_owned() };
    format!("{} %", spread(mean, 100.0, 1, false))
}

/// `+5.9 +- 0.2`, in points.
pub(super) fn points(difference: Option<Mean>) -> String {
    difference.map_or_else(|| "-".to_owned(), |mean| spread(mean, 100.0, 1, true))
}

/// `53 +- 2`, `53 +- 2 (2 of 3)`, `none of 3`.
pub(super) fn to_target(line: &Line) -> String {
    let runs = line.seeds.iter().filter(|seed| seed.complete).count();
    match line.rounds {
        None if runs == 0 => "-".to_owned(),
        None => format!("none of {runs}"),
        Some(mean) if mean.seeds == runs => spread(mean, 1.0, 0, false),
        Some(mean) => format!("{} ({} of {runs})", spread(mean, 1.0, 0, false), mean.seeds),
    }
}

/// `0.871 +- 0.012`, the mean over rounds and seeds of what clients measured.
pub(super) fn metric(line: &Line, name: &str) -> String {
    line.metrics.get(name).map_or_else(|| "-".to_owned(), |&mean| spread(mean, 1.0, 3, false))
}

/// What was published, in words.
pub(super) fn paper(line: &Line) -> Option<String> {
    let accuracy = line.paper_accuracy.map(|accuracy| format!("{accuracy} %"));
    let rounds = line.paper_rounds.map(|rounds| format!("{rounds} rounds"));
    let both: Vec<String> = accuracy.into_iter().chain(rounds).collect();
    (!both.is_empty()).then(|| both.join(", "))
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
                    bytes_to_target,bytes"
        .to_owned();
    for name in &measured {
        text.extend([",", *name]);
    }
    text.push('\n');
    let number = |value: Option<f64>| value.map_or_else(String::new, |value| value.to_string());
    for line in lines {
        let setting = &plan.cells[line.cell];
        for seed in &line.seeds {
            let (rounds, bytes) = seed.reached.unzip();
            // Names have no commas and no quotation marks.
            let _ = write!(
                text,
                "{},{},{},{},{},{},{},{},{},{},{},{}",
                setting.name,
                plan.experiment.variants[line.variant].name,
                seed.seed,
                seed.run,
                seed.complete,
                seed.rounds,
                number(seed.accuracy),
                number(seed.best),
                number(setting.target),
                rounds.map_or_else(String::new, |rounds| rounds.to_string()),
                bytes.map_or_else(String::new, |bytes| bytes.to_string()),
                seed.bytes
            );
            for name in &measured {
                let _ = write!(text, ",{}", number(seed.metrics.get(*name).copied()));
            }
            text.push('\n');
        }
    }
    text
}
