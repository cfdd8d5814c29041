//! Training and test samples together, divided anew.

use shared::data::{DataError, Dataset, Split};
use shared::seed::{Seed, shuffle};

/// A split of both sets together, with this number of test samples, in an order of this seed.
///
/// # Errors
/// [`DataError`] if the sets do not fit each other, or nothing would be left to train on.
pub(super) fn divided(
    sets: [&Dataset; 2],
    tests: usize,
    seed: u64,
    split: Split,
) -> Result<Dataset, DataError> {
    let [train, test] = sets;
    let whole = train.joined(test)?;
    let mut order: Vec<usize> = (0..whole.len()).collect();
    shuffle(&mut order, &mut Seed::root(seed).derive("pool").rng());
    let (tests, training) = order.split_at(tests.min(order.len()));
    whole.subset(if split == Split::Train { training } else { tests })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_sample_is_in_one_of_both_parts() {
        let set = |from: u8, to: u8| {
            Dataset::new(vec![1, 1, 1], (from..to).collect(), (from..to).map(|sample| sample % 2), 2)
                .expect("one pixel each")
        };
        let (train, test) = (set(0, 50), set(50, 60));
        let part = |seed, split| divided([&train, &test], 20, seed, split).expect("it fits");
        let pixels = |set: &Dataset| -> Vec<u8> {
            let shared::data::Samples::Bytes(pixels) = set.samples() else { panic!("bytes") };
            pixels.clone()
        };
        let (training, tests) = (part(1, Split::Train), part(1, Split::Test));
        assert_eq!((training.len(), tests.len()), (40, 20));
        let mut all = [pixels(&training), pixels(&tests)].concat();
        all.sort_unstable();
        assert_eq!(all, (0..60).collect::<Vec<u8>>());
        assert_eq!(part(1, Split::Test), tests);
        assert_ne!(part(2, Split::Test), tests);
        assert!(
            pixels(&tests).iter().zip(tests.labels()).all(|(pixel, label)| u32::from(pixel % 2) == *label)
        );
        assert!(divided([&train, &test], 60, 1, Split::Train).is_err(), "nothing to train on");
    }
}
