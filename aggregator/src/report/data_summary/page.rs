//! The data summary as a page.

use std::fmt::Write as _;

use maud::html;

use super::{Description, Range};
use crate::report::html::{ALL, Head, document, figure, histograms};
use crate::report::units::{counted, grouped};

/// A page that needs no network and no script: figures, and the labels of every client as a heat map and a table.
#[must_use]
pub fn page(description: &Description) -> String {
    let figures = &description.figures;
    let clients: Vec<(String, Vec<usize>)> =
        (0..).zip(&description.clients).map(|(k, counts)| (format!("client {k}"), counts.clone())).collect();
    let range = |name: &str, range: Range| {
        figure(name, &grouped(range.median), &[format!("{} to {}", grouped(range.min), grouped(range.max))])
    };
    let title = format!("{} among {}", description.set, counted(clients.len(), "client"));
    let mut lead = format!("{}; run.seed = {}.", description.partition, description.seed);
    if !description.left_out.is_empty() {
        let _ = write!(lead, " Left out, since they cannot be used: {}.", description.left_out.join("; "));
    }
    let names =
        if description.learned.is_none() { description.class_names.clone() } else { vec![ALL.to_owned()] };
    let body = html! {
        section aria-label="Summary" {
            dl.figures {
                (figure("Training samples", &grouped(description.train), &[description.learned()]))
                (figure("Test samples", &grouped(description.test), &[]))
                (range("Samples per client", figures.samples))
                @if description.learned.is_none() { (range("Classes per client", figures.classes)) }
                @if let Some(stream) = description.stream() {
                    (figure("Slices", &description.slices.to_string(), &[stream]))
                }
                @if description.learned.is_none() {
                    (figure("Label skew", &format!("{:.2}", figures.skew), &["0 is IID".to_owned()]))
                }
                @if figures.absent > 0 {
                    (figure("Absent clients", &grouped(figures.absent), &["without a sample".to_owned()]))
                }
            }
        }
        (histograms(&clients, &names, &description.partition))
    };
    document(
        &Head { title: &title, heading: &title, lead: &lead, refresh: None },
        &body,
        &html! { "Written by aggregator " (env!("CARGO_PKG_VERSION")) "." },
    )
}

#[cfg(test)]
mod tests {
    use super::super::tests::description;
    use super::*;

    #[test]
    fn the_page_stands_alone_and_shows_every_client() {
        let page = page(&description(vec![vec![600, 0, 0], vec![0, 150, 450], vec![0, 0, 0]]));
        for part in ["Label skew", "0.50", "Absent clients", "<svg", "client 2", "2 shards per client"] {
            assert!(page.contains(part), "{part} is missing");
        }
        for part in ["http://", "https://", "<script", "<link", "src=", "href="] {
            assert!(!page.contains(part), "{part} in the page");
        }
    }
}
