//! Label skew of adjustable strength: each class is divided in Dirichlet proportions.

use rand::Rng;
use rand_distr::{Distribution, Gamma};

use super::PartitionError;
use crate::seed::{Seed, shuffle, uniform_f64};

/// How often the proportions are drawn anew when a client remained without a sample.
const MAX_DRAWS: u64 = 100;

/// The caller has checked that `1 <= clients <= labels.len()` and that labels are below `classes`.
///
/// A draw that leaves a client without a single sample is discarded whole and made again from another derived
/// seed, up to [`MAX_DRAWS`] times: such a client could not train, and handing it a sample from elsewhere would
/// distort the proportions. What is drawn is therefore the Dirichlet partition given that no client is empty.
pub(super) fn split(
    labels: &[u32],
    classes: usize,
    clients: usize,
    alpha: f64,
    seed: &Seed,
) -> Result<Vec<Vec<u32>>, PartitionError> {
    // A subnormal number would overflow the logarithms in `proportions`.
    if !alpha.is_normal() || alpha < 0.0 {
        return Err(PartitionError::Alpha { alpha });
    }
    let mut by_class: Vec<Vec<u32>> = vec![Vec::new(); classes];
    for (sample, &label) in labels.iter().enumerate() {
        by_class[label as usize].push(sample as u32);
    }
    let mut empty = 0;
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
        empty = (0..clients).filter(|&client| cuts.iter().all(|cut| cut[client] == cut[client + 1])).count();
        if empty == 0 {
            return Ok(deal(by_class, &cuts, clients, &seed));
        }
    }
    Err(PartitionError::EmptyClients { alpha, clients, samples: labels.len(), draws: MAX_DRAWS, empty })
}

/// Gives client `k` the samples from `cut[k]` to `cut[k + 1]` of each class, in a random order of that class.
fn deal(by_class: Vec<Vec<u32>>, cuts: &[Vec<usize>], clients: usize, seed: &Seed) -> Vec<Vec<u32>> {
    let mut shares = vec![Vec::new(); clients];
    for (class, (mut members, cut)) in by_class.into_iter().zip(cuts).enumerate() {
        shuffle(&mut members, &mut seed.derive_numbered("samples", class as u64).rng());
        for (share, bounds) in shares.iter_mut().zip(cut.windows(2)) {
            share.extend_from_slice(&members[bounds[0]..bounds[1]]);
        }
    }
    shares
}

