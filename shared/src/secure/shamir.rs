//! Sharing of a secret: any `threshold` of the shares give it, and fewer say nothing about it.
//!
//! Shamir: *How to Share a Secret*, Communications of the ACM 22 (1979). Every byte of the secret is the value at 0 of a random
//! polynomial over GF(2^8), the field of AES (x^8 + x^4 + x^3 + x + 1); a share is the values at one other place.
//!
//! Written here since the crates that have it are unmaintained with a known flaw, or bring dozens of others.

use rand::Rng;
use serde::{Deserialize, Serialize};

/// The most shares of one secret: places other than 0.
pub const MAX_SHARES: usize = 255;

/// A share of a secret of 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The place of the polynomials, from 1.
    pub at: u8,
    /// Their values there.
    pub values: [u8; 32],
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Share({}, ..)", self.at)
    }
}

/// `holders` shares of a secret, of which `threshold` give it.
///
/// # Panics
/// If the threshold is 0 or above the number of holders, or these are more than [`MAX_SHARES`].
pub fn split<R: Rng + ?Sized>(
    secret: &[u8; 32],
    threshold: usize,
    holders: usize,
    rng: &mut R,
) -> Vec<Share> {
    assert!((1..=holders).contains(&threshold) && holders <= MAX_SHARES, "{threshold} of {holders} shares");
    let mut coefficients = vec![*secret; threshold];
    coefficients[1..].iter_mut().for_each(|coefficient| rng.fill_bytes(coefficient));
    let share = |at: u8| {
        let mut values = [0; 32];
        for coefficient in coefficients.iter().rev() {
            for (value, &coefficient) in values.iter_mut().zip(coefficient) {
                *value = product(*value, at) ^ coefficient;
            }
        }
        Share { at, values }
    };
    (1..=holders as u8).map(share).collect()
}

/// The secret of which these are as many shares as its threshold, or more; anything else if they are fewer, or one is wrong. `None` if
/// there are none, or two are of one place, or one is of place 0.
#[must_use]
pub fn combine(shares: &[Share]) -> Option<[u8; 32]> {
    let mut secret = [0; 32];
    for (index, share) in shares.iter().enumerate() {
        // The value at 0 of the polynomial that is 1 here and 0 at the other places.
        let mut weight = 1;
        for (other, at) in shares.iter().map(|share| share.at).enumerate() {
            if other != index {
                weight = product(weight, product(at, inverse(at ^ share.at)?));
            }
        }
        for (secret, &value) in secret.iter_mut().zip(&share.values) {
            *secret ^= product(weight, value);
        }
    }
    (!shares.is_empty() && shares.iter().all(|share| share.at != 0)).then_some(secret)
}

/// The product in the field, in a time that depends on neither factor.
const fn product(a: u8, b: u8) -> u8 {
    let (mut a, mut product, mut bit) = (a, 0, 0);
    while bit < 8 {
        product ^= a & 0_u8.wrapping_sub(b >> bit & 1);
        a = a << 1 ^ 0x1b & 0_u8.wrapping_sub(a >> 7);
        bit += 1;
    }
    product
}

/// The inverse in the field; `None` of 0. Places are no secrets, so that a table serves.
fn inverse(a: u8) -> Option<u8> {
    (a != 0).then_some(INVERSES[a as usize])
}

/// a^254 of every a.
const INVERSES: [u8; 256] = {
    let mut inverses = [0; 256];
    let mut a = 1;
    while a < 256 {
        let (mut power, mut exponent) = (1, 0);
        while exponent < 254 {
            power = product(power, a as u8);
            exponent += 1;
        }
        inverses[a] = power;
        a += 1;
    }
    inverses
};

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::seed::Seed;

    #[test]
    fn the_field_is_that_of_aes() {
        // FIPS 197, sections 4.2 and 4.2.1.
        assert_eq!(product(0x57, 0x83), 0xc1);
        assert_eq!(product(0x57, 0x13), 0xfe);
        assert_eq!(inverse(0x53), Some(0xca));
        assert_eq!(inverse(0), None);
        assert!((1..=255).all(|a| product(a, inverse(a).expect("not 0")) == 1));
    }

    #[test]
    fn shares_are_the_values_of_the_polynomial() {
        /// Gives 2 for every byte.
        struct Twos;
        impl rand::TryRng for Twos {
            type Error = std::convert::Infallible;
            fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
                Ok(0x0202_0202)
            }
            fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
                Ok(0x0202_0202_0202_0202)
            }
            fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
                bytes.fill(2);
                Ok(())
            }
        }
        // 7 + 2 x + 2 x^2 at 1, 2 and 3: 7 ^ 2 ^ 2, 7 ^ 4 ^ 8, 7 ^ 6 ^ 10.
        let shares = split(&[7; 32], 3, 3, &mut Twos);
        assert_eq!(shares.iter().map(|share| share.values[9]).collect::<Vec<_>>(), [7, 11, 11]);
    }

    #[test]
    fn one_share_too_few_is_any_secret() {
        // Any secret is possible: there is a last share that gives it: the others say nothing.
        let shares = split(&[42; 32], 3, 3, &mut Seed::root(1).rng());
        let mut found = std::collections::BTreeSet::new();
        for last in 0..=255 {
            let guessed = Share { at: 3, values: [last; 32] };
            found.insert(combine(&[shares[0], shares[1], guessed]).expect("three places")[0]);
        }
        assert_eq!(found.len(), 256);
    }

    #[test]
    fn what_is_no_set_of_shares_gives_nothing() {
        let shares = split(&[1; 32], 2, 3, &mut Seed::root(1).rng());
        assert_eq!(combine(&[]), None);
        assert_eq!(combine(&[shares[0], shares[0]]), None);
        assert_eq!(combine(&[Share { at: 0, values: [3; 32] }]), None);
        assert_eq!(format!("{:?}", shares[1]), "Share(2, ..)");
    }

    proptest! {
        #[test]
        fn any_threshold_of_the_shares_gives_the_secret(
            secret: [u8; 32],
            seed: u64,
            holders in 1_usize..40,
            part in 0.0..1.0_f64,
        ) {
            let threshold = 1 + (part * (holders - 1) as f64) as usize;
            let mut rng = Seed::root(seed).rng();
            let mut shares = split(&secret, threshold, holders, &mut rng);
            crate::seed::shuffle(&mut shares, &mut rng);
            prop_assert_eq!(combine(&shares[..threshold]), Some(secret));
            prop_assert_eq!(combine(&shares), Some(secret));
            if threshold > 1 {
                prop_assert_ne!(combine(&shares[1..threshold]), Some(secret));
            }
        }
    }
}
