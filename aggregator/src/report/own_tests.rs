//! What clients found when they tested models on samples of their own: the newest of it, in figures.

use shared::message::Metric;

use super::chart::quartiles;
use super::table::Table;
use super::units::{counted, percent};
use crate::round::RoundRecord;

/// The newest round in which clients have tested.
pub(super) fn newest(rounds: &[RoundRecord]) -> Option<&RoundRecord> {
    rounds.iter().rfind(|round| !round.clients.is_empty())
}

/// The shares that the clients found in that round, as a table with its heading; `None` if they found none.
#[must_use]
pub fn text(rounds: &[RoundRecord]) -> Option<String> {
    let newest = newest(rounds)?;
    let mut names: Vec<&str> =
        newest.clients.values().flat_map(|found| found.keys().map(String::as_str)).collect();
    names.sort_unstable();
    names.dedup();
    let row = |name: &&str| {
        let found: Vec<f64> = newest.clients.values().filter_map(|found| found.get(*name).copied()).collect();
        let [least, first, median, third, greatest] = quartiles(&found)?;
        let range = |from: f64, to: f64| format!("{:.1} to {}", 100.0 * from, percent(to));
        Some(vec![(*name).to_owned(), percent(median), range(first, third), range(least, greatest)])
    };
    let rows: Vec<Vec<String>> = names.iter().filter(|name| Metric::is_share(name)).filter_map(row).collect();
    if rows.is_empty() {
        return None;
    }
    let head = ["test", "median", "half of them", "all"].map(str::to_owned).to_vec();
    let table = Table { head, rows, left: 1 };
    Some(format!(
        "\n{} tested the model after round {} on samples of their own\n{}",
        counted(newest.clients.len(), "client"),
        newest.round.saturating_sub(1),
        table.text()
    ))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use shared::id::ClientId;

    use super::*;

    #[test]
    fn the_newest_tests_are_told_with_their_spread() {
        let round = |round: u32, shares: &[f64]| RoundRecord {
            round,
            clients: shares
                .iter()
                .zip(1..)
                .map(|(share, byte)| {
                    let found = [("mf-local-test".to_owned(), *share), ("mf-gate".to_owned(), 0.5)];
                    (ClientId::from_bytes([byte; 16]), BTreeMap::from(found))
                })
                .collect(),
            ..RoundRecord::default()
        };
        let rounds = [round(3, &[0.1]), round(5, &[0.8, 0.9, 0.7]), round(6, &[])];
        assert_eq!(
            text(&rounds).as_deref(),
            Some(
                "\n3 clients tested the model after round 4 on samples of their own\n\
                 test            median     half of them              all\n\
                 mf-local-test   80.0 %   75.0 to 85.0 %   70.0 to 90.0 %\n"
            )
        );
        assert_eq!(text(&[round(1, &[])]), None);
    }
}
