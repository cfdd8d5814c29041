//! Pathological label skew: samples sorted by label, cut into shards, and dealt to clients.

use super::{Division, PartitionError, Shares, part, shuffled};
use crate::seed::{Seed, shuffle};

/// The samples are shuffled before the (stable) sort, so which samples of a class share a shard depends on the
/// seed and not on the order of the data file.
pub(super) fn split(of: Division<'_>, per_client: usize, seed: &Seed) -> Result<Shares, PartitionError> {
    let Division { labels, clients, .. } = of;
    if per_client == 0 {
        return Err(PartitionError::NoShards);
    }
    let samples = labels.len();
    let shards = clients
        .checked_mul(per_client)
        .filter(|&shards| shards <= samples)
        .ok_or(PartitionError::TooManyShards { clients, per_client, samples })?;
    let mut order = shuffled(samples, &seed.derive("samples"));
    order.sort_by_key(|&sample| labels[sample as usize]);
    let mut dealt: Vec<usize> = (0..shards).collect();
    shuffle(&mut dealt, &mut seed.derive("deal").rng());
    let samples_of = |&shard: &usize| &order[part(samples, shards, shard)];
    Ok(dealt.chunks(per_client).map(|hand| hand.iter().flat_map(samples_of).copied().collect()).collect())
}

#[cfg(test)]
mod tests {
    use super::super::labels::{histogram, in_turn};
    use super::*;

    fn split(
        labels: &[u32],
        clients: usize,
        per_client: usize,
        seed: &Seed,
    ) -> Result<Shares, PartitionError> {
        super::split(Division { labels, classes: 10, clients }, per_client, seed)
    }

    fn classes_seen(labels: &[u32], share: &[u32]) -> usize {
        histogram(labels, 10, share).iter().filter(|&&count| count > 0).count()
    }

    #[test]
    fn equal_classes_give_a_client_at_most_its_number_of_shards() {
        // The published setting at a tenth of the size: each shard is of one class.
        let labels = in_turn(6000, 10);
        let shares = split(&labels, 100, 2, &Seed::root(5)).unwrap();
        assert!(shares.iter().all(|share| share.len() == 60));
        let seen: Vec<usize> = shares.iter().map(|share| classes_seen(&labels, share)).collect();
        assert!(seen.iter().all(|&classes| classes <= 2), "{seen:?}");
        // Two shards of one class meet with probability 19/199: most clients see two classes.
        assert!(seen.iter().filter(|&&classes| classes == 2).count() > 75, "{seen:?}");
    }

    #[test]
    fn unequal_classes_add_at_most_one_class_per_shard() {
        // Class c has 100 + 10 c samples.
        let labels: Vec<u32> = (0..10).flat_map(|c| vec![c; 100 + 10 * c as usize]).collect();
        let shares = split(&labels, 29, 2, &Seed::root(6)).unwrap();
        assert!(shares.iter().all(|share| classes_seen(&labels, share) <= 4));
        let sizes: Vec<usize> = shares.iter().map(Vec::len).collect();
        assert!(sizes.iter().all(|&size| size.abs_diff(50) <= 2), "{sizes:?}");
    }

    #[test]
    fn the_shuffle_decides_which_samples_of_a_class_share_a_shard() {
        let labels = vec![0; 100];
        let shares = split(&labels, 2, 1, &Seed::root(7)).unwrap();
        let first_half = shares[0].iter().filter(|&&sample| sample < 50).count();
        // Hypergeometric: mean 25, standard deviation 2.5.
        assert!(first_half.abs_diff(25) < 15, "{first_half}");
    }

    #[test]
    fn impossible_numbers_of_shards_are_refused() {
        let seed = Seed::root(8);
        assert_eq!(split(&[0; 10], 2, 0, &seed), Err(PartitionError::NoShards));
        let too_many = |per_client| PartitionError::TooManyShards { clients: 2, per_client, samples: 10 };
        assert_eq!(split(&[0; 10], 2, 6, &seed), Err(too_many(6)));
        assert_eq!(split(&[0; 10], 2, usize::MAX, &seed), Err(too_many(usize::MAX)));
        assert!(split(&[0; 10], 2, 5, &seed).is_ok());
    }

    #[test]
    fn golden_split() {
        assert_eq!(
            split(&[1, 0, 1, 0, 1, 0, 1, 0], 2, 2, &Seed::root(42)).unwrap(),
            [[5, 7, 4, 6], [1, 3, 0, 2]]
        );
    }
}
