//! Strip plots with a dot for each client: they show who loses where a mean does not.

use maud::{Markup, html};
use shared::message::Metric;

use super::plan::Plan;
use super::results::{FIGURES, Line, MODELS, Rounds, last_tests, measured_globally};
use crate::report::chart::{Strip, Strips};

/// One strip.
struct Series {
    name: String,
    class: String,
    /// In percent.
    values: Vec<f64>,
}

fn draw(title: &str, description: &str, series: &[Series]) -> Option<Markup> {
    let sets = series
        .iter()
        .map(|Series { name, class, values }| Strip { name, class, values: values.clone() })
        .collect();
    Strips { title, description, unit: "%", ceiling: Some(100.0), sets }.draw()
}

/// The last tests that clients made on samples of their own, over all seeds; nothing if they made none.
/// `class` styles a variant.
pub(super) fn own_tests(
    plan: &Plan,
    rounds: &Rounds,
    lines: &[&Line],
    title: &str,
    class: fn(usize) -> String,
) -> Markup {
    let chart = |name: &str| {
        let series = lines.iter().map(|line| Series {
            name: plan.experiment.variants[line.variant].name.clone(),
            class: class(line.variant),
            values: last_tests(plan, rounds, line)
                .into_iter()
                .filter_map(|tests| Some(100.0 * tests.get(name)?))
                .collect(),
        });
        let description = format!("{name} of every client in {title}, for each variant.");
        let chart = draw(name, &description, &series.collect::<Vec<_>>())?;
        Some(html! { div { h3 { (name) ", client by client" } (chart) } })
    };
    let shares = measured_globally(lines).into_iter().filter(|name| Metric::is_share(name));
    html! {
        div.charts { @for chart in shares.filter_map(chart) { (chart) } }
    }
}

/// The local and global tests of personal models, over all seeds; nothing if there are none.
pub(super) fn personal_tests(plan: &Plan, rounds: &Rounds, lines: &[&Line]) -> Markup {
    html! {
        (personal(plan, rounds, lines, FIGURES[0], "Local tests of all clients"))
        (personal(plan, rounds, lines, FIGURES[1], "Global tests of all clients"))
    }
}

fn personal(plan: &Plan, rounds: &Rounds, lines: &[&Line], figure: &str, title: &str) -> Markup {
    let (mut series, mut losers) = (Vec::new(), Vec::new());
    for line in lines {
        let clients = last_tests(plan, rounds, line);
        for (prefix, model) in MODELS {
            let name = format!("{prefix}{figure}");
            let pairs = || clients.iter().filter_map(|tests| Some((tests.get(&name)?, tests.get(figure))));
            let values: Vec<f64> = pairs().map(|(share, _)| 100.0 * share).collect();
            let worse =
                pairs().filter(|(share, global)| global.is_some_and(|global| *share < global)).count();
            if values.is_empty() {
                continue;
            }
            let name = format!("{}, {model}", plan.experiment.variants[line.variant].name);
            if worse > 0 {
                let clients = values.len();
                losers
                    .push(format!("{name}: worse than the model as it is for {worse} of {clients} clients"));
            }
            let class = format!("series-{}", series.len() % 8 + 1);
            series.push(Series { name, class, values });
        }
    }
    let losers = losers.join("; ");
    let description = format!("{title}, with every seed. {losers}");
    let Some(chart) = draw(title, &description, &series) else { return html! {} };
    html! {
        h3 { (title) }
        (chart)
        p.note {
            "A dot is a client of one seed; below the dots the range, the middle half and the median. "
            @if !losers.is_empty() { (losers) "." }
        }
    }
}
