//! Streaming data: each round a client trains on one slice of its share.
//!
//! Round `t`, counted from 1, uses slice `(t - 1) mod S` of `S` (Wang et al. 2022, "streaming"). The slices of a share
//! have equal sizes, give or take one, and every sample is in exactly one of them.

use super::{part, shuffled};
use crate::seed::Seed;

/// The positions, ascending, that a client with `samples` samples trains on in `round`, of `slices` slices.
///
/// `seed` is the client's seed in this run, the same in every round: it determines which samples share a slice. A client
/// with fewer samples than slices has slices of one sample, and repeats them sooner.
///
/// # Panics
/// If `slices` or `round` is zero: slices and rounds are counted from 1.
#[must_use]
pub fn slice(samples: usize, slices: u32, round: u32, seed: &Seed) -> Vec<u32> {
    assert!(slices > 0 && round > 0, "slices and rounds are counted from 1");
    let parts = (slices as usize).min(samples).max(1);
    let number = (round as usize - 1) % parts;
    let order = shuffled(samples, &seed.derive("stream"));
    let mut slice = order[part(samples, parts, number)].to_vec();
    slice.sort_unstable();
    slice
}

/// The number of samples of [`slice()`]. Accepts any numbers, since they may come from a peer.
#[must_use]
pub fn length(samples: u64, slices: u32, round: u32) -> u64 {
    let parts = u64::from(slices).min(samples).max(1);
    let part = (u64::from(round).max(1) - 1) % parts;
    let begin = |part: u64| (u128::from(samples) * u128::from(part) / u128::from(parts)) as u64;
    begin(part + 1) - begin(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_schedule_is_round_modulo_slices() {
        let seed = Seed::root(41);
        let of = |round| slice(100, 10, round, &seed);
        assert_eq!((1..=25).map(|round| of(round).len()).collect::<Vec<_>>(), [10; 25]);
        assert_eq!((of(1), of(7)), (of(11), of(27)));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn a_client_with_few_samples_always_has_one() {
        let seed = Seed::root(42);
        let used: Vec<Vec<u32>> = (1..=6).map(|round| slice(3, 10, round, &seed)).collect();
        assert!(used.iter().all(|slice| slice.len() == 1) && used[..3] == used[3..], "{used:?}");
        assert!(slice(0, 10, 4, &seed).is_empty());
    }

    proptest! {
        #[test]
        fn one_pass_uses_every_sample_once(samples in 1_usize..300, slices in 1_u32..20, number: u64) {
            let seed = Seed::root(number);
            let passes = slices.min(samples as u32);
            let mut used: Vec<u32> = (1..=passes).flat_map(|round| slice(samples, slices, round, &seed)).collect();
            used.sort_unstable();
            prop_assert_eq!(used, (0..samples as u32).collect::<Vec<_>>());
        }

        #[test]
        fn the_length_is_known_without_the_slice(
            samples in 0_usize..300,
            slices in 1_u32..20,
            round in 1_u32..50,
        ) {
            let slice = slice(samples, slices, round, &Seed::root(1));
            prop_assert_eq!(length(samples as u64, slices, round), slice.len() as u64);
        }
    }
}
