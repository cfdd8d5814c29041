//! Coins of exact probabilities.
//!
//! Canonne, Kamath, Steinke: *The Discrete Gaussian for Differential Privacy*, NeurIPS 2020 (arXiv 2004.00010), algorithm 1. A
//! probability that a floating-point number only comes close to would give away more than the account says (Mironov, *On
//! Significance of the Least Significant Bits for Differential Privacy*, CCS 2012), so that every comparison here is one of whole
//! numbers. Floating-point numbers only decide what is far from undecided.

use rand::Rng;

/// A fraction from 0 to 1, or of any size for [`exp_minus`]. The denominator is below `2^126`, so that doubling does not overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ratio {
    pub(super) numerator: u128,
    pub(super) denominator: u128,
}

/// The greatest denominator.
const MAX_DENOMINATOR: u128 = 1 << 126;

/// How far the first 64 bits of a number and an approximation of it may be apart, relative to it, and be compared all the same: of the
/// few roundings that an approximation takes each is by less than `2^-52`.
const UNDECIDED: f64 = 1.0 / (1u64 << 48) as f64;

impl Ratio {
    /// # Panics
    /// If the denominator is 0 or too large.
    pub(super) fn new(numerator: u128, denominator: u128) -> Self {
        assert!(denominator > 0 && denominator <= MAX_DENOMINATOR, "callers stay far below");
        Self { numerator, denominator }
    }
}

/// True with this probability, which is at most 1.
pub(super) fn coin(ratio: Ratio, rng: &mut impl Rng) -> bool {
    let Ratio { numerator, denominator } = ratio;
    if numerator >= denominator {
        return true;
    }
    // A uniform number in [0, 1), of which these are the first bits, is below the fraction.
    let bits = rng.next_u64();
    let threshold = numerator as f64 / denominator as f64 * 2f64.powi(64);
    let found = bits as f64;
    let margin = threshold * UNDECIDED + 4096.0;
    if found < threshold - margin {
        return true;
    }
    if found > threshold + margin {
        return false;
    }
    is_below(bits, ratio, rng)
}

/// Whether a uniform number that begins with `bits` is below the fraction: bit by bit, with as many more as it takes.
fn is_below(bits: u64, ratio: Ratio, rng: &mut impl Rng) -> bool {
    let Ratio { numerator: mut rest, denominator } = ratio;
    let mut bits = bits;
    loop {
        for place in (0..64).rev() {
            rest *= 2;
            let expected = rest >= denominator;
            if expected {
                rest -= denominator;
            }
            match (bits >> place & 1 == 1, expected) {
                (false, true) => return true,
                (true, false) => return false,
                _ => {}
            }
        }
        bits = rng.next_u64();
    }
}

/// True with the probability `exp(-ratio)`.
///
/// For at most 1: of coins of the probabilities `ratio / 1`, `ratio / 2`, ... an even number is true before the first that is not,
/// with just this probability (von Neumann). More is a product.
pub(super) fn exp_minus(ratio: Ratio, rng: &mut impl Rng) -> bool {
    let Ratio { numerator, denominator } = ratio;
    let one = Ratio::new(1, 1);
    for _ in 0..numerator / denominator {
        if !small_exp_minus(one, rng) {
            return false;
        }
    }
    small_exp_minus(Ratio::new(numerator % denominator, denominator), rng)
}

fn small_exp_minus(ratio: Ratio, rng: &mut impl Rng) -> bool {
    let mut count = 1;
    while coin(Ratio::new(ratio.numerator, ratio.denominator * count), rng) {
        count += 1;
    }
    count % 2 == 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    #[test]
    fn coins_fall_as_often_as_they_should() {
        let mut rng = Seed::root(11).rng();
        for (numerator, denominator) in [(0, 7), (1, 7), (1, 2), (6, 7), (7, 7), (1, 1 << 100)] {
            let (ratio, tries) = (Ratio::new(numerator, denominator), 100_000);
            let found = (0..tries).filter(|_| coin(ratio, &mut rng)).count() as f64;
            let expected = numerator as f64 / denominator as f64 * f64::from(tries);
            let spread = (expected * (1.0 - expected / f64::from(tries))).max(0.0).sqrt();
            assert!((found - expected).abs() <= 4.5 * spread, "{ratio:?}: {found}, not {expected}");
        }
    }

    #[test]
    fn exponentials_fall_as_often_as_they_should() {
        let mut rng = Seed::root(12).rng();
        for (numerator, denominator) in [(0u32, 3u32), (1, 3), (1, 1), (5, 2), (4, 1)] {
            let (ratio, tries) = (Ratio::new(numerator.into(), denominator.into()), 100_000);
            let found = (0..tries).filter(|_| exp_minus(ratio, &mut rng)).count() as f64;
            let probability = (-f64::from(numerator) / f64::from(denominator)).exp();
            let expected = probability * f64::from(tries);
            let spread = (expected * (1.0 - probability)).sqrt();
            assert!((found - expected).abs() <= 4.5 * spread, "{ratio:?}: {found}, not {expected}");
        }
    }

    #[test]
    fn what_is_decided_bit_by_bit_is_what_numbers_say() {
        let mut rng = Seed::root(13).rng();
        for (numerator, denominator) in [(1u128, 3u128), (2, 3), (5, 8), ((1 << 120) - 1, 1 << 120)] {
            let threshold = (numerator as f64 / denominator as f64 * 2f64.powi(64)) as u64;
            let ratio = Ratio::new(numerator, denominator);
            assert!(is_below(threshold - 5000, ratio, &mut rng));
            if threshold < u64::MAX - 5000 {
                assert!(!is_below(threshold + 5000, ratio, &mut rng));
            }
        }
        // The first 64 bits of 1/4 are undecided, and the next draw decides: nothing is below 0.
        assert!(!is_below(1 << 62, Ratio::new(1, 4), &mut rng));
        assert!(is_below((1 << 62) - 1, Ratio::new(1, 4), &mut rng));
    }
}
