//! The Poisson distribution of a large whole rate, by a table of its cumulative probabilities.
//!
//! All values of an update have noise of one rate, so that a table of the distribution pays. It is computed with whole numbers alone:
//! probabilities relative to the greatest one, from there outwards, `p(k + 1) = p(k) rate / (k + 1)`, in 224 bits. A draw compares random
//! bits with their running sums, 64 bits at first and 64 more where these are equal.
//!
//! What is drawn differs from the distribution by less than `2^-100` in total variation: by the tails beyond the table,
//! whose terms are below `2^-140` of the greatest, by roundings down in its last bit, and by the sums' bits beyond 128.

use std::sync::{Arc, Mutex, PoisonError};

use rand::Rng;

/// The greatest rate: the table of it takes 15 MB, and four times that while it is made.
pub(super) const MAX_RATE: u64 = 1 << 30;

/// A whole number of 256 bits, the lowest first.
type Wide = [u64; 4];

/// Bits of the greatest term.
const TERM_BITS: u32 = 224;
/// Bits of the smallest term that is in the table.
const LEAST_BITS: u32 = 84;
/// Bits of the random number by which the first threshold is looked up.
const GUIDE_BITS: u32 = 14;

/// The distribution of one rate.
#[derive(Clone, Debug)]
pub(super) struct Poisson {
    /// The smallest number in the table.
    first: u64,
    /// The running sums of the probabilities, as numbers of 128 bits, from the smallest number on: the upper half and the lower half. A
    /// number is drawn if random bits are below its sum and not below the one before.
    upper: Vec<u64>,
    lower: Vec<u64>,
    /// For each value of the upper random bits, the first number that they may mean.
    guide: Vec<u32>,
}

/// The distribution that was used last: all updates of a run have one rate.
static LAST: Mutex<Option<(u64, Arc<Poisson>)>> = Mutex::new(None);

impl Poisson {
    /// The distribution of this rate, from where it was used last if it is the same.
    ///
    /// # Panics
    /// If the rate is 0 or beyond [`MAX_RATE`].
    pub(super) fn shared(rate: u64) -> Arc<Self> {
        // It is whole also where another thread has panicked.
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, poisson)) = last.as_ref().filter(|(of, _)| *of == rate) {
            return poisson.clone();
        }
        let poisson = Arc::new(Self::new(rate));
        *last = Some((rate, poisson.clone()));
        poisson
    }

    fn new(rate: u64) -> Self {
        assert!((1..=MAX_RATE).contains(&rate), "the scale of a sum is chosen for its noise");
        let mut most = [0; 4];
        most[TERM_BITS as usize / 64] = 1 << (TERM_BITS % 64);
        let is_there = |term: &Wide| bits(term) >= LEAST_BITS;
        let below = std::iter::successors(Some((rate, most)), |&(number, term)| {
            Some((number.checked_sub(1)?, times(term, number, rate)))
        });
        let below: Vec<Wide> = below.skip(1).map(|(_, term)| term).take_while(is_there).collect();
        let above = std::iter::successors(Some((rate, most)), |&(number, term)| {
            Some((number + 1, times(term, rate, number + 1)))
        });
        let above = above.map(|(_, term)| term).take_while(is_there);
        let first = rate - below.len() as u64;
        let mut sum = [0; 4];
        let sums: Vec<Wide> = below
            .into_iter()
            .rev()
            .chain(above)
            .map(|term| {
                add(&mut sum, term);
                sum
            })
            .collect();
        // Now the sum of all is known: its highest bit is to be the highest of 128.
        let shift = bits(&sum) - 128;
        let sums = sums.iter().map(|sum| shifted(sum, shift));
        let (upper, lower): (Vec<u64>, Vec<u64>) = sums.map(|sum| ((sum >> 64) as u64, sum as u64)).unzip();
        let mut at = 0;
        let guide = (0..1_u64 << GUIDE_BITS).map(|part| {
            let least = part << (64 - GUIDE_BITS);
            while at + 1 < upper.len() && upper[at] < least {
                at += 1;
            }
            at as u32
        });
        Self { first, guide: guide.collect(), upper, lower }
    }

    /// One draw.
    #[inline]
    pub(super) fn draw(&self, rng: &mut impl Rng) -> u64 {
        loop {
            let random = rng.next_u64();
            let from = self.guide[(random >> (64 - GUIDE_BITS)) as usize] as usize;
            let candidates = &self.upper[from..];
            // Close at hand as a rule, since the guide points to it.
            let near = candidates.iter().take(8).position(|sum| random <= *sum);
            let mut at = from + near.unwrap_or_else(|| candidates.partition_point(|sum| *sum < random));
            if self.upper.get(at) == Some(&random) {
                let random_lower = rng.next_u64();
                while self.upper.get(at) == Some(&random) && random_lower >= self.lower[at] {
                    at += 1;
                }
            }
            // Beyond the sum of all it is drawn again.
            if at < self.upper.len() {
                return self.first + at as u64;
            }
        }
    }
}

/// `term factor / divisor`, rounded down. It must fit.
fn times(term: Wide, factor: u64, divisor: u64) -> Wide {
    let mut carry = 0_u128;
    let mut product = [0_u64; 5];
    for (into, limb) in product.iter_mut().zip(term.into_iter().chain([0])) {
        let whole = u128::from(limb) * u128::from(factor) + carry;
        *into = whole as u64;
        carry = whole >> 64;
    }
    let mut rest = 0_u128;
    for limb in product.iter_mut().rev() {
        let whole = rest << 64 | u128::from(*limb);
        *limb = (whole / u128::from(divisor)) as u64;
        rest = whole % u128::from(divisor);
    }
    debug_assert_eq!(product[4], 0, "terms grow towards the greatest one alone");
    [product[0], product[1], product[2], product[3]]
}

