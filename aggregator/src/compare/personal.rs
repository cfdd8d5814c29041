//! The table of personal models, and the global model at the same tests: one row for each model of each variant.

use super::cells::{metric, share};
use super::plan::Plan;
use super::results::{FIGURES, Line, MODELS};
use crate::report::table::Table;

/// The table of one cell; `None` if no client has tested a personal model there.
pub(super) fn table(plan: &Plan, lines: &[&Line]) -> Option<Table> {
    let published = lines.iter().any(|line| !line.paper_metrics.is_empty());
    let paper = || published.then(|| plan.paper_head().to_owned());
    let mut head = vec!["model of the clients".to_owned()];
    for test in ["local test", "global test"] {
        head.push(test.to_owned());
        head.extend(paper());
    }
    head.push("gate".to_owned());
    let mut rows = Vec::new();
    for line in lines {
        for (prefix, model) in MODELS {
            let names = FIGURES.map(|figure| format!("{prefix}{figure}"));
            if !names.iter().any(|name| line.metrics.contains_key(name)) {
                continue;
            }
            let mut row = vec![format!("{}, {model}", plan.experiment.variants[line.variant].name)];
            for name in &names[..2] {
                row.push(line.metrics.get(name).map_or_else(|| "-".to_owned(), |&mean| share(mean, line, 2)));
                if published {
                    let paper = line.paper_metrics.get(name);
                    row.push(paper.map_or_else(String::new, |paper| format!("{paper:.2} %")));
                }
            }
            row.push(metric(line, &names[2]));
            rows.push(row);
        }
    }
    (!rows.is_empty()).then_some(Table { head, rows, left: 1 })
}
