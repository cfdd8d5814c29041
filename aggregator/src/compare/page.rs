//! The HTML report of an experiment: tables and charts, cell by cell.

use maud::{Markup, html};

use super::choice::Tried;
use super::curves::{Curves, Shown, curves};
use super::interpolation::Mixture;
use super::notes::notes;
use super::personal;
use super::plan::{Plan, Target};
use super::results::{Line, Rounds};
use super::strips::{own_tests, personal_tests};
use super::table;
use crate::report::chart::{Axis, Floor, Line as Curve, Lines};
use crate::report::html::{Head, REFRESH, RELOADS, document};
use crate::report::table::{Table, typeset};
use crate::report::units::{counted, percent};

/// Colours of the style sheet. Further variants reuse them with other kinds of lines.
const COLOURS: usize = 8;

/// The data of a page.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// All rounds.
    pub rounds: &'a Rounds,
    /// All variants in all cells.
    pub lines: &'a [Line],
    /// Mixtures of final models, if the experiment makes any.
    pub mixtures: &'a [Mixture],
    /// How many runs are complete, if the experiment goes on: the page is then written and loaded again.
    pub complete: Option<usize>,
}

/// A self-contained page without scripts. It links to the reports of the runs in the folder `runs` beside it.
#[must_use]
pub fn page(found: &Found<'_>) -> String {
    let experiment = &found.plan.experiment;
    let body = html! {
        @if let Some(complete) = found.complete {
            p.note role="status" { strong { "Running" } ", " (complete) " of " (counted(found.plan.runs.len(), "run")) " complete. " (RELOADS) }
        }
        (body(found, &|run| Some(report_of(run))))
        @if !experiment.text.is_empty() {
            details {
                summary { "The experiment's file" }
                pre { code { (experiment.text) } }
            }
        }
    };
    let lead = match experiment.form.as_str() {
        "" => format!("Runs that existed, seeds {}.", found.plan.seeds()),
        form => format!("Form \"{form}\", seeds {}.", found.plan.seeds()),
    };
    let footer = html! { "Written by aggregator " (env!("CARGO_PKG_VERSION")) "." };
    let title = format!("{} - experiment", experiment.title);
    document(
        &Head {
            title: &title,
            heading: &experiment.title,
            lead: &lead,
            refresh: found.complete.map(|_| REFRESH),
        },
        &body,
        &footer,
    )
}

/// Tables and curves of all cells, and the runs; `link` is where the page of a run is, if there is one.
pub(crate) fn body(found: &Found<'_>, link: &dyn Fn(&str) -> Option<String>) -> Markup {
    let about = &found.plan.experiment.about;
    html! {
        @if !about.is_empty() { section.card { p { (about) } } }
        @for cell in 0..found.plan.cells.len() { (section(found, cell)) }
        (mixtures(found))
        details {
            summary { "All runs" }
            div.scroll { (runs(found, link)) }
        }
    }
}

/// The style of a variant's curve: a colour, then another kind of line; 24 differ.
fn class(index: usize) -> String {
    let kind = match index / COLOURS {
        0 => "",
        1 => " dashed",
        _ => " dotted",
    };
    format!("series-{}{kind}", index % COLOURS + 1)
}

fn section(found: &Found<'_>, cell: usize) -> Markup {
    let setting = &found.plan.cells[cell];
    let title = if setting.name.is_empty() { "Results" } else { &setting.name };
    let names: Vec<&str> =
        found.plan.experiment.variants.iter().map(|variant| variant.name.as_str()).collect();
    let of_cell: Vec<&Line> = found.lines.iter().filter(|line| line.cell == cell).collect();
    let of_runs = || found.plan.runs.iter().zip(found.rounds).filter(|(run, _)| run.cell == cell);
    let over = of_cell
        .iter()
        .all(|line| line.seeds.len() == line.planned && line.seeds.iter().all(|seed| seed.complete));
    let last = if over {
        of_runs()
            .filter(|(run, _)| found.plan.counts(run))
            .filter_map(|(_, rounds)| rounds.as_ref()?.iter().rfind(|round| !round.closing))
            .map(|round| round.round)
            .max()
    } else {
        of_runs().map(|(run, _)| run.config.spec.rounds).max()
    };
    let classes: Vec<String> = (0..names.len()).map(class).collect();
    let chart = |name: &str, unit, floor, ceiling, target, shown, value: fn(&_) -> Option<f64>| {
        let curves: Vec<Curves> =
            of_cell.iter().map(|line| curves(found.plan, found.rounds, line, shown, value)).collect();
        let said: Vec<String> =
            of_cell.iter().zip(&curves).map(|(line, curves)| curves.says(names[line.variant])).collect();
        let series = of_cell.iter().zip(curves).map(|(line, Curves { mean, runs })| Curve {
            name: names[line.variant],
            class: &classes[line.variant],
            points: mean,
            runs,
        });
        let description = format!("{name} over rounds in {title}: {}.", said.join("; "));
        Lines {
            title: name,
            description: &description,
            unit,
            floor,
            ceiling,
            target,
            mark: None,
            closer: floor == Floor::Data,
            axis: Axis::Rounds(last.unwrap_or(0)),
            series: series.collect(),
        }
        .draw()
    };
    let target = match &setting.target {
        Some(Target::Accuracy(target)) => Some((100.0 * target, format!("target {}", percent(*target)))),
        _ => None,
    };
    // Rounds to a target are counted by the best accuracy so far, and that is what is drawn beside them.
    let (name, shown) = match target {
        Some(_) => ("Best test accuracy so far", Shown::BestSoFar),
        None => ("Test accuracy", Shown::Each),
    };
    let accuracies =
        chart(name, "%", Floor::Data, Some(100.0), target, shown, |round| Some(100.0 * round.accuracy?));
    let losses = chart("Test loss", "", Floor::Zero, None, None, Shown::Each, |round| round.loss);
    let results = table::results(found.plan, cell, &of_cell, "variant", "bytes in all (up)");
    html! {
        section.card {
            h2 { (title) }
            div.scroll { (results.html()) @for note in notes(found.plan, &of_cell) { p.note { (typeset(&note)) } } }
            @if let Some(table) = personal::table(found.plan, &of_cell) {
                div.scroll { (table.html()) }
                p.note {
                    "Means over clients without weights, then over seeds. Local test: accuracy with classes as frequent as a client has \
                     them; global test: plain accuracy; gate: how much the global model counts in a mixture."
                }
            }
            (tried(&of_cell))
            (personal_tests(found.plan, found.rounds, &of_cell))
            div.charts {
                @for (name, chart) in [(name, accuracies), ("Test loss", losses)] {
                    @if let Some(chart) = chart { div { h3 { (name) } (chart) } }
                }
            }
            (own_tests(found.plan, found.rounds, &of_cell, title, class))
        }
    }
}

