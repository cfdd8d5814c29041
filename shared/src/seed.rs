//! Seeds: all randomness of a run, derived from its one `u64`.
//!
//! A [`Seed`] is 256 bits. Children are derived by label, so that the randomness of one purpose (a client's shuffles, a
//! model's initialisation, the sampling of a cohort) depends only on the run's seed and the path of labels: neither on how
//! much randomness another purpose consumed, nor on the order of threads.
//!
//! ```text
//! root(n)                 = SHA-256( "federation seed v1" || n )
//! derive(label)           = SHA-256( parent || 0 || len(label) || label )
//! derive_numbered(label,n)= SHA-256( parent || 1 || len(label) || label || n )
//! derive_bytes(label,b)   = SHA-256( parent || 2 || len(label) || label || b )
//! ```
//!
//! Numbers and lengths are 8 bytes, little-endian. The byte after the parent distinguishes the three kinds, and the length
//! distinguishes `("ab", "c")` from `("a", "bc")`.
//!
//! The distributions below are implemented here, because those of `rand` may change between versions, and an upgrade of a
//! dependency must not change a run. Golden tests fail if a draw changes.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};
use sha2::{Digest, Sha256};

/// Domain separation from all other uses of SHA-256 over a number.
const ROOT_DOMAIN: &[u8] = b"federation seed v1";

/// The kind of suffix that a derivation appends to the label.
#[derive(Clone, Copy)]
enum Suffix {
    None = 0,
    Number = 1,
    Bytes = 2,
}

/// The seed of one purpose of a run: 256 bits, to create a generator from or to derive seeds of narrower purposes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seed([u8; 32]);

impl Seed {
    /// The seed of a whole run, from the number in its configuration.
    #[must_use]
    pub fn root(number: u64) -> Self {
        let mut hash = Sha256::new();
        hash.update(ROOT_DOMAIN);
        hash.update(number.to_le_bytes());
        Self(hash.finalize().into())
    }

    /// The seed for one purpose.
    #[must_use]
    pub fn derive(&self, label: &str) -> Self {
        self.child(label, Suffix::None, &[])
    }

    /// The seed for one of many purposes that share a label: a round, a sample, a virtual client.
    #[must_use]
    pub fn derive_numbered(&self, label: &str, number: u64) -> Self {
        self.child(label, Suffix::Number, &number.to_le_bytes())
    }

    /// The seed for one of many purposes that share a label and differ in their bytes: a client's id, a tensor's name.
    #[must_use]
    pub fn derive_bytes(&self, label: &str, bytes: &[u8]) -> Self {
        self.child(label, Suffix::Bytes, bytes)
    }

    /// A generator with this seed, at the start of its stream.
    #[must_use]
    pub fn rng(&self) -> ChaCha8Rng {
        ChaCha8Rng::from_seed(self.0)
    }

    /// The raw 256 bits.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn child(&self, label: &str, kind: Suffix, suffix: &[u8]) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update([kind as u8]);
        hash.update((label.len() as u64).to_le_bytes());
        hash.update(label.as_bytes());
        hash.update(suffix);
        Self(hash.finalize().into())
    }
}

/// An unbiased integer in `0..bound`.
///
/// Lemire, "Fast random integer generation in an interval" (ACM TOMACS 2019, algorithm 5): the high half of
/// `x * bound` for a 64-bit draw `x`, which is repeated if the low half is below `2^64 mod bound`, because those values would
/// make some results more likely than others.
///
/// # Panics
/// If `bound` is zero.
pub fn below<R: Rng + ?Sized>(bound: usize, rng: &mut R) -> usize {
    assert!(bound > 0, "a draw needs at least one value to choose from");
    let bound = bound as u64;
    let biased = bound.wrapping_neg() % bound;
    loop {
        let product = u128::from(rng.next_u64()) * u128::from(bound);
        if product as u64 >= biased {
            return (product >> 64) as usize;
        }
    }
}

/// Shuffles in place, every order equally likely: Fisher-Yates from the last item down, with [`below`].
pub fn shuffle<T, R: Rng + ?Sized>(items: &mut [T], rng: &mut R) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(last + 1, rng));
    }
}

