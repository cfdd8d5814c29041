//! The card on the clients' own tests: results of the model per client, since a mean hides who loses.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use shared::id::ClientId;
use shared::message::Metric;

use super::document::folded_table;
use super::privacy::is_private;
use super::{Report, devices};
use crate::report::chart::{Strip, Strips, quartiles};
use crate::report::own_tests::newest;
use crate::report::units::counted;

/// What the names of these tests mean, as far as they are of personal models.
fn explained<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const MODELS: [(&str, &str); 6] = [
        ("", "the global model as it is"),
        ("ft-", "FT, all parameters learn on"),
        ("fb-", "FB, what stands on the extractor learns on"),
        ("mf-", "MF, the global model and FB's mixed, weighed by the input"),
        ("mfe-", "MFE, the same weighed by the extractor's activations"),
        ("fixed-", "the same half and half"),
    ];
    const TESTS: [&str; 2] = ["local-test", "global-test"];
    let names: BTreeSet<&str> = names.collect();
    let tested = |prefix: &str| TESTS.iter().any(|test| names.contains(&*format!("{prefix}{test}")));
    let models: Vec<String> = MODELS
        .iter()
        .filter(|(prefix, _)| tested(prefix))
        .map(|(prefix, says)| {
            if prefix.is_empty() {
                (*says).to_owned()
            } else {
                format!("{}: {says}", prefix.trim_end_matches('-'))
            }
        })
        .collect();
    if models.is_empty() {
        return String::new();
    }
    format!(
        "Local test: accuracy with classes as frequent as the client has them. Global test: plain accuracy. Gate: how much the \
         global model counts in a mixture. Models: {}.",
        models.join("; ")
    )
}

/// The card with the clients' newest tests; `None` if there are none, or the run is private.
pub(super) fn card(report: &Report<'_>) -> Option<Markup> {
    if is_private(report) {
        return None;
    }
    let newest = newest(report.rounds)?;
    let names: BTreeSet<&str> =
        newest.clients.values().flat_map(|found| found.keys().map(String::as_str)).collect();
    let classes: Vec<String> = (0..names.len()).map(|index| format!("series-{}", index % 8 + 1)).collect();
    let shares = names.iter().zip(&classes).filter(|(name, _)| Metric::is_share(name));
    let sets: Vec<Strip<'_>> = shares
        .map(|(name, class)| {
            let found = newest.clients.values().filter_map(|found| found.get(*name));
            Strip { name, class, values: found.map(|share| 100.0 * share).collect() }
        })
        .collect();
    let said = |strip: &Strip<'_>| {
        let [least, first, median, third, greatest] = quartiles(&strip.values)?;
        Some(format!(
            "{}: median {median:.1} %, half of the clients from {first:.1} to {third:.1} %, all from {least:.1} to \
             {greatest:.1} %.",
            strip.name
        ))
    };
    let description = sets.iter().filter_map(said).collect::<Vec<_>>().join(" ");
    let after = newest.round - 1;
    let chart = Strips {
        title: "Clients' own tests",
        description: &description,
        unit: "%",
        ceiling: Some(100.0),
        sets,
    };
    let headings: Vec<&str> = ["client"].into_iter().chain(names.iter().copied()).collect();
    let cell = |value: Option<&f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.4}"));
    let called = devices::names(report);
    let row = |(client, found): (&ClientId, &BTreeMap<String, f64>)| {
        (devices::called(&called, *client), html! { @for name in &names { td { (cell(found.get(*name))) } } })
    };
    Some(html! {
        section.card.wide {
            h2 { "Clients' own tests" }
            p.note {
                "The model after round " (after) ", tested by " (counted(newest.clients.len(), "client"))
                " on samples of their own. A dot is a client; below the dots the range, the middle half and the median."
            }
            @if let Some(chart) = chart.draw() { (chart) }
            @let said = explained(names.iter().copied());
            @if !said.is_empty() { p.note { (said) } }
            (folded_table("What every client found", &headings, newest.clients.iter().map(row)))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_personal_tests_are_explained_and_no_others() {
        let said = explained(["local-test", "mf-global-test", "mf-gate"].into_iter());
        for part in ["the global model as it is", "mf: MF, the global model and FB's mixed", "Local test: "] {
            assert!(said.contains(part), "{said}");
        }
        assert!(!said.contains("ft:") && !said.contains("mfe"), "{said}");
        assert_eq!(explained(["own-accuracy"].into_iter()), "");
    }
}