fn add(sum: &mut Wide, term: Wide) {
    let mut carry = false;
    for (into, limb) in sum.iter_mut().zip(term) {
        let (partial, first) = into.overflowing_add(limb);
        let (whole, second) = partial.overflowing_add(u64::from(carry));
        (*into, carry) = (whole, first | second);
    }
    debug_assert!(!carry, "2^224 times the number of terms is below 2^256");
}

/// The bits up to the highest that is set.
fn bits(number: &Wide) -> u32 {
    let highest = number.iter().rposition(|limb| *limb != 0);
    highest.map_or(0, |at| 64 * (at as u32 + 1) - number[at].leading_zeros())
}

/// The 128 bits above this number of them.
fn shifted(number: &Wide, shift: u32) -> u128 {
    let (skip, shift) = (shift as usize / 64, shift % 64);
    let limb = |at: usize| u128::from(number.get(skip + at).copied().unwrap_or(0));
    let low = limb(0) | limb(1) << 64;
    if shift == 0 { low } else { low >> shift | limb(2) << (128 - shift) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    /// The probability of every number in the table.
    fn probabilities(poisson: &Poisson) -> Vec<f64> {
        let sums: Vec<f64> = poisson
            .upper
            .iter()
            .zip(&poisson.lower)
            .map(|(upper, lower)| *upper as f64 + *lower as f64 / 2f64.powi(64))
            .collect();
        let all = *sums.last().expect("a table");
        sums.iter().scan(0.0, |before, sum| Some((sum - std::mem::replace(before, *sum)) / all)).collect()
    }

    #[test]
    fn the_table_is_the_distribution() {
        for rate in [1, 2, 7, 100] {
            let poisson = Poisson::new(rate);
            let mut expected = (-(rate as f64)).exp();
            for number in 1..=poisson.first {
                expected *= rate as f64 / number as f64;
            }
            for (at, found) in probabilities(&poisson).into_iter().enumerate() {
                assert!(
                    (found - expected).abs() < 1e-13 + expected * 1e-9,
                    "{rate} {at}: {found}, not {expected}"
                );
                expected *= rate as f64 / (poisson.first + at as u64 + 1) as f64;
            }
        }
    }

    #[test]
    fn a_table_of_a_large_rate_has_the_moments_of_the_distribution() {
        for rate in [10_000, 1 << 20, 1 << 26] {
            let poisson = Poisson::new(rate);
            let moment = |power: i32| -> f64 {
                let of = |(at, p): (usize, f64)| {
                    p * ((poisson.first as f64 - rate as f64 + at as f64) / (rate as f64).sqrt()).powi(power)
                };
                probabilities(&poisson).into_iter().enumerate().map(of).sum()
            };
            assert!(moment(1).abs() < 1e-6, "{rate}: {}", moment(1));
            assert!((moment(2) - 1.0).abs() < 1e-6, "{rate}: {}", moment(2));
            // The third central moment of the distribution is its rate as well.
            assert!((moment(3) - 1.0 / (rate as f64).sqrt()).abs() < 1e-5, "{rate}: {}", moment(3));
            assert!(poisson.upper.len() as f64 > 25.0 * (rate as f64).sqrt(), "{}", poisson.upper.len());
        }
    }

    #[test]
    fn draws_pass_pearsons_test() {
        for rate in [1, 50, 3000, 1 << 22] {
            let poisson = Poisson::new(rate);
            let mut rng = Seed::root(23).derive_numbered("rate", rate).rng();
            let deviation = (rate as f64).sqrt();
            let width = (deviation / 8.0).max(1.0);
            let group =
                |number: u64| ((number as f64 - rate as f64) / width).floor().clamp(-40.0, 39.0) as i64 + 40;
            let (mut found, mut expected) = (vec![0.0; 80], vec![0.0; 80]);
            let draws = 200_000;
            for _ in 0..draws {
                found[group(poisson.draw(&mut rng)) as usize] += 1.0;
            }
            for (at, p) in probabilities(&poisson).into_iter().enumerate() {
                expected[group(poisson.first + at as u64) as usize] += p * f64::from(draws);
            }
            let terms: Vec<f64> = found
                .iter()
                .zip(&expected)
                .filter(|(_, expected)| **expected >= 5.0)
                .map(|(found, expected)| (found - expected).powi(2) / expected)
                .collect();
            let (statistic, freedom) = (terms.iter().sum::<f64>(), (terms.len() - 1) as f64);
            assert!(
                (statistic - freedom).abs() < 5.0 * (2.0 * freedom).sqrt(),
                "{rate}: {statistic} of {freedom}"
            );
        }
    }

    /// These bits, one after the other.
    struct Bits(std::vec::IntoIter<u64>);
    impl rand::rand_core::TryRng for Bits {
        type Error = std::convert::Infallible;
        fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
            unreachable!("draws are of 64 bits")
        }
        fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
            Ok(self.0.next().expect("a draw takes two at most"))
        }
        fn try_fill_bytes(&mut self, _: &mut [u8]) -> Result<(), Self::Error> {
            unreachable!("draws are of 64 bits")
        }
    }

    #[test]
    fn where_the_upper_bits_are_equal_the_lower_ones_decide() {
        let poisson = Poisson {
            first: 5,
            upper: vec![9, 9, u64::MAX],
            lower: vec![3, 7, u64::MAX],
            guide: vec![0; 1 << GUIDE_BITS],
        };
        for (random, expected) in
            [(vec![8], 5), (vec![9, 2], 5), (vec![9, 3], 6), (vec![9, 6], 6), (vec![9, 7], 7), (vec![10], 7)]
        {
            assert_eq!(poisson.draw(&mut Bits(random.into_iter())), expected);
        }
    }
}
