//! Dirichlet label skew: each class is divided in Dirichlet proportions.

use super::proportions::{check_alpha, cut, proportions};
use super::{Division, Empty, PartitionError, Shares, by_class};
use crate::seed::{Seed, shuffle};

/// The most draws until every client has a sample.
const MAX_DRAWS: u64 = 100;

/// With [`Empty::Redraw`], a draw that leaves a client without a sample is discarded and repeated with another derived
/// seed, up to [`MAX_DRAWS`] times: such a client could not train, and giving it another's sample would distort the
/// proportions. The result is the Dirichlet partition conditioned on no empty client. With [`Empty::Absent`] the first
/// draw is used.
pub(super) fn split(
    of: Division<'_>,
    (alpha, empty): (f64, Empty),
    seed: &Seed,
) -> Result<Shares, PartitionError> {
    let Division { labels, classes, clients } = of;
    check_alpha(alpha)?;
    let by_class = by_class(labels, classes);
    let mut without = 0;
    for draw in 0..MAX_DRAWS {
        let seed = seed.derive_numbered("draw", draw);
        let cuts: Vec<Vec<usize>> = by_class
            .iter()
            .enumerate()
            .map(|(class, members)| {
                let seed = seed.derive_numbered("proportions", class as u64);
                cut(members.len(), &proportions(clients, alpha, &mut seed.rng()))
            })
            .collect();
        without =
            (0..clients).filter(|&client| cuts.iter().all(|cut| cut[client] == cut[client + 1])).count();
        if without == 0 || empty == Empty::Absent {
            return Ok(deal(by_class, &cuts, clients, &seed));
        }
    }
    let samples = labels.len();
    Err(PartitionError::EmptyClients { alpha, clients, samples, draws: MAX_DRAWS, empty: without })
}

/// Shuffles each class and gives client `k` its samples from `cut[k]` to `cut[k + 1]`.
pub(super) fn deal(by_class: Vec<Vec<u32>>, cuts: &[Vec<usize>], clients: usize, seed: &Seed) -> Shares {
    let mut shares = vec![Vec::new(); clients];
    for (class, (mut members, cut)) in by_class.into_iter().zip(cuts).enumerate() {
        shuffle(&mut members, &mut seed.derive_numbered("samples", class as u64).rng());
        for (share, bounds) in shares.iter_mut().zip(cut.windows(2)) {
            share.extend_from_slice(&members[bounds[0]..bounds[1]]);
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::super::labels::{histogram, in_turn};
    use super::*;

    fn split(
        labels: &[u32],
        classes: usize,
        clients: usize,
        alpha: f64,
        empty: Empty,
        seed: &Seed,
    ) -> Result<Shares, PartitionError> {
        super::split(Division { labels, classes, clients }, (alpha, empty), seed)
    }

    /// The mean over clients of the share that a client's most frequent class has in its data.
    fn concentration(alpha: f64) -> f64 {
        let labels = in_turn(10_000, 10);
        let shares = split(&labels, 10, 10, alpha, Empty::Redraw, &Seed::root(9)).unwrap();
        let purities = shares.iter().map(|share| {
            let counts = histogram(&labels, 10, share);
            *counts.iter().max().unwrap() as f64 / share.len() as f64
        });
        purities.sum::<f64>() / shares.len() as f64
    }

    #[test]
    fn concentration_falls_with_alpha() {
        let measured = [0.05, 0.5, 5.0, 500.0].map(concentration);
        assert!(measured.is_sorted_by(|stronger, weaker| *stronger > weaker + 0.05), "{measured:?}");
        assert!(measured[0] > 0.6 && measured[3] < 0.12, "{measured:?}");
    }

    #[test]
    fn impossible_concentrations_are_refused() {
        for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-310] {
            let error = split(&[0, 1], 2, 1, alpha, Empty::Redraw, &Seed::root(12)).unwrap_err();
            assert!(matches!(error, PartitionError::Alpha { .. }), "{alpha}: {error}");
        }
    }

    #[test]
    fn empty_clients_are_drawn_again_and_in_the_end_refused() {
        // One class goes as good as whole to one client: no draw serves both.
        let error = split(&[0; 100], 1, 2, 1e-6, Empty::Redraw, &Seed::root(13)).unwrap_err();
        assert_eq!(
            error,
            PartitionError::EmptyClients { alpha: 1e-6, clients: 2, samples: 100, draws: 100, empty: 1 }
        );
        // Ten classes over five clients: the first draw often leaves one out (about half the time).
        let labels = in_turn(100, 10);
        for number in 0..50 {
            let shares = split(&labels, 10, 5, 0.01, Empty::Redraw, &Seed::root(number)).unwrap();
            assert!(shares.iter().all(|share| !share.is_empty()));
        }
    }

    #[test]
    fn a_thousand_clients_get_the_distribution_as_published() {
        let labels = in_turn(60_000, 10);
        let split = |empty| split(&labels, 10, 1000, 0.1, empty, &Seed::root(14));
        assert!(matches!(split(Empty::Redraw), Err(PartitionError::EmptyClients { draws: 100, .. })));
        let shares = split(Empty::Absent).unwrap();
        assert_eq!(shares.iter().map(Vec::len).sum::<usize>(), 60_000);
        // A client has none of a class with the probability that Beta(0.1, 99.9) is below 1/12,000, about 0.65, and none
        // of ten with 0.65^10, about 0.014.
        let empty = shares.iter().filter(|share| share.is_empty()).count();
        assert!((2..=40).contains(&empty), "{empty}");
        let without = |class| {
            let has = |share: &&Vec<u32>| histogram(&labels, 10, share)[class] == 0;
            shares.iter().filter(has).count()
        };
        assert!((0..10).all(|class| (550..=750).contains(&without(class))), "{:?}", without(0));
    }

    #[test]
    fn golden_split() {
        let labels = in_turn(12, 2);
        let shares = split(&labels, 2, 3, 0.5, Empty::Redraw, &Seed::root(42)).unwrap();
        assert_eq!(shares, [vec![2, 0], vec![7, 1, 9, 5, 3], vec![8, 10, 4, 6, 11]]);
    }
}
