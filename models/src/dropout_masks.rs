//! Dropout masks, derived from a seed.

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

/// Domain separation from all other uses of SHA-256 over a seed.
const DOMAIN: &[u8] = b"dropout masks v1";

/// The source of the masks of one training pass: a seed, one for each client and round, and the number of the pass. Each layer
/// has its own generator,
///
/// ```text
/// ChaCha8( SHA-256( "dropout masks v1" || seed || pass || layer ) )
/// ```
///
/// with the pass as eight little-endian bytes and the layer's label, such as `extractor.dropout-3`. Each value of a batch takes
/// one 32-bit output, in order, so that masks depend neither on threads, nor on other layers, nor on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Masks {
    seed: [u8; 32],
    pass: u64,
}

impl Masks {
    /// The masks of a pass.
    #[must_use]
    pub const fn new(seed: [u8; 32], pass: u64) -> Self {
        Self { seed, pass }
    }

    /// An endless sequence of flags, one for each value of a layer: whether it is kept. The probability is `1 - rate`, rounded
    /// to 24 bits.
    pub(crate) fn kept(&self, layer: &str, rate: f64) -> impl Iterator<Item = bool> + use<> {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        hash.update(self.seed);
        hash.update(self.pass.to_le_bytes());
        hash.update(layer);
        let mut rng = ChaCha8Rng::from_seed(hash.finalize().into());
        let dropped = (rate * f64::from(1 << 24)).round() as u32;
        std::iter::repeat_with(move || rng.next_u32() >> 8 >= dropped)
    }
}

/// The factor of kept values, which preserves the expected sum.
pub(crate) fn scale(rate: f64) -> f32 {
    (1.0 / (1.0 - rate)) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(seed: u8, pass: u64, layer: &str, rate: f64) -> Vec<bool> {
        Masks::new([seed; 32], pass).kept(layer, rate).take(64).collect()
    }

    #[test]
    fn golden_mask() {
        let mask = first(7, 3, "head.dropout-1", 0.5);
        let bits = mask.iter().fold(0u64, |bits, kept| bits << 1 | u64::from(*kept));
        assert_eq!(bits, GOLDEN, "{bits:#x}: the masks of earlier runs were others");
    }

    const GOLDEN: u64 = 0x9d34_849f_5214_8fa6;

    #[test]
    fn every_part_of_the_source_counts_and_nothing_else() {
        let mask = first(1, 2, "a", 0.5);
        assert_eq!(mask, first(1, 2, "a", 0.5));
        for other in [first(2, 2, "a", 0.5), first(1, 3, "a", 0.5), first(1, 2, "b", 0.5)] {
            assert_ne!(mask, other);
        }
        // More is dropped at a higher rate, and nothing that a lower one drops is kept.
        let more = first(1, 2, "a", 0.8);
        assert!(mask.iter().zip(&more).all(|(kept, more)| *kept || !more) && mask != more);
    }

    #[test]
    fn as_many_are_kept_as_the_rate_says() {
        for rate in [0.0, 0.1, 0.5, 0.9] {
            let n = 200_000;
            let kept = Masks::new([3; 32], 0).kept("l", rate).take(n).filter(|kept| *kept).count() as f64;
            let deviation = (n as f64 * rate * (1.0 - rate)).sqrt();
            assert!((kept - n as f64 * (1.0 - rate)).abs() <= 5.0 * deviation, "{rate}: {kept}");
            assert!((f64::from(scale(rate)) * (1.0 - rate) - 1.0).abs() < 1e-6);
        }
    }
}
