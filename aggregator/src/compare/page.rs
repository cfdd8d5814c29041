//! The report of an experiment: tables and curves, cell by cell.

use maud::{Markup, html};
use shared::message::Metric;

use super::interpolation::Mixture;
use super::notes::notes;
use super::personal;
use super::plan::{Plan, Target};
use super::results::{Line, Rounds, curve, measured, shown};
use super::table::{accuracy, metric, points, to_target, traffic};
use crate::report::chart::{Axis, Floor, Line as Curve, Lines, Strip, Strips};
use crate::report::html::document;
use crate::report::units::percent;

/// Colours of the style sheet; further variants begin again with the first.
const COLOURS: usize = 8;

/// What a page is made of.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// What was planned.
    pub plan: &'a Plan,
    /// All rounds.
    pub rounds: &'a Rounds,
    /// All variants in all cells.
    pub lines: &'a [Line],
    /// Mixtures of final models, if the experiment makes any.
    pub mixtures: &'a [Mixture],
}

/// A page that needs no network and no script. It links to the reports of the runs, beside it in `runs`.
#[must_use]
pub fn page(found: &Found<'_>) -> String {
    let experiment = &found.plan.experiment;
    let body = html! {
        @if !experiment.about.is_empty() { section.card { p { (experiment.about) } } }
        @for cell in 0..found.plan.cells.len() { (section(found, cell)) }
        (mixtures(found))
        details {
            summary { "All runs" }
            div.scroll { (runs(found)) }
        }
        details {
            summary { "The experiment's file" }
            pre { code { (experiment.text) } }
        }
    };
    let lead = format!("Form \"{}\", seeds {}.", experiment.form, found.plan.seeds());
    let footer = html! { "Written by aggregator " (env!("CARGO_PKG_VERSION")) "." };
    document(&format!("{} - experiment", experiment.title), &experiment.title, &lead, &body, &footer)
}

/// How the curve of one of many variants looks: a colour, and when these are used up another kind of line, up to 24 in all.
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
    let last = found.plan.runs.iter().filter(|run| run.cell == cell).map(|run| run.config.spec.rounds).max();
    let classes: Vec<String> = (0..names.len()).map(class).collect();
    let chart = |name: &str, unit, floor, ceiling, target, value: fn(&_) -> Option<f64>| {
        let series = of_cell
            .iter()
            .map(|line| Curve {
                name: names[line.variant],
                class: &classes[line.variant],
                points: curve(found.plan, found.rounds, line, value),
            })
            .collect();
        let description =
            format!("{name} over rounds in {title}: the mean over seeds of {}.", names.join(", "));
        Lines {
            title: name,
            description: &description,
            unit,
            floor,
            ceiling,
            target,
            axis: Axis::Rounds(last.unwrap_or(0)),
            series,
        }
        .draw()
    };
    let target = match &setting.target {
        Some(Target::Accuracy(target)) => Some((100.0 * target, format!("target {}", percent(*target)))),
        _ => None,
    };
    let accuracies =
        chart("Test accuracy", "%", Floor::Data, Some(100.0), target, |round| Some(100.0 * round.accuracy?));
    let losses = chart("Test loss", "", Floor::Zero, None, None, |round| round.loss);
    html! {
        section.card {
            h2 { (title) }
            div.scroll { (table(found, &of_cell, setting.target.as_ref())) }
            (personal::page(found.plan, &of_cell))
            (personal::pictures(found.plan, found.rounds, &of_cell))
            div.charts {
                @for (name, chart) in [("Test accuracy", accuracies), ("Test loss", losses)] {
                    @if let Some(chart) = chart { div { h3 { (name) } (chart) } }
                }
            }
            (own_tests(found, title, &of_cell))
        }
    }
}

