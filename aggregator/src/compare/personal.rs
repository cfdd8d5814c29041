//! The table of personal models, and the global model at the same tests: one row for each model of each variant.

use super::cells::{metric, share};
use super::experiment::Paper;
use super::plan::Plan;
use super::results::{FIGURES, Line, MODELS};
use crate::report::table::Table;

/// The table of one cell; `None` if no client has tested a personal model there.
pub(super) fn table(plan: &Plan, lines: &[&Line]) -> Option<Table> {
    let says = |paper: &&Paper| lines.iter().any(|line| !paper.of(&line.name).metrics.is_empty());
    let papers: Vec<&Paper> = plan.experiment.papers.iter().filter(says).collect();
    let mut head = vec!["model of the clients".to_owned()];
    for test in ["local test", "global test"] {
        head.push(test.to_owned());
        head.extend(papers.iter().map(|paper| paper.head()));
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
                row.extend(papers.iter().map(|paper| {
                    let published = paper.of(&line.name).metrics.get(name).copied();
                    published.map_or_else(String::new, |published| format!("{published:.2} %"))
                }));
            }
            row.push(metric(line, &names[2]));
            rows.push(row);
        }
    }
    (!rows.is_empty()).then_some(Table { head, rows, left: 1 })
}