/// What was tried to choose values.
fn tried(lines: &[&Line]) -> Markup {
    let losses = lines.iter().any(|line| line.tried.iter().any(|candidate| candidate.loss.is_some()));
    let measured = if losses { "test loss" } else { "best accuracy" };
    let head = ["variant", "tried", "rounds to target", measured, "rounds"].map(str::to_owned).to_vec();
    let row = |line: &Line, candidate: &Tried| {
        let state = if candidate.settled { "" } else { " so far" };
        vec![
            line.name.clone(),
            candidate.values.clone(),
            candidate.crossing.map_or_else(|| "-".to_owned(), |rounds| format!("{rounds:.1}")),
            match (candidate.best, candidate.loss) {
                (Some(best), _) => percent(best),
                (None, Some(loss)) => format!("{loss:.4}"),
                (None, None) => "-".to_owned(),
            },
            format!("{}{state}", candidate.rounds),
        ]
    };
    let rows: Vec<Vec<String>> =
        lines.iter().flat_map(|line| line.tried.iter().map(move |candidate| row(line, candidate))).collect();
    html! {
        @if !rows.is_empty() {
            details {
                summary { "What was tried" }
                div.scroll { (Table { head, rows, left: 2 }.html()) }
            }
        }
    }
}

fn runs(found: &Found<'_>, link: &dyn Fn(&str) -> Option<String>) -> Markup {
    let rows = found.lines.iter().flat_map(|line| line.seeds.iter().map(move |seed| (line, seed)));
    let share =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{:.2} %", 100.0 * value));
    html! {
        table {
            thead { tr {
                @for column in
                    ["run", "seed", "rounds", "final accuracy", "best accuracy", "rounds to target", "troubles"]
                {
                    th scope="col" { (column) }
                }
            } }
            tbody {
                @for (line, seed) in rows {
                    tr {
                        th scope="row" {
                            @if let Some(place) = link(&seed.run) { a href=(place) { (line.name) } } @else { (line.name) }
                        }
                        td { (seed.seed) }
                        td { (seed.rounds) @if !seed.complete { " so far" } }
                        td { (share(seed.accuracy)) }
                        td { (share(seed.best)) }
                        td { (seed.crossing.map_or_else(|| "-".to_owned(), |rounds| format!("{rounds:.1}"))) }
                        td { (seed.troubles.text()) @if seed.fruitless() { "; counts nowhere" } }
                    }
                }
            }
        }
    }
}

/// The report of a run: a run of the experiment lies in the folder beside the page, another one is named by its place.
fn report_of(run: &str) -> String {
    let folder = if std::path::Path::new(run).is_absolute() { "" } else { "runs/" };
    format!("{folder}{run}/report.html")
}

fn mixtures(found: &Found<'_>) -> Markup {
    let Some(first) = found.mixtures.first() else { return html! {} };
    let names: Vec<String> = found.mixtures.iter().map(|mixture| mixture.name.clone()).collect();
    let description =
        format!("Loss of mixtures of two models against their weight, for {}.", names.join(", "));
    let classes: Vec<String> = (0..names.len()).map(class).collect();
    let [from, to] = [first.points.first(), first.points.last()].map(|end| end.map_or(0.0, |end| end.theta));
    let series = found.mixtures.iter().zip(&names).zip(&classes);
    let series = series.map(|((mixture, name), class)| Curve {
        name,
        class,
        points: (1..).zip(mixture.points.iter().map(|point| point.loss)).collect(),
        runs: Vec::new(),
    });
    let chart = Lines {
        title: "Loss of mixtures",
        description: &description,
        unit: "",
        floor: Floor::Zero,
        ceiling: None,
        target: None,
        mark: None,
        closer: false,
        axis: Axis::Values { name: "theta", count: first.points.len() as u32, from, to },
        series: series.collect(),
    };
    let head = [&["theta".to_owned()], &names[..]].concat();
    let rows = (0..).zip(&first.points).map(|(step, point)| {
        let loss = |mixture: &Mixture| {
            mixture.points.get(step).map_or_else(String::new, |point| format!("{:.4}", point.loss))
        };
        std::iter::once(format!("{:.2}", point.theta)).chain(found.mixtures.iter().map(loss)).collect()
    });
    let table = Table { head, rows: rows.collect(), left: 1 };
    html! {
        section.card {
            h2 { "Mixtures of two models" }
            p.note {
                "Loss of theta a + (1 - theta) b for the final models a and b of two seeds, on all "
                (first.on) " samples."
            }
            @if let Some(chart) = chart.draw() { (chart) }
            div.scroll { (table.html()) }
        }
    }
}
