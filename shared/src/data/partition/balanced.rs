//! Class-balanced draw of the server's labelled samples.

use super::{PartitionError, by_class, check_labels};
use crate::seed::{Seed, shuffle};

/// Draws `count` of the samples with these labels at random, in ascending order: equally many of each class, and one more
/// of the first classes if `count` is not a multiple.
///
/// # Errors
/// [`PartitionError::TooFewOfClass`] if a class has too few; [`PartitionError::Label`] for a label that is not a class.
pub fn balanced(
    labels: &[u32],
    classes: usize,
    count: usize,
    seed: &Seed,
) -> Result<Vec<u32>, PartitionError> {
    check_labels(labels, classes)?;
    let mut drawn = Vec::with_capacity(count);
    for (class, mut members) in by_class(labels, classes).into_iter().enumerate() {
        let needed = count / classes + usize::from(class < count % classes);
        if members.len() < needed {
            return Err(PartitionError::TooFewOfClass { class, needed, found: members.len() });
        }
        shuffle(&mut members, &mut seed.derive_numbered("class", class as u64).rng());
        drawn.extend_from_slice(&members[..needed]);
    }
    drawn.sort_unstable();
    Ok(drawn)
}

#[cfg(test)]
mod tests {
    use super::super::labels::{histogram, in_turn};
    use super::*;

    #[test]
    fn classes_are_drawn_alike() {
        let labels = in_turn(100, 10);
        let draw = |count, number| balanced(&labels, 10, count, &Seed::root(number)).expect("enough of each");
        let drawn = draw(43, 1);
        assert_eq!(histogram(&labels, 10, &drawn), [5, 5, 5, 4, 4, 4, 4, 4, 4, 4]);
        assert!(drawn.is_sorted() && drawn.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(draw(43, 1), drawn);
        assert_ne!(draw(43, 2), drawn);
        assert_eq!(draw(100, 1), (0..100).collect::<Vec<u32>>());
    }

    #[test]
    fn a_class_that_has_too_few_is_named() {
        let refused = |labels: &[u32], count| balanced(labels, 3, count, &Seed::root(1));
        let few = PartitionError::TooFewOfClass { class: 2, needed: 1, found: 0 };
        assert_eq!(refused(&[0, 1, 0, 1], 3), Err(few));
        assert_eq!(refused(&[0, 3], 2), Err(PartitionError::Label { row: 1, label: 3, classes: 3 }));
    }
}
