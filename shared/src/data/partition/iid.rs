//! Independent and identically distributed: shuffle, then cut into equal shares.

use super::{Shares, part, shuffled};
use crate::seed::Seed;

/// Shares whose sizes differ by at most one. The caller has checked that `1 <= clients <= samples`.
pub(super) fn split(samples: usize, clients: usize, seed: &Seed) -> Shares {
    let order = shuffled(samples, seed);
    (0..clients).map(|client| order[part(samples, clients, client)].to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::labels::{histogram, in_turn};
    use super::*;

    #[test]
    fn sizes_differ_by_at_most_one() {
        for (samples, clients) in [(10, 3), (100, 7), (7, 7), (60_000, 100)] {
            let shares = split(samples, clients, &Seed::root(3));
            let sizes: Vec<usize> = shares.iter().map(Vec::len).collect();
            assert!(sizes.iter().all(|&size| size == samples / clients || size == samples.div_ceil(clients)));
            assert_eq!(sizes.iter().sum::<usize>(), samples);
        }
    }

    #[test]
    fn every_client_sees_the_classes_in_proportion() {
        let labels = in_turn(60_000, 10);
        for share in split(labels.len(), 20, &Seed::root(4)) {
            // 3,000 samples each, 300 expected of each class with a standard deviation of 16.
            let counts = histogram(&labels, 10, &share);
            assert!(counts.iter().all(|&count| count.abs_diff(300) < 80), "{counts:?}");
        }
    }

    #[test]
    fn golden_split() {
        assert_eq!(split(8, 3, &Seed::root(42)), [[5, 6].to_vec(), [4, 0, 7].to_vec(), [2, 3, 1].to_vec()]);
    }
}
