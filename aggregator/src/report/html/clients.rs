//! The label distribution of the clients.

use maud::{Markup, html};

use super::Report;
use super::document::folded_table;
use super::privacy::is_private;
use super::setting::partition;
use crate::report::chart;
use crate::report::units::{counted, grouped};

/// The card with a heat map of clients and classes and its table, unless the run is private; for real devices, a note that the server
/// does not know it.
pub(super) fn labels(report: &Report<'_>) -> Markup {
    let Some(clients) = report.histograms else {
        return html! {
            section.card {
                h2 { "Labels of every client" }
                p { "The clients are devices that keep their data, and what is in it, to themselves." }
            }
        };
    };
    if is_private(report) {
        return html! {};
    }
    let spec = &report.config.spec;
    let all = [ALL.to_owned()];
    let names = if spec.architecture.task.is_classification() { &spec.data.class_names[..] } else { &all };
    histograms(clients, names, &partition(&report.config.data.partition))
}

/// What samples are called that have no single class: they are counted as of one.
pub(in crate::report) const ALL: &str = "all";

/// The card with the heat map of these clients' labels and its table. Classes have numbers where they have no `names`;
/// `partition` describes how they were divided.
pub(in crate::report) fn histograms(
    histograms: &[(String, Vec<usize>)],
    names: &[String],
    partition: &str,
) -> Markup {
    let samples: usize = histograms.iter().flat_map(|(_, counts)| counts).sum();
    let classes = histograms.iter().map(|(_, counts)| counts.len()).max().unwrap_or(0);
    let of = if names == [ALL] { String::new() } else { format!(" of {classes} classes") };
    let description = format!("{}{of}, {partition}.", counted(samples, "sample"));
    let numbers: Vec<String> =
        (0..classes).map(|class| names.get(class).cloned().unwrap_or_else(|| class.to_string())).collect();
    let headings: Vec<&str> =
        ["client"].into_iter().chain(numbers.iter().map(String::as_str)).chain(["all"]).collect();
    let cells = |(name, counts): &(String, Vec<usize>)| {
        let cells = html! {
            @for class in 0..classes { td { (counts.get(class).copied().unwrap_or(0)) } }
            td { (counts.iter().sum::<usize>()) }
        };
        (name.clone(), cells)
    };
    html! {
        section.card {
            h2 { (if names == [ALL] { "Samples of every client" } else { "Labels of every client" }) }
            p.note { (counted(histograms.len(), "client")) ", " (description) " Bars: samples of each client." @if names != [ALL] { " Cells: the stronger the colour, the more samples of a class." } }
            (chart::heatmap(histograms, names, &description))
            @if histograms.len() > chart::DRAWN {
                p.note { "The first " (chart::DRAWN) " of " (grouped(histograms.len())) " clients are drawn; the table has all." }
            }
            (folded_table("Samples of every client and class", &headings, histograms.iter().map(cells)))
        }
    }
}
