//! Masks: long sequences of whole numbers that follow from a seed, added modulo 2^64.
//!
//! A sum to which a mask was added says nothing to those who do not know its seed: the keystream of `ChaCha20` is as good as random, and
//! modulo 2^64 every value is then as likely as any other.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use rayon::prelude::*;

use crate::seed::Seed;

/// Values that are masked at once, by all masks in turn: they stay in the second-level cache.
const CHUNK: usize = 8192;

/// A mask, and whether it is added or taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask {
    /// What it follows from.
    pub seed: Seed,
    /// Whether it is added.
    pub add: bool,
}

impl Mask {
    /// The mask that takes this one away again.
    #[must_use]
    pub fn opposite(self) -> Self {
        Self { add: !self.add, ..self }
    }
}

/// Applies masks to tensors, which count in this order; on all threads, and to the same numbers on any number of them.
pub fn apply(masks: &[Mask], tensors: Vec<&mut [i64]>) {
    let chunks = tensors.into_iter().enumerate().flat_map(|(tensor, values)| {
        values.chunks_mut(CHUNK).enumerate().map(move |(chunk, values)| (tensor, chunk, values))
    });
    let chunks: Vec<_> = chunks.collect();
    chunks.into_par_iter().for_each_init(
        || vec![0_u8; CHUNK * 8],
        |bytes, (tensor, chunk, values)| {
            let bytes = &mut bytes[..values.len() * 8];
            for mask in masks {
                let mut rng = ChaCha20Rng::from_seed(*mask.seed.as_bytes());
                rng.set_stream(tensor as u64);
                // A word has 4 bytes.
                rng.set_word_pos(2 * (chunk * CHUNK) as u128);
                rng.fill_bytes(bytes);
                add(values, bytes, mask.add);
            }
        },
    );
}

/// Adds numbers as they stand in bytes, or takes them away.
fn add(values: &mut [i64], bytes: &[u8], add: bool) {
    for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(8)) {
        let number = i64::from_le_bytes(bytes.try_into().expect("chunks of eight bytes"));
        *value = if add { value.wrapping_add(number) } else { value.wrapping_sub(number) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(number: u64, add: bool) -> Mask {
        Mask { seed: Seed::root(number), add }
    }

    #[test]
    fn what_is_added_is_the_keystream_of_the_seed() {
        let (mut first, mut second) = (vec![5; CHUNK + 3], vec![-7; 4]);
        apply(&[mask(1, true)], vec![&mut first, &mut second]);
        let keystream = |stream| {
            let mut rng = ChaCha20Rng::from_seed(*Seed::root(1).as_bytes());
            rng.set_stream(stream);
            move || rng.next_u64().cast_signed()
        };
        let mut next = keystream(0);
        assert!(first.iter().all(|value| *value == next().wrapping_add(5)));
        let mut next = keystream(1);
        assert!(second.iter().all(|value| *value == next().wrapping_add(-7)));
    }

    #[test]
    fn a_mask_that_is_taken_away_again_leaves_nothing() {
        let values: Vec<i64> = (0..=3 * 8192).collect();
        let mut masked = values.clone();
        apply(&[mask(1, true), mask(2, false)], vec![&mut masked]);
        assert!(masked.iter().zip(&values).all(|(masked, value)| masked != value));
        for other in [mask(2, true), mask(1, false)] {
            apply(&[other], vec![&mut masked]);
        }
        assert_eq!(masked, values);
    }

    #[test]
    fn masked_bytes_are_uniform_for_any_numbers() {
        for value in [0, i64::MAX, -1] {
            let mut masked = vec![value; 1 << 16];
            apply(&[mask(7, true)], vec![&mut masked]);
            let mut counts = [0_f64; 256];
            masked.iter().flat_map(|value| value.to_le_bytes()).for_each(|byte| counts[byte as usize] += 1.0);
            let expected = (8 << 16) as f64 / 256.0;
            let chi: f64 = counts.iter().map(|count| (count - expected).powi(2) / expected).sum();
            // 255 degrees of freedom: mean 255, deviation 22.6.
            assert!((150.0..370.0).contains(&chi), "{value}: {chi}");
        }
    }
}