/// A draw from the symmetric Dirichlet distribution of `clients` dimensions: gamma variables over their sum.
///
/// Gamma(alpha) is drawn as Gamma(alpha + 1) U^(1/alpha), and its logarithm is kept: for small `alpha` the
/// variables themselves underflow to zero, and the proportions would be 0/0. The largest is scaled to 1.
fn proportions<R: Rng>(clients: usize, alpha: f64, rng: &mut R) -> Vec<f64> {
    let gamma = Gamma::new(alpha + 1.0, 1.0).expect("alpha is positive and finite");
    let logs: Vec<f64> = (0..clients)
        .map(|_| {
            // In (0, 1]: its logarithm is finite.
            let uniform = 1.0 - uniform_f64(rng);
            gamma.sample(rng).ln() + uniform.ln() / alpha
        })
        .collect();
    let largest = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logs.iter().map(|log| (log - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// Cuts `total` items in these proportions: entry `k` is where part `k` begins, the last entry is `total`.
///
/// The cumulative proportions are rounded, as in the published partitioning code (Li et al. 2022, NIID-Bench):
/// every item is used exactly once, and each part differs from its exact size by less than one.
fn cut(total: usize, proportions: &[f64]) -> Vec<usize> {
    let mut cumulative = 0.0;
    let mut bounds = vec![0];
    for proportion in &proportions[..proportions.len() - 1] {
        cumulative += proportion;
        bounds.push(((cumulative * total as f64).round() as usize).min(total));
    }
    bounds.push(total);
    bounds
}

#[cfg(test)]
mod tests {
    use super::super::labels::{histogram, in_turn};
    use super::*;
    use proptest::prelude::*;

    /// The mean over clients of the share that a client's most frequent class has in its data.
    fn concentration(alpha: f64) -> f64 {
        let labels = in_turn(10_000, 10);
        let shares = split(&labels, 10, 10, alpha, &Seed::root(9)).unwrap();
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
    fn proportions_have_the_moments_of_the_distribution() {
        // Of a symmetric Dirichlet over K: mean 1/K, variance (1/K)(1 - 1/K)/(K alpha + 1).
        let (clients, draws) = (4, 20_000);
        for alpha in [0.1, 1.0, 10.0] {
            let mut rng = Seed::root(10).rng();
            let first: Vec<f64> = (0..draws).map(|_| proportions(clients, alpha, &mut rng)[0]).collect();
            let mean = first.iter().sum::<f64>() / draws as f64;
            let variance = first.iter().map(|p| (p - mean).powi(2)).sum::<f64>() / draws as f64;
            let expected = 0.25 * 0.75 / (4.0 * alpha + 1.0);
            assert!((mean - 0.25).abs() < 0.015, "alpha {alpha}: mean {mean}");
            assert!((variance / expected - 1.0).abs() < 0.05, "alpha {alpha}: {variance} for {expected}");
        }
    }

    #[test]
    fn extreme_concentrations_still_give_proportions() {
        for alpha in [f64::MIN_POSITIVE, 1e-6, 1e300, f64::MAX] {
            let drawn = proportions(5, alpha, &mut Seed::root(11).rng());
            assert!((drawn.iter().sum::<f64>() - 1.0).abs() < 1e-12, "alpha {alpha}: {drawn:?}");
            assert!(drawn.iter().all(|p| (0.0..=1.0).contains(p)), "alpha {alpha}: {drawn:?}");
        }
    }

    #[test]
    fn a_class_is_cut_in_its_proportions() {
        assert_eq!(cut(10, &[0.25, 0.25, 0.5]), [0, 3, 5, 10]);
        assert_eq!(cut(0, &[0.5, 0.5]), [0, 0, 0]);
        assert_eq!(cut(3, &[1.0]), [0, 3]);
        assert_eq!(cut(4, &[1.0 + 1e-9, 0.0, 0.0]), [0, 4, 4, 4]);
    }

    #[test]
    fn impossible_concentrations_are_refused() {
        for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-310] {
            let error = split(&[0, 1], 2, 1, alpha, &Seed::root(12)).unwrap_err();
            assert!(matches!(error, PartitionError::Alpha { .. }), "{alpha}: {error}");
        }
    }

    #[test]
    fn empty_clients_are_drawn_again_and_in_the_end_refused() {
        // One class goes as good as whole to one client: no draw serves both.
        let error = split(&[0; 100], 1, 2, 1e-6, &Seed::root(13)).unwrap_err();
        assert_eq!(
            error,
            PartitionError::EmptyClients { alpha: 1e-6, clients: 2, samples: 100, draws: 100, empty: 1 }
        );
        // Ten classes over five clients: the first draw often leaves one out (about half the time).
        let labels = in_turn(100, 10);
        for number in 0..50 {
            let shares = split(&labels, 10, 5, 0.01, &Seed::root(number)).unwrap();
            assert!(shares.iter().all(|share| !share.is_empty()));
        }
    }

    #[test]
    fn golden_split() {
        let labels = in_turn(12, 2);
        let shares = split(&labels, 2, 3, 0.5, &Seed::root(42)).unwrap();
        assert_eq!(shares, [vec![2, 0], vec![7, 1, 9, 5, 3], vec![8, 10, 4, 6, 11]]);
    }

    proptest! {
        #[test]
        fn parts_differ_from_their_exact_size_by_less_than_one(
            total in 0_usize..1000,
            clients in 1_usize..20,
            alpha in 0.01..10.0_f64,
            number: u64,
        ) {
            let proportions = proportions(clients, alpha, &mut Seed::root(number).rng());
            let bounds = cut(total, &proportions);
            prop_assert!(bounds.is_sorted());
            prop_assert_eq!((bounds.len(), bounds[0], bounds[clients]), (clients + 1, 0, total));
            for (part, proportion) in bounds.windows(2).zip(&proportions) {
                let size = (part[1] - part[0]) as f64;
                prop_assert!((size - proportion * total as f64).abs() < 1.0 + 1e-9);
            }
        }
    }
}
