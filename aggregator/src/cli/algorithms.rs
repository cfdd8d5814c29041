//! `aggregator algorithms`: what `[algorithm.NAME]` can name, with the settings of each.

use std::fmt::Write as _;

use clap::Args;
use serde::Serialize;
use shared::algorithm::ALGORITHMS;
use shared::algorithm::registry::{Entry, RegistryError, by_default, complete};
use shared::cli::wrapped;

use super::exit::Failure;
use super::terminal;

#[derive(Debug, Args)]
pub(super) struct AlgorithmsArgs {
    /// Print one JSON array
    #[arg(long)]
    json: bool,
}

/// One algorithm, as `--json` prints it.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    summary: &'static str,
    /// The keys of its table with their defaults.
    settings: toml::Table,
    /// Whether its clients keep something between rounds.
    keeps_state: bool,
}

pub(super) fn algorithms(arguments: &AlgorithmsArgs) -> Result<(), Failure> {
    let rows = ALGORITHMS.iter().map(row).collect::<Result<Vec<_>, _>>().map_err(Failure::internal)?;
    terminal::show(arguments.json, &rows, || text(&rows, terminal::columns()))
}

fn row(entry: &Entry) -> Result<Row, RegistryError> {
    Ok(Row {
        name: entry.name,
        summary: entry.summary,
        settings: complete(entry.name, toml::Table::new())?,
        keeps_state: by_default(entry.name)?.keeps_state(),
    })
}

/// The list for people, in lines of at most this many columns.
fn text(rows: &[Row], columns: usize) -> String {
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0) + 2;
    let mut text = String::new();
    for row in rows {
        let mut said = vec![wrapped(row.summary, Some(columns.saturating_sub(width)), 0)];
        said.extend(row.settings.iter().map(|(key, value)| format!("  {key} = {value}")));
        let indent = format!("\n{:width$}", "");
        let _ = writeln!(text, "{:<width$}{}", row.name, said.join("\n").replace('\n', &indent));
    }
    text.push_str(
        "\nA configuration names one by its table, and in it what differs from the defaults\n\
         above:\n\
         \x20   [algorithm.fedprox]\n\
         \x20   mu = 0.1\n\
         On the command line: --set algorithm.fedprox.mu=0.1, or\n\
         --set algorithm.fedsgd={}.\n\n\
         Personal models (FT, FB, MF, MFE) are [personalisation] methods and go with most\n\
         of them; rules against outliers, momentum and adaptive steps of the server are in\n\
         [aggregation]. `aggregator config` prints every key; a combination that makes no\n\
         sense is refused with the reason.\n",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_is_listed_with_its_settings() {
        let rows = [
            Row {
                name: "fedavg",
                summary: "federated averaging of local epochs",
                settings: toml::Table::new(),
                keeps_state: false,
            },
            Row {
                name: "moon",
                summary: "held near",
                settings: "mu = 1.0".parse().expect("TOML"),
                keeps_state: true,
            },
        ];
        let text = text(&rows, 30);
        assert!(
            text.starts_with("fedavg  federated averaging of\n        local epochs\nmoon    held near\n          mu = 1.0\n"),
            "{text}"
        );
    }

    #[test]
    fn the_settings_that_are_named_below_the_list_exist() {
        let table = |text: &str| text.parse::<toml::Table>().expect("TOML");
        complete("fedprox", table("mu = 0.1")).expect("as printed");
        complete("fedsgd", toml::Table::new()).expect("as printed");
    }
}
