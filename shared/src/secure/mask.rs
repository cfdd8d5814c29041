//! Masks: long sequences of whole numbers that follow from a seed, added modulo 2^64, or modulo 2^32.
//!
//! A sum to which a mask was added says nothing to those who do not know its seed: the keystream of `ChaCha20` is as good as random, and
//! modulo a power of two every value is then as likely as any other.

use models::params::IntegerFormat;
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

/// Applies masks to tensors, which count in this order, each modulo what its format holds; on all threads, and to the same numbers on
/// any number of them.
pub fn apply(masks: &[Mask], tensors: Vec<(IntegerFormat, &mut [i64])>) {
    let chunks = tensors.into_iter().enumerate().flat_map(|(tensor, (format, values))| {
        values.chunks_mut(CHUNK).enumerate().map(move |(chunk, values)| (tensor, chunk, format, values))
    });
    let chunks: Vec<_> = chunks.collect();
    chunks.into_par_iter().for_each_init(
        || vec![0_u8; CHUNK * 8],
        |bytes, (tensor, chunk, format, values)| {
            let bytes = &mut bytes[..values.len() * format.bytes()];
            for mask in masks {
                let mut rng = ChaCha20Rng::from_seed(*mask.seed.as_bytes());
                rng.set_stream(tensor as u64);
                // In words of four bytes.
                rng.set_word_pos((chunk * CHUNK * format.bytes() / 4) as u128);
                rng.fill_bytes(bytes);
                match format {
                    IntegerFormat::I64 => add(values, bytes, i64::from_le_bytes, mask.add),
                    IntegerFormat::I32 => {
                        add(values, bytes, |word| i32::from_le_bytes(word).into(), mask.add);
                    }
                }
            }
            for value in values {
                *value = format.wrap(*value);
            }
        },
    );
}

/// Adds numbers as they stand in bytes, or takes them away.
fn add<const BYTES: usize>(values: &mut [i64], bytes: &[u8], number: impl Fn([u8; BYTES]) -> i64, add: bool) {
    let (numbers, _) = bytes.as_chunks::<BYTES>();
    for (value, bytes) in values.iter_mut().zip(numbers) {
        let number = number(*bytes);
        *value = if add { value.wrapping_add(number) } else { value.wrapping_sub(number) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [IntegerFormat; 2] = [IntegerFormat::I64, IntegerFormat::I32];

    fn mask(number: u64, add: bool) -> Mask {
        Mask { seed: Seed::root(number), add }
    }

    fn masked(format: IntegerFormat, masks: &[Mask], values: &mut [i64]) {
        apply(masks, vec![(format, values)]);
    }

    #[test]
    fn what_is_added_is_the_keystream_of_the_seed() {
        let (mut first, mut second) = (vec![5; CHUNK + 3], vec![-7; 4]);
        apply(&[mask(1, true)], vec![(IntegerFormat::I64, &mut first), (IntegerFormat::I64, &mut second)]);
        let keystream = |stream| {
            let mut rng = ChaCha20Rng::from_seed(*Seed::root(1).as_bytes());
            rng.set_stream(stream);
            move || rng.next_u64().cast_signed()
        };
        let mut next = keystream(0);
        assert!(first.iter().all(|value| *value == next().wrapping_add(5)));
        let mut next = keystream(1);
        assert!(second.iter().all(|value| *value == next().wrapping_add(-7)));
        let mut narrow = vec![5; CHUNK + 3];
        masked(IntegerFormat::I32, &[mask(1, true)], &mut narrow);
        let mut rng = ChaCha20Rng::from_seed(*Seed::root(1).as_bytes());
        let mut next = || i64::from(rng.next_u32().cast_signed().wrapping_add(5));
        assert!(narrow.iter().all(|value| *value == next()));
    }

    #[test]
    fn a_mask_that_is_taken_away_again_leaves_nothing() {
        let values: Vec<i64> = (-5..=3 * 8192).collect();
        for format in FORMATS {
            let mut hidden = values.clone();
            masked(format, &[mask(1, true), mask(2, false)], &mut hidden);
            let equal = hidden.iter().zip(&values).filter(|(hidden, value)| hidden == value).count();
            assert!(equal < 2, "{format}: {equal}");
            for other in [mask(2, true), mask(1, true).opposite()] {
                masked(format, &[other], &mut hidden);
            }
            assert_eq!(hidden, values, "{format}");
        }
    }

    #[test]
    fn masked_bytes_are_uniform_for_any_numbers() {
        for (value, format) in [0, i64::MAX, -1].into_iter().flat_map(|value| FORMATS.map(|of| (value, of))) {
            let mut hidden = vec![value; 1 << 16];
            masked(format, &[mask(7, true)], &mut hidden);
            let mut counts = [0_f64; 256];
            let bytes = hidden.iter().map(|value| value.to_le_bytes());
            bytes.flat_map(|bytes| bytes.into_iter().take(format.bytes())).for_each(|byte| {
                counts[byte as usize] += 1.0;
            });
            let expected = (format.bytes() << 16) as f64 / 256.0;
            let chi: f64 = counts.iter().map(|count| (count - expected).powi(2) / expected).sum();
            // 255 degrees of freedom: mean 255, deviation 22.6.
            assert!((150.0..370.0).contains(&chi), "{value} {format}: {chi}");
        }
    }
}
