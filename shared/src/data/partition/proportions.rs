//! Dirichlet proportions, and division of items by them.

use rand::Rng;
use rand_distr::{Distribution, Gamma};

use super::PartitionError;
use crate::seed::{Seed, uniform_f64};

/// The most draws of a partition with a minimum before it is refused.
pub(super) const MAX_DRAWS: u64 = 1000;

/// Refuses a concentration that [`proportions`] cannot use.
pub(super) fn check_alpha(alpha: f64) -> Result<(), PartitionError> {
    // A subnormal number would overflow the logarithms.
    if alpha.is_normal() && alpha > 0.0 { Ok(()) } else { Err(PartitionError::Alpha { alpha }) }
}

/// Draws until every client has `min` items, at most [`MAX_DRAWS`] times. `draw` makes one draw from its own seed and
/// returns it with every client's number of items.
pub(super) fn until_minimum<T>(
    (clients, samples): (usize, usize),
    (alpha, min): (f64, usize),
    seed: &Seed,
    draw: impl Fn(&Seed) -> (T, Vec<usize>),
) -> Result<(T, Seed), PartitionError> {
    check_alpha(alpha)?;
    // A client without a sample could not train.
    let min = min.max(1);
    if clients.saturating_mul(min) > samples {
        return Err(PartitionError::TooLargeMinimum { clients, min, samples });
    }
    let mut best = 0;
    for number in 0..MAX_DRAWS {
        let seed = seed.derive_numbered("draw", number);
        let (drawn, sizes) = draw(&seed);
        let smallest = sizes.into_iter().min().unwrap_or(0);
        if smallest >= min {
            return Ok((drawn, seed));
        }
        best = best.max(smallest);
    }
    Err(PartitionError::MinimumNotMet { alpha, clients, samples, min, draws: MAX_DRAWS, best })
}

/// A draw from the symmetric Dirichlet distribution of `clients` dimensions: gamma variables over their sum.
///
/// Gamma(alpha) is drawn as Gamma(alpha + 1) U^(1/alpha), and its logarithm is kept: for small `alpha` the
/// variables themselves underflow to zero, and the proportions would be 0/0. The largest is scaled to 1.
pub(super) fn proportions<R: Rng>(clients: usize, alpha: f64, rng: &mut R) -> Vec<f64> {
    normalised(logarithms(clients, alpha, rng).into_iter())
}

/// Such a draw with zero proportions for clients that are not `open`, normalised over the others.
///
/// # Panics
/// If no client is open.
pub(super) fn proportions_of<R: Rng>(open: &[bool], alpha: f64, rng: &mut R) -> Vec<f64> {
    assert!(open.contains(&true), "a client is open");
    let logs = logarithms(open.len(), alpha, rng);
    normalised(logs.into_iter().zip(open).map(|(log, &open)| if open { log } else { f64::NEG_INFINITY }))
}

/// Logarithms of gamma variables.
fn logarithms<R: Rng>(count: usize, alpha: f64, rng: &mut R) -> Vec<f64> {
    let gamma = Gamma::new(alpha + 1.0, 1.0).expect("alpha is positive and finite");
    let draw = |_| {
        // In (0, 1]: its logarithm is finite.
        let uniform = 1.0 - uniform_f64(rng);
        gamma.sample(rng).ln() + uniform.ln() / alpha
    };
    (0..count).map(draw).collect()
}

fn normalised(logs: impl Iterator<Item = f64> + Clone) -> Vec<f64> {
    let largest = logs.clone().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logs.map(|log| (log - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// Cuts `total` items in these proportions: entry `k` is where part `k` begins, the last entry is `total`.
///
/// The cumulative proportions are rounded, as in the published partitioning code (Li et al. 2022, NIID-Bench):
/// every item is used exactly once, and each part differs from its exact size by less than one.
pub(super) fn cut(total: usize, proportions: &[f64]) -> Vec<usize> {
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
    use super::*;
    use proptest::prelude::*;

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
    fn who_is_not_open_gets_nothing_and_the_rest_keeps_its_ratios() {
        let all = proportions(4, 0.5, &mut Seed::root(16).rng());
        let some = proportions_of(&[true, false, true, true], 0.5, &mut Seed::root(16).rng());
        assert!(
            some[1].abs() < f64::MIN_POSITIVE && (some.iter().sum::<f64>() - 1.0).abs() < 1e-12,
            "{some:?}"
        );
        assert!((some[0] / some[2] / (all[0] / all[2]) - 1.0).abs() < 1e-9, "{some:?} {all:?}");
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
