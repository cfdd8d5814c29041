//! Quantity skew: random samples, their numbers in Dirichlet proportions.

use super::proportions::{cut, proportions, until_minimum};
use super::{PartitionError, Shares, shuffled};
use crate::seed::Seed;

/// The caller has checked that `1 <= clients <= samples`. Drawn again, up to 1,000 times, until the smallest share has
/// `min` samples.
pub(super) fn split(
    samples: usize,
    clients: usize,
    (alpha, min): (f64, usize),
    seed: &Seed,
) -> Result<Shares, PartitionError> {
    let (bounds, _) = until_minimum((clients, samples), (alpha, min), seed, |seed| {
        let bounds = cut(samples, &proportions(clients, alpha, &mut seed.derive("proportions").rng()));
        let sizes = bounds.windows(2).map(|part| part[1] - part[0]).collect();
        (bounds, sizes)
    })?;
    let order = shuffled(samples, &seed.derive("samples"));
    Ok(bounds.windows(2).map(|part| order[part[0]..part[1]].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::super::labels::{histogram, in_turn};
    use super::*;

    #[test]
    fn sizes_differ_and_labels_do_not() {
        let labels = in_turn(60_000, 10);
        let shares = split(labels.len(), 10, (0.5, 10), &Seed::root(21)).unwrap();
        let sizes: Vec<usize> = shares.iter().map(Vec::len).collect();
        let (smallest, largest) = (*sizes.iter().min().unwrap(), *sizes.iter().max().unwrap());
        assert!(smallest >= 10 && largest > 4 * smallest, "{sizes:?}");
        for share in shares.iter().filter(|share| share.len() > 2000) {
            let expected = share.len() as f64 / 10.0;
            // Five standard deviations of a count.
            let near = |count: usize| (count as f64 - expected).abs() < 5.0 * expected.sqrt();
            let counts = histogram(&labels, 10, share);
            assert!(counts.iter().all(|&count| near(count)), "{counts:?}");
        }
    }

    #[test]
    fn a_large_concentration_gives_equal_shares() {
        let shares = split(10_000, 10, (1e6, 10), &Seed::root(22)).unwrap();
        assert!(shares.iter().all(|share| share.len().abs_diff(1000) < 20));
    }

    #[test]
    fn a_minimum_out_of_reach_is_refused() {
        let refused = split(100, 10, (0.5, 11), &Seed::root(23));
        assert_eq!(refused, Err(PartitionError::TooLargeMinimum { clients: 10, min: 11, samples: 100 }));
        let refused = split(1000, 50, (0.01, 20), &Seed::root(24)).unwrap_err();
        assert!(matches!(refused, PartitionError::MinimumNotMet { draws: 1000, best: 0, .. }), "{refused}");
        // Every client gets a sample, even with a minimum of 0.
        assert!(split(10, 10, (1e9, 0), &Seed::root(25)).unwrap().iter().all(|share| share.len() == 1));
    }
}
