//! Metrics of clients, sanitised: a peer may have sent any numbers, asked for or not.

use std::collections::BTreeMap;

use shared::by_class::ByClass;
use shared::id::ClientId;
use shared::message::{Metric, TaskKind, TrainReport};

use crate::round::RoundRecord;

/// The largest plausible magnitude; sums of larger numbers might not be finite.
const LARGEST: f64 = 1e100;

/// The metrics of one client by name, the first of each name, without those that it was not asked for.
fn of_client(report: &TrainReport, work: TaskKind) -> BTreeMap<String, f64> {
    let mut measured = BTreeMap::new();
    let asked = |metric: &Metric| work.tests() || !metric.is_of_model();
    for (name, value) in report.metrics.into_iter().flatten().filter(asked).flat_map(Metric::values) {
        let possible =
            if Metric::is_share(&name) { (0.0..=1.0).contains(&value) } else { value.abs() <= LARGEST };
        if possible {
            measured.entry(name).or_insert(value);
        }
    }
    measured
}

/// The mean of each metric over the clients.
pub(super) fn means(reports: &BTreeMap<ClientId, TrainReport>, work: TaskKind) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for (name, value) in reports.values().flat_map(|report| of_client(report, work)) {
        let (sum, count) = sums.entry(name).or_default();
        *sum += value;
        *count += 1.0;
    }
    sums.into_iter().map(|(name, (sum, count))| (name, sum / count)).collect()
}

/// The tests of the model that each client was sent, by name, without clients that did not test it.
pub(super) fn of_model(
    reports: &BTreeMap<ClientId, TrainReport>,
    work: TaskKind,
) -> BTreeMap<ClientId, BTreeMap<String, f64>> {
    let found = |report: &TrainReport| -> BTreeMap<String, f64> {
        let mut report = *report;
        for metric in &mut report.metrics {
            *metric = metric.filter(|metric| metric.is_of_model());
        }
        of_client(&report, work)
    };
    let all = reports.iter().map(|(&client, report)| (client, found(report)));
    all.filter(|(_, found)| !found.is_empty()).collect()
}

/// Drops the tests per client of all models but the newest: they would grow with every round, and `rounds.jsonl` has them.
pub(super) fn keep_newest(records: &mut [RoundRecord]) {
    let newest = records.iter().rposition(|record| !record.clients.is_empty()).unwrap_or(0);
    for earlier in &mut records[..newest] {
        earlier.clients.clear();
        earlier.by_class = ByClass::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(all: &[&[Metric]]) -> BTreeMap<ClientId, TrainReport> {
        let report = |metrics: &&[Metric]| {
            let mut report = TrainReport::default();
            report.metrics.iter_mut().zip(*metrics).for_each(|(slot, metric)| *slot = Some(*metric));
            report
        };
        (0..).zip(all).map(|(n, metrics)| (ClientId::from_bytes([n; 16]), report(metrics))).collect()
    }

    #[test]
    fn nobody_votes_twice_unasked_or_with_impossible_numbers() {
        let tests = TaskKind { evaluate: true, ..TaskKind::TRAIN };
        let honest = [Metric::OwnAccuracy(0.5), Metric::OwnLoss(2.0)];
        let twice = [Metric::OwnLoss(4.0), Metric::OwnLoss(f64::MAX)];
        let liars: [&[Metric]; 3] = [
            &[Metric::OwnAccuracy(1e9), Metric::OwnLoss(f64::MAX)],
            &[Metric::OwnAccuracy(-0.1), Metric::OwnLoss(f64::INFINITY)],
            &[Metric::OwnAccuracy(f64::NAN), Metric::Drift(f64::NEG_INFINITY)],
        ];
        let all = reports(&[&[&honest[..], &twice], &liars[..]].concat());
        let expected = [("own-accuracy".to_owned(), 0.5), ("own-loss".to_owned(), 3.0)];
        assert_eq!(means(&all, tests), BTreeMap::from(expected));
        assert_eq!(of_model(&all, tests).len(), 2);
        assert_eq!(means(&all, TaskKind::TRAIN), BTreeMap::new(), "no client was asked");
        assert_eq!(of_model(&reports(&[&[Metric::Drift(1.0)]]), tests), BTreeMap::new());
        let drift = BTreeMap::from([("drift".to_owned(), 1.0)]);
        assert_eq!(means(&reports(&[&[Metric::Drift(1.0)]]), TaskKind::TRAIN), drift);
    }

    #[test]
    fn the_newest_tests_are_kept_and_no_others() {
        let tests = TaskKind { evaluate: true, ..TaskKind::TRAIN };
        let record = |tested: bool| {
            let found =
                if tested { of_model(&reports(&[&[Metric::OwnLoss(1.0)]]), tests) } else { BTreeMap::new() };
            RoundRecord { clients: found, ..RoundRecord::default() }
        };
        let kept = |tested: &[bool]| -> Vec<bool> {
            let mut records: Vec<RoundRecord> = tested.iter().map(|&tested| record(tested)).collect();
            keep_newest(&mut records);
            records.iter().map(|record| !record.clients.is_empty()).collect()
        };
        assert_eq!(kept(&[true, true, false]), [false, true, false]);
        assert_eq!(
            (kept(&[]), kept(&[false, false]), kept(&[true])),
            (vec![], vec![false, false], vec![true])
        );
    }
}
