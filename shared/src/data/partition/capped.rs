//! Dirichlet label skew with capped and minimum shares, as in MOON's experiments.

use super::dirichlet::deal;
use super::proportions::{cut, proportions_of, until_minimum};
use super::{Division, PartitionError, Shares, by_class};
use crate::seed::Seed;

/// For each class in turn, proportions are drawn over all clients; those of clients that already hold `samples / clients`
/// or more are set to zero, and the rest is normalised. If the smallest share ends with fewer than `min` samples,
/// everything is drawn again, up to 1,000 times. A share can exceed the mean by its part of one class.
pub(super) fn split(
    of: Division<'_>,
    (alpha, min): (f64, usize),
    seed: &Seed,
) -> Result<Shares, PartitionError> {
    let Division { labels, classes, clients } = of;
    let samples = labels.len();
    let by_class = by_class(labels, classes);
    let (cuts, seed) = until_minimum((clients, samples), (alpha, min), seed, |seed| {
        let mut sizes = vec![0; clients];
        let cuts: Vec<Vec<usize>> = by_class
            .iter()
            .enumerate()
            .map(|(class, members)| {
                // While samples are left, a client is below the mean; afterwards it does not matter which are open.
                let below = |&size: &usize| size * clients < samples || members.is_empty();
                let open: Vec<bool> = sizes.iter().map(below).collect();
                let mut rng = seed.derive_numbered("proportions", class as u64).rng();
                let cut = cut(members.len(), &proportions_of(&open, alpha, &mut rng));
                sizes.iter_mut().zip(cut.windows(2)).for_each(|(size, part)| *size += part[1] - part[0]);
                cut
            })
            .collect();
        (cuts, sizes)
    })?;
    Ok(deal(by_class, &cuts, clients, &seed))
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
        min: usize,
        seed: &Seed,
    ) -> Result<Shares, PartitionError> {
        super::split(Division { labels, classes, clients }, (alpha, min), seed)
    }

    #[test]
    fn the_published_setting_keeps_its_bounds() {
        // CIFAR-10 among ten clients.
        let labels = in_turn(50_000, 10);
        for (alpha, number) in [(0.1, 1), (0.5, 2), (5.0, 3), (0.5, 4)] {
            let shares = split(&labels, 10, 10, alpha, 10, &Seed::root(number)).unwrap();
            let sizes: Vec<usize> = shares.iter().map(Vec::len).collect();
            // A client below the mean of 5,000 can still get a whole class of 5,000.
            assert!(sizes.iter().all(|&size| (10..10_000).contains(&size)), "alpha {alpha}: {sizes:?}");
            assert_eq!(sizes.iter().sum::<usize>(), 50_000);
        }
    }

    #[test]
    fn who_has_the_mean_gets_nothing_more() {
        // Two clients, two classes of 50, nearly all of a class to one client: who has the first gets none of the second.
        let labels: Vec<u32> = (0..100).map(|sample| sample / 50).collect();
        for number in 0..20 {
            let shares = split(&labels, 2, 2, 0.01, 40, &Seed::root(number)).unwrap();
            let full = shares.iter().filter(|share| histogram(&labels, 2, share)[0] == 50).count();
            if full == 1 {
                let of_second: Vec<_> = shares.iter().map(|share| histogram(&labels, 2, share)).collect();
                assert!(
                    of_second.contains(&vec![50, 0]) && of_second.contains(&vec![0, 50]),
                    "{of_second:?}"
                );
            }
        }
        // Without the cap both classes would often go to the same client, and be drawn again.
        let firsts = (0..20).filter(|&number| split(&labels, 2, 2, 0.01, 40, &Seed::root(number)).is_ok());
        assert_eq!(firsts.count(), 20);
    }

    #[test]
    fn a_minimum_out_of_reach_is_refused_in_bounded_time() {
        let labels = vec![0; 100];
        assert_eq!(
            split(&labels, 1, 10, 0.5, 11, &Seed::root(1)),
            Err(PartitionError::TooLargeMinimum { clients: 10, min: 11, samples: 100 })
        );
        // One class goes as good as whole to one client.
        let error = split(&labels, 1, 10, 1e-6, 10, &Seed::root(2)).unwrap_err();
        let PartitionError::MinimumNotMet { draws, best, min, .. } = error else { panic!("{error}") };
        assert_eq!((draws, best, min), (1000, 0, 10));
        assert!(matches!(split(&labels, 1, 2, 0.0, 1, &Seed::root(3)), Err(PartitionError::Alpha { .. })));
    }

    #[test]
    fn golden_split() {
        let shares = split(&in_turn(12, 2), 2, 3, 0.5, 2, &Seed::root(42)).unwrap();
        assert_eq!(shares, [vec![2, 0], vec![7, 1, 9, 5, 3, 11], vec![8, 10, 4, 6]]);
    }
}