/// `count` distinct numbers out of `0..population`, every ordered selection equally likely, in the order drawn.
///
/// The first `count` steps of a Fisher-Yates shuffle: time and memory proportional to `population`.
///
/// # Panics
/// If `count` exceeds `population`.
pub fn sample_without_replacement<R: Rng + ?Sized>(
    population: usize,
    count: usize,
    rng: &mut R,
) -> Vec<usize> {
    assert!(count <= population, "{count} distinct numbers cannot be drawn from {population}");
    let mut numbers: Vec<usize> = (0..population).collect();
    for drawn in 0..count {
        numbers.swap(drawn, drawn + below(population - drawn, rng));
    }
    numbers.truncate(count);
    numbers
}

/// Uniform in `[0, 1)`: the top 24 bits of a 32-bit draw, times 2^-24.
pub fn uniform_f32<R: Rng + ?Sized>(rng: &mut R) -> f32 {
    (rng.next_u32() >> 8) as f32 * (1.0 / (1_u32 << 24) as f32)
}

/// Uniform in `[0, 1)`: the top 53 bits of a 64-bit draw, times 2^-53.
pub fn uniform_f64<R: Rng + ?Sized>(rng: &mut R) -> f64 {
    (rng.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
}

/// Normal with mean 0 and variance 1 (the ziggurat of `rand_distr`).
pub fn standard_normal<R: Rng + ?Sized>(rng: &mut R) -> f64 {
    StandardNormal.sample(rng)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn derivation_is_the_documented_hash() {
        let root = Seed::root(7);
        let mut message = b"federation seed v1".to_vec();
        message.extend(7_u64.to_le_bytes());
        assert_eq!(root.0, <[u8; 32]>::from(Sha256::digest(&message)));

        let mut message = root.0.to_vec();
        message.push(1);
        message.extend(6_u64.to_le_bytes());
        message.extend(b"client");
        message.extend(3_u64.to_le_bytes());
        assert_eq!(root.derive_numbered("client", 3).0, <[u8; 32]>::from(Sha256::digest(&message)));
    }

    #[test]
    fn golden_seeds() {
        let root = Seed::root(42);
        let found = [
            root,
            root.derive("partition"),
            root.derive_numbered("client", 1),
            root.derive_bytes("tensor", b"head.weight"),
        ]
        .map(|Seed([a, b, c, d, ..])| u32::from_be_bytes([a, b, c, d]));
        // Computed with Python's hashlib from the formulas at the top of this file.
        assert_eq!(found, [0x39c4_893a, 0x6bc1_36b7, 0x3fb0_a67b, 0xd765_0c29]);
    }

    #[test]
    fn golden_draws() {
        // All but the normal draws were computed by an independent ChaCha8 and the formulas above, in Python.
        let mut rng = Seed::root(42).rng();
        assert_eq!([rng.next_u64(), rng.next_u64()], [0x3527_066f_b3a8_d089, 0x7462_a462_e52b_9f06]);
        assert_eq!([(); 8].map(|()| below(10, &mut rng)), [4, 3, 0, 4, 3, 0, 5, 8]);
        let mut items: [u8; 10] = std::array::from_fn(|item| item as u8);
        shuffle(&mut items, &mut rng);
        assert_eq!(items, [9, 7, 4, 2, 1, 8, 0, 6, 5, 3]);
        assert_eq!(sample_without_replacement(100, 5, &mut rng), [34, 83, 33, 23, 1]);
        assert_eq!(uniform_f32(&mut rng).to_bits(), 0x3f79_1b2c);
        assert_eq!(uniform_f64(&mut rng).to_bits(), 0x3fca_5292_035f_5420);
        let normal = [(); 2].map(|()| standard_normal(&mut rng).to_bits());
        assert_eq!(normal, [0x3fd0_feee_f807_5d92, 0x3ff7_524d_5a2e_0f76]);
    }

    #[test]
    fn kinds_labels_and_parents_are_kept_apart() {
        let root = Seed::root(0);
        let eight_zeros = [0_u8; 8];
        let seeds = [
            root,
            Seed::root(1),
            root.derive(""),
            root.derive("a"),
            root.derive("a").derive("b"),
            root.derive("ab"),
            root.derive_numbered("a", 0),
            root.derive_numbered("a", 1),
            root.derive_bytes("a", &[]),
            root.derive_bytes("a", &eight_zeros),
            root.derive_bytes("ab", b"c"),
            root.derive_bytes("a", b"bc"),
        ];
        for (i, a) in seeds.iter().enumerate() {
            for (j, b) in seeds.iter().enumerate() {
                assert_eq!(a == b, i == j, "seeds {i} and {j}");
            }
        }
    }

    /// A generator that returns a prepared list, to reach the rejection branch.
    struct Scripted(Vec<u64>);

    impl rand::TryRng for Scripted {
        type Error = std::convert::Infallible;
        fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
            Ok(self.0.remove(0) as u32)
        }
        fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
            Ok(self.0.remove(0))
        }
        fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Self::Error> {
            Ok(())
        }
    }

    #[test]
    fn biased_draws_are_rejected() {
        // 2^64 mod 10 = 6: a draw of 0 has low half 0 < 6 and must be drawn again; 1 has low half 10.
        let mut rng = Scripted(vec![0, 1, u64::MAX]);
        assert_eq!(below(10, &mut rng), 0);
        assert_eq!(rng.0, [u64::MAX]);
        assert_eq!(below(10, &mut rng), 9);
    }

    #[test]
    fn bounded_draws_are_even() {
        let mut rng = Seed::root(5).rng();
        let mut counts = [0_u32; 7];
        for _ in 0..70_000 {
            counts[below(7, &mut rng)] += 1;
        }
        // Standard deviation of each count is about 93.
        assert!(counts.iter().all(|&count| count.abs_diff(10_000) < 500), "{counts:?}");
    }

    #[test]
    fn all_orders_of_three_are_equally_likely() {
        let mut rng = Seed::root(6).rng();
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..60_000 {
            let mut items = [0, 1, 2];
            shuffle(&mut items, &mut rng);
            *counts.entry(items).or_insert(0_u32) += 1;
        }
        assert_eq!(counts.len(), 6);
        assert!(counts.values().all(|&count| count.abs_diff(10_000) < 500), "{counts:?}");
    }

    #[test]
    fn uniform_and_normal_moments() {
        let mut rng = Seed::root(8).rng();
        let n = 100_000;
        let mean = |draw: &mut dyn FnMut() -> f64| (0..n).map(|_| draw()).sum::<f64>() / f64::from(n);
        assert!((mean(&mut || f64::from(uniform_f32(&mut rng))) - 0.5).abs() < 0.005);
        assert!((mean(&mut || uniform_f64(&mut rng)) - 0.5).abs() < 0.005);
        assert!(mean(&mut || standard_normal(&mut rng)).abs() < 0.02);
        assert!((mean(&mut || standard_normal(&mut rng).powi(2)) - 1.0).abs() < 0.03);
    }

    #[test]
    fn uniform_draws_stay_below_one() {
        assert!(uniform_f32(&mut Scripted(vec![u64::MAX])) < 1.0);
        assert!(uniform_f64(&mut Scripted(vec![u64::MAX])) < 1.0);
        assert!(uniform_f64(&mut Scripted(vec![0])).abs() < f64::MIN_POSITIVE);
    }

    proptest! {
        #[test]
        fn samples_are_distinct_and_in_range(seed: u64, population in 0_usize..200, part in 0.0..=1.0_f64) {
            let count = (population as f64 * part) as usize;
            let sample = sample_without_replacement(population, count, &mut Seed::root(seed).rng());
            prop_assert_eq!(sample.len(), count);
            let distinct: std::collections::BTreeSet<_> = sample.iter().collect();
            prop_assert_eq!(distinct.len(), count);
            prop_assert!(sample.iter().all(|&number| number < population));
        }

        #[test]
        fn a_shuffle_is_a_permutation(seed: u64, length in 0_usize..200) {
            let mut items: Vec<usize> = (0..length).collect();
            shuffle(&mut items, &mut Seed::root(seed).rng());
            items.sort_unstable();
            prop_assert_eq!(items, (0..length).collect::<Vec<_>>());
        }
    }
}
