//! Label skew by number of classes: every client has the same number of classes.

use super::{Division, PartitionError, Shares, by_class, part};
use crate::seed::{Seed, shuffle};

/// The numbers of clients that hold a class differ by at most one between classes with samples. The holders of a class,
/// and the samples that each of them gets, are random; the parts of the holders differ by at most one sample.
pub(super) fn split(of: Division<'_>, per_client: usize, seed: &Seed) -> Result<Shares, PartitionError> {
    let Division { labels, classes, clients } = of;
    if per_client == 0 {
        return Err(PartitionError::NoClasses);
    }
    let mut members = by_class(labels, classes);
    let present: Vec<usize> = (0..classes).filter(|&class| !members[class].is_empty()).collect();
    let classes = present.len();
    if per_client > classes {
        return Err(PartitionError::TooManyClasses { per_client, classes });
    }
    // No overflow: labels, clients and classes are at most 2^32.
    if clients * per_client < classes {
        return Err(PartitionError::UnheldClasses { clients, per_client, classes });
    }
    let holders = holders(classes, clients, per_client, &seed.derive("deal"));
    let mut shares = vec![Vec::new(); clients];
    for (&class, holders) in present.iter().zip(&holders) {
        let members = &mut members[class];
        let (samples, parts) = (members.len(), holders.len());
        if samples < parts {
            return Err(PartitionError::SmallClass { class, samples, holders: parts });
        }
        shuffle(members, &mut seed.derive_numbered("samples", class as u64).rng());
        for (number, &client) in holders.iter().enumerate() {
            shares[client].extend_from_slice(&members[part(samples, parts, number)]);
        }
    }
    Ok(shares)
}

/// The clients that hold each class.
///
/// The places (clients times classes per client) are divided among the classes as evenly as possible. Each client in turn
/// takes one place of each of the `per_client` classes with the most places left, ties broken at random. Every client
/// finds enough classes, since the numbers of places left differ by at most one at any time.
fn holders(classes: usize, clients: usize, per_client: usize, seed: &Seed) -> Vec<Vec<usize>> {
    let places = clients * per_client;
    let mut order: Vec<usize> = (0..classes).collect();
    shuffle(&mut order, &mut seed.derive("places").rng());
    let mut left = vec![0; classes];
    for (number, &class) in order.iter().enumerate() {
        left[class] = part(places, classes, number).len();
    }
    let mut holders = vec![Vec::new(); classes];
    let mut rng = seed.derive("classes").rng();
    for client in 0..clients {
        shuffle(&mut order, &mut rng);
        order.sort_by_key(|&class| std::cmp::Reverse(left[class]));
        for &class in &order[..per_client] {
            left[class] -= 1;
            holders[class].push(client);
        }
    }
    holders
}

#[cfg(test)]
mod tests {
    use super::super::labels::{histogram, in_turn};
    use super::*;

    fn split(
        labels: &[u32],
        classes: usize,
        clients: usize,
        per_client: usize,
        seed: &Seed,
    ) -> Result<Shares, PartitionError> {
        super::split(Division { labels, classes, clients }, per_client, seed)
    }

    #[test]
    fn every_client_sees_exactly_its_number_of_classes() {
        let labels = in_turn(6000, 10);
        for (clients, per_client) in [(10, 1), (10, 2), (7, 3), (100, 2), (4, 10), (5, 2), (33, 7)] {
            let shares = split(&labels, 10, clients, per_client, &Seed::root(31)).unwrap();
            for share in &shares {
                let seen = histogram(&labels, 10, share).iter().filter(|&&count| count > 0).count();
                assert_eq!(seen, per_client, "{clients} clients");
            }
            assert_eq!(shares.iter().map(Vec::len).sum::<usize>(), 6000);
        }
    }

    #[test]
    fn holders_of_a_class_share_it_equally() {
        let labels = in_turn(6000, 10);
        let shares = split(&labels, 10, 20, 3, &Seed::root(32)).unwrap();
        for class in 0..10 {
            let parts: Vec<usize> =
                shares.iter().map(|share| histogram(&labels, 10, share)[class]).filter(|&n| n > 0).collect();
            // Sixty places over ten classes; 600 samples each.
            assert_eq!(parts, [100; 6], "class {class}");
        }
    }

    #[test]
    fn which_classes_meet_is_random() {
        let labels = in_turn(1000, 10);
        let pairs = |number| -> Vec<Vec<usize>> {
            let shares = split(&labels, 10, 20, 2, &Seed::root(number)).unwrap();
            let seen = |share: &Vec<u32>| {
                let counts = histogram(&labels, 10, share);
                (0..10).filter(|&class| counts[class] > 0).collect()
            };
            shares.iter().map(seen).collect()
        };
        let first = pairs(1);
        assert_ne!(first, pairs(2));
        let mut distinct = first.clone();
        distinct.sort();
        distinct.dedup();
        assert!(distinct.len() > 10, "{distinct:?}");
    }

    #[test]
    fn classes_without_samples_are_nobodys() {
        let labels: Vec<u32> = (0..90).map(|sample| [1, 4, 7][sample % 3]).collect();
        let shares = split(&labels, 10, 6, 2, &Seed::root(33)).unwrap();
        assert!(shares.iter().all(|share| !share.is_empty()));
        let too_many = PartitionError::TooManyClasses { per_client: 4, classes: 3 };
        assert_eq!(split(&labels, 10, 6, 4, &Seed::root(33)), Err(too_many));
    }

    #[test]
    fn impossible_numbers_are_refused_with_them() {
        let seed = Seed::root(34);
        assert_eq!(split(&[0, 1], 2, 1, 0, &seed), Err(PartitionError::NoClasses));
        let unheld = PartitionError::UnheldClasses { clients: 4, per_client: 2, classes: 10 };
        assert_eq!(split(&in_turn(100, 10), 10, 4, 2, &seed), Err(unheld));
        // Five of class 1 for nine clients.
        let labels: Vec<u32> = (0..100).map(|sample| u32::from(sample < 5)).collect();
        let small = PartitionError::SmallClass { class: 1, samples: 5, holders: 9 };
        assert_eq!(split(&labels, 2, 9, 2, &seed), Err(small));
    }

    #[test]
    fn golden_split() {
        let shares = split(&in_turn(9, 3), 3, 3, 2, &Seed::root(42)).unwrap();
        assert_eq!(shares, [vec![3, 7], vec![4, 1, 5], vec![0, 6, 8, 2]]);
    }
}