/// How what clients found on samples of their own is distributed over them, all seeds together, at the end: a mean hides who
/// loses. Nothing where clients do not test.
fn own_tests(found: &Found<'_>, title: &str, lines: &[&Line]) -> Markup {
    let variants = &found.plan.experiment.variants;
    let mut measured = measured(lines.iter().copied());
    // Those of personal models have pictures with all of them.
    measured.retain(|name| Metric::is_share(name) && !personal::is_personal(name));
    let chart = |name: &str| {
        let strips: Vec<(usize, Vec<f64>)> =
            lines.iter().map(|line| (line.variant, at_the_end(found, line, name))).collect();
        let classes: Vec<String> = strips.iter().map(|(variant, _)| class(*variant)).collect();
        let strips = strips.into_iter().zip(&classes);
        let strips =
            strips.map(|((variant, values), class)| Strip { name: &variants[variant].name, class, values });
        let description = format!("{name} of every client in {title}, for each variant.");
        let sets = strips.collect();
        let chart = Strips { title: name, description: &description, unit: "%", ceiling: Some(100.0), sets };
        Some(html! { div { h3 { (name) ", client by client" } (chart.draw()?) } })
    };
    html! {
        div.charts { @for chart in measured.into_iter().filter_map(chart) { (chart) } }
    }
}

/// In percent, what the clients of all seeds of a line found when they tested last.
fn at_the_end(found: &Found<'_>, line: &Line, name: &str) -> Vec<f64> {
    let runs = shown(found.plan, found.rounds, line).into_iter();
    let newest = runs.filter_map(|rounds| rounds.iter().rfind(|round| !round.clients.is_empty()));
    let found = newest.flat_map(|round| round.clients.values().filter_map(|found| found.get(name)));
    found.map(|share| 100.0 * share).collect()
}

fn table(found: &Found<'_>, lines: &[&Line], target: Option<&Target>) -> Markup {
    let plan = found.plan;
    let mut measured = measured(lines.iter().copied());
    measured.retain(|name| !personal::is_personal(name));
    let published = lines.iter().any(|line| plan.published(line.cell, line.variant).is_some());
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "variant" }
                    th scope="col" { "final accuracy" }
                    @if let Some(baseline) = &plan.experiment.baseline { th scope="col" { "against " (baseline) } }
                    @if let Some(target) = target {
                        th scope="col" { "rounds to " (target) }
                        th scope="col" { "bytes to it (up)" }
                    }
                    th scope="col" { "bytes in all (up)" }
                    @if published { th scope="col" { (plan.paper_head()) } }
                    @for name in &measured { th scope="col" { (name) } }
                }
            }
            tbody {
                @for line in lines {
                    tr {
                        th scope="row" { (plan.experiment.variants[line.variant].name) }
                        td { (accuracy(line)) }
                        @if let Some(baseline) = plan.baseline() {
                            td { @if baseline == line.variant { "baseline" } @else { (points(line)) } }
                        }
                        @if target.is_some() {
                            td { (to_target(line)) }
                            td { (traffic(line.until)) }
                        }
                        td { (traffic(line.traffic)) }
                        @if published { td { (plan.published(line.cell, line.variant).unwrap_or_default()) } }
                        @for name in &measured { td { (metric(line, name)) } }
                    }
                }
            }
        }
        @for note in notes(plan, lines) { p.note { (note) } }
    }
}

fn runs(found: &Found<'_>) -> Markup {
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
                        th scope="row" { a href=(format!("runs/{}/report.html", seed.run)) { (line.name) } }
                        td { (seed.seed) }
                        td { (seed.rounds) @if !seed.complete { " so far" } }
                        td { (share(seed.accuracy)) }
                        td { (share(seed.best)) }
                        td { (seed.reached.map_or_else(|| "-".to_owned(), |(round, _)| round.to_string())) }
                        td { (seed.troubles.text()) @if seed.fruitless() { "; counts nowhere" } }
                    }
                }
            }
        }
    }
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
    });
    let chart = Lines {
        title: "Loss of mixtures",
        description: &description,
        unit: "",
        floor: Floor::Zero,
        ceiling: None,
        target: None,
        axis: Axis::Values { name: "theta", count: first.points.len() as u32, from, to },
        series: series.collect(),
    };
    html! {
        section.card {
            h2 { "Mixtures of two models" }
            p.note {
                "Loss of theta a + (1 - theta) b for the final models a and b of two seeds, on all "
                (first.on) " samples."
            }
            @if let Some(chart) = chart.draw() { (chart) }
            div.scroll {
                table {
                    thead { tr { th scope="col" { "theta" } @for name in &names { th scope="col" { (name) } } } }
                    tbody {
                        @for (step, point) in first.points.iter().enumerate() {
                            tr {
                                th scope="row" { (format!("{:.2}", point.theta)) }
                                @for mixture in found.mixtures {
                                    td { (mixture.points.get(step).map_or_else(String::new, |point| format!("{:.4}", point.loss))) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
