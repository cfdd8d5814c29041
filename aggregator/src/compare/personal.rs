//! What clients' personal models are worth, and the global one to them: a table of its own, with a line for each model.

use maud::{Markup, html};

use super::plan::Plan;
use super::results::{Line, Mean, Rounds, shown};
use super::table::{aligned, metric, of_seeds, spread};
use crate::report::chart::{Strip, Strips};

/// What stands after a model's name in what clients measured of it.
const FIGURES: [&str; 3] = ["local-test", "global-test", "gate"];
/// The models by what stands before, and what they are called here.
const MODELS: [(&str, &str); 6] = [
    ("", "as it is"),
    ("ft-", "FT"),
    ("fb-", "FB"),
    ("mf-", "MF"),
    ("mfe-", "MFE"),
    ("fixed-", "fixed gate"),
];

/// Whether a measurement belongs into this table.
pub(super) fn is_personal(name: &str) -> bool {
    let of = |figure| name.strip_suffix(figure).is_some_and(|rest| MODELS.iter().any(|(of, _)| *of == rest));
    FIGURES.into_iter().any(of)
}

/// One model of one variant.
struct Row {
    cells: Vec<String>,
}

/// The head of the table, and its rows in one cell; `None` if nobody has measured anything of it there.
fn rows<'a>(plan: &Plan, lines: impl Iterator<Item = &'a Line>) -> Option<(Vec<&'static str>, Vec<Row>)> {
    let lines: Vec<&Line> = lines.collect();
    let published = lines.iter().any(|line| !line.paper_metrics.is_empty());
    let mut head = vec!["model of the clients"];
    for figure in ["local test", "global test"] {
        head.push(figure);
        if published {
            head.push(plan.paper_head());
        }
    }
    head.push("gate");
    let mut rows = Vec::new();
    for line in lines {
        for (of, model) in MODELS {
            let names = FIGURES.map(|figure| format!("{of}{figure}"));
            if !names.iter().any(|name| line.metrics.contains_key(name)) {
                continue;
            }
            let variant = &plan.experiment.variants[line.variant].name;
            let mut cells = vec![format!("{variant}, {model}")];
            let share =
                |mean: &Mean| format!("{} %{}", spread(*mean, 100.0, 2, false), of_seeds(*mean, line));
            for name in &names[..2] {
                cells.push(line.metrics.get(name).map_or_else(|| "-".to_owned(), share));
                if published {
                    let paper = line.paper_metrics.get(name);
                    cells.push(paper.map_or_else(String::new, |paper| format!("{paper:.2} %")));
                }
            }
            cells.push(metric(line, &names[2]));
            rows.push(Row { cells });
        }
    }
    (!rows.is_empty()).then_some((head, rows))
}

/// For a terminal; empty if there is nothing.
pub(super) fn text<'a>(plan: &Plan, lines: impl Iterator<Item = &'a Line>) -> String {
    let Some((head, rows)) = rows(plan, lines) else { return String::new() };
    let head = head.into_iter().map(str::to_owned).collect();
    let table: Vec<Vec<String>> =
        std::iter::once(head).chain(rows.into_iter().map(|row| row.cells)).collect();
    aligned(&table)
}

/// For a page; nothing if there is nothing.
pub(super) fn page(plan: &Plan, lines: &[&Line]) -> Markup {
    let Some((head, rows)) = rows(plan, lines.iter().copied()) else { return html! {} };
    html! {
        div.scroll {
            table {
                thead { tr { @for column in head { th scope="col" { (column) } } } }
                tbody {
                    @for row in rows {
                        tr {
                            @for (at, cell) in row.cells.iter().enumerate() {
                                @if at == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
        p.note {
            "Means over clients without weights, then over seeds. Local test: accuracy with classes as frequent as a client has \
             them; global test: plain accuracy; gate: how much the global model counts in a mixture."
        }
    }
}

/// The local or global tests of one model, in percent, by every client of every seed; and how many clients it serves worse than the
/// model as it is.
struct Spread {
    name: String,
    values: Vec<f64>,
    worse: usize,
}

fn spreads(plan: &Plan, rounds: &Rounds, lines: &[&Line], figure: &str) -> Vec<Spread> {
    let mut spreads = Vec::new();
    for line in lines {
        let runs = shown(plan, rounds, line).into_iter();
        let newest = runs.filter_map(|rounds| rounds.iter().rfind(|round| !round.clients.is_empty()));
        let clients: Vec<_> = newest.flat_map(|round| round.clients.values()).collect();
        for (of, model) in MODELS {
            let name = format!("{of}{figure}");
            let pairs = || clients.iter().filter_map(|found| Some((found.get(&name)?, found.get(figure))));
            let values: Vec<f64> = pairs().map(|(share, _)| 100.0 * share).collect();
            let worse =
                pairs().filter(|(share, as_it_is)| as_it_is.is_some_and(|other| *share < other)).count();
            if !values.is_empty() {
                let name = format!("{}, {model}", plan.experiment.variants[line.variant].name);
                spreads.push(Spread { name, values, worse });
            }
        }
    }
    spreads
}

/// How local and global tests are distributed over the clients of all seeds, and who loses by a model of its own; nothing
/// without such tests.
pub(super) fn pictures(plan: &Plan, rounds: &Rounds, lines: &[&Line]) -> Markup {
    html! {
        (picture(&spreads(plan, rounds, lines, FIGURES[0]), "Local tests of all clients"))
        (picture(&spreads(plan, rounds, lines, FIGURES[1]), "Global tests of all clients"))
    }
}

fn picture(spreads: &[Spread], title: &str) -> Markup {
    let classes: Vec<String> = (0..spreads.len()).map(|index| format!("series-{}", index % 8 + 1)).collect();
    let sets = spreads.iter().zip(&classes).map(|(spread, class)| Strip {
        name: &spread.name,
        class,
        values: spread.values.clone(),
    });
    let losers = spreads.iter().filter(|spread| spread.worse > 0).map(|spread| {
        format!(
            "{}: worse than the model as it is for {} of {} clients",
            spread.name,
            spread.worse,
            spread.values.len()
        )
    });
    let losers = losers.collect::<Vec<_>>().join("; ");
    let description = format!("{title}, with every seed. {losers}");
    let chart =
        Strips { title, description: &description, unit: "%", ceiling: Some(100.0), sets: sets.collect() };
    let Some(chart) = chart.draw() else { return html! {} };
    html! {
        h3 { (title) }
        (chart)
        p.note {
            "A dot is a client of one seed; below the dots the range, the middle half and the median. "
            @if !losers.is_empty() { (losers) "." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_here_is_known_by_its_name() {
        for name in ["local-test", "global-test", "mfe-gate", "fb-local-test", "fixed-global-test"] {
            assert!(is_personal(name), "{name}");
        }
        for name in ["own-accuracy", "drift", "a-local-test", "mfe", "mfe-local-tests"] {
            assert!(!is_personal(name), "{name}");
        }
    }
}
