//! The table of results of one cell.

use super::cells::{accuracy, best, chosen, metric, points, steps, to_target, traffic};
use super::experiment::{Paper, Statistic};
use super::plan::{Plan, Target};
use super::results::{Line, measured_globally};
use crate::report::table::Table;

/// The results of all variants in one cell. `variants` and `bytes` are the heads of these columns.
pub(super) fn results(plan: &Plan, cell: usize, lines: &[&Line], variants: &str, bytes: &str) -> Table {
    let target = plan.cells[cell].target.as_ref();
    let says = |paper: &&Paper| lines.iter().any(|line| plan.published(paper, cell, line.variant).is_some());
    let papers: Vec<&Paper> = plan.experiment.papers.iter().filter(says).collect();
    // Beside the best of each run that was published stands the best of ours.
    let of_best = |paper: &&Paper| paper.statistic == Statistic::Best && !paper.accuracy.is_empty();
    let with_best = papers.iter().any(of_best) || target == Some(&Target::Peak);
    let measured = measured_globally(lines);
    let tuned = lines.iter().any(|line| !line.tried.is_empty());
    let counted = lines.iter().any(|line| line.steps.is_some());
    let mut head = vec![variants.to_owned()];
    head.extend(tuned.then(|| "chosen".to_owned()));
    head.push("final accuracy".to_owned());
    head.extend(with_best.then(|| "best accuracy".to_owned()));
    head.extend(plan.experiment.baseline.as_ref().map(|baseline| format!("against {baseline}")));
    if let Some(target) = target {
        head.extend(counted.then(|| "steps a round".to_owned()));
        head.extend([format!("rounds to {target}"), "bytes to target (up)".to_owned()]);
    }
    head.push(bytes.to_owned());
    head.extend(papers.iter().map(|paper| paper.head()));
    head.extend(measured.iter().map(|&name| name.to_owned()));
    let row = |line: &&Line| {
        let mut row = vec![plan.experiment.variants[line.variant].name.clone()];
        row.extend(tuned.then(|| chosen(line)));
        row.push(accuracy(line));
        row.extend(with_best.then(|| best(line)));
        if let Some(baseline) = plan.baseline() {
            row.push(if baseline == line.variant { "baseline".to_owned() } else { points(line) });
        }
        if target.is_some() {
            row.extend(counted.then(|| steps(line)));
            row.extend([to_target(line), traffic(line.until)]);
        }
        row.push(traffic(line.traffic));
        row.extend(papers.iter().map(|paper| plan.published(paper, cell, line.variant).unwrap_or_default()));
        row.extend(measured.iter().map(|name| metric(line, name)));
        row
    };
    Table { head, rows: lines.iter().map(row).collect(), left: 1 + usize::from(tuned) }
}
