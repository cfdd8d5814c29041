//! The account of Rényi differential privacy of rounds with Gaussian noise, and the epsilon that follows from it.
//!
//! Mironov: *Rényi Differential Privacy*, CSF 2017 (arXiv 1702.07476). Mironov, Talwar, Zhang: *Rényi Differential Privacy of the Sampled
//! Gaussian Mechanism*, 2019 (arXiv 1908.10530), section 3. Canonne, Kamath, Steinke: *The Discrete Gaussian for Differential Privacy*,
//! NeurIPS 2020 (arXiv 2004.00010), proposition 12, for the conversion.
//!
//! Neighbours are runs with and without one device. A round asks every device with probability q, independently, and adds to the sum of
//! updates, each of at most the length 1, normal noise of the deviation z in every direction:
//!
//! ```text
//! A(alpha) = E[((1 - q) + q exp((2 x - 1) / (2 z^2)))^alpha],  x normal with deviation z       rdp(alpha) = ln A(alpha) / (alpha - 1)
//! epsilon  = min over alpha of  T rdp(alpha) + ln(1 - 1/alpha) - ln(delta alpha) / (alpha - 1)
//! ```
//!
//! Without sampling, q = 1, rdp(alpha) = alpha / (2 z^2): that is zero-concentrated privacy with rho = 1 / (2 z^2).

use super::complementary::ln_erfc;
use super::noise::Noise;

/// What rounds have given away, at every order.
#[derive(Clone, Debug, PartialEq)]
pub struct Renyi {
    spent: Vec<f64>,
}

/// Terms of the series of an order that is no whole number, after which it is left out.
const TERMS: u32 = 1000;
/// How much less than their sum the last terms are, as a logarithm.
const NEGLIGIBLE: f64 = 30.0;

/// The orders: those of Google's `dp-accounting`, so that both come to the same epsilon.
fn orders() -> impl Iterator<Item = f64> {
    let tenths = (1..100).map(|tenth| 1.0 + f64::from(tenth) / 10.0);
    tenths.chain((11..64).chain([128, 256, 512, 1024]).map(f64::from))
}

impl Default for Renyi {
    fn default() -> Self {
        Self { spent: vec![0.0; orders().count()] }
    }
}

impl Renyi {
    /// Adds a number of rounds with this noise.
    pub fn add(&mut self, noise: Noise, rounds: u32) {
        if rounds == 0 {
            return;
        }
        for (spent, order) in self.spent.iter_mut().zip(orders()) {
            *spent += f64::from(rounds) * noise.renyi(order);
        }
    }

    /// The account of this number of rounds, of each of which this is the divergence at every order.
    pub fn of_divergence(divergence: impl Fn(f64) -> f64, rounds: u32) -> Self {
        Self { spent: orders().map(|order| f64::from(rounds) * divergence(order)).collect() }
    }

    /// The account of this number of rounds with this noise.
    #[must_use]
    pub fn of(noise: Noise, rounds: u32) -> Self {
        let mut account = Self::default();
        account.add(noise, rounds);
        account
    }

    /// The epsilon for this delta, infinite if none follows.
    ///
    /// # Panics
    /// If delta is not between 0 and 1.
    #[must_use]
    pub fn epsilon(&self, delta: f64) -> f64 {
        assert!(delta > 0.0 && delta < 1.0, "a probability");
        let of = |(&spent, order): (&f64, f64)| {
            if delta * delta + (-spent).exp_m1() > 0.0 {
                // delta <= sqrt(1 - exp(-KL)) by Bretagnolle and Huber.
                0.0
            } else {
                spent + (-1.0 / order).ln_1p() - (delta * order).ln() / (order - 1.0)
            }
        };
        self.spent.iter().zip(orders()).map(of).fold(f64::INFINITY, f64::min).max(0.0)
    }
}

impl Noise {
    /// The Rényi divergence of this order that one round costs, in nats.
    fn renyi(&self, order: f64) -> f64 {
        let Self { multiplier: z, rate: q } = *self;
        if q <= 0.0 {
            0.0
        } else if z <= 0.0 {
            f64::INFINITY
        } else if q >= 1.0 {
            order / (2.0 * z * z)
        } else if order.fract() == 0.0 {
            self.ln_moment_whole(order as u32) / (order - 1.0)
        } else {
            self.ln_moment(order) / (order - 1.0)
        }
    }

    /// `ln A` of a whole order, by the binomial theorem.
    fn ln_moment_whole(&self, order: u32) -> f64 {
        let Self { multiplier: z, rate: q } = *self;
        let (ln_q, ln_rest) = (q.ln(), (-q).ln_1p());
        let mut ln_binomial = 0.0;
        let mut sum = LnSum::default();
        for k in 0..=order {
            let power = f64::from(k);
            let squares = (power * power - power) / (2.0 * z * z);
            sum.add(ln_binomial + power * ln_q + f64::from(order - k) * ln_rest + squares);
            ln_binomial += (f64::from(order - k) / f64::from(k + 1)).ln();
        }
        sum.ln()
    }

    /// `ln A` of any order above 1, by two series of the binomial theorem, left and right of where both terms are equally large. Those
    /// alternate in sign after the order: the sum of their magnitudes is an upper bound.
    fn ln_moment(&self, order: f64) -> f64 {
        let Self { multiplier: z, rate: q } = *self;
        let (ln_q, ln_rest) = (q.ln(), (-q).ln_1p());
        let equal = z * z * (1.0 / q - 1.0).ln() + 0.5;
        let half = 0.5f64.ln();
        let mut ln_binomial = 0.0;
        let mut sum = LnSum::default();
        let mut before = [f64::NEG_INFINITY; 2];
        for k in 0..TERMS {
            let (i, j) = (f64::from(k), order - f64::from(k));
            let squares = |power: f64| (power * power - power) / (2.0 * z * z);
            let term = |power: f64, rest: f64, beyond: f64| {
                let tail = ln_erfc(beyond / (std::f64::consts::SQRT_2 * z));
                ln_binomial + power * ln_q + rest * ln_rest + squares(power) + half + tail
            };
            let (left, right) = (term(i, j, i - equal), term(j, i, equal - j));
            sum.add(left);
            sum.add(right);
            if left < before[0] && right < before[1] && left.max(right) < sum.ln() - NEGLIGIBLE {
                return sum.ln();
            }
            before = [left, right];
            ln_binomial += j.abs().ln() - f64::from(k + 1).ln();
        }
        // An order of which nothing is known: others remain.
        f64::INFINITY
    }
}

/// A sum of numbers that are given by their logarithms.
#[derive(Clone, Copy)]
struct LnSum(f64);

impl Default for LnSum {
    fn default() -> Self {
        Self(f64::NEG_INFINITY)
    }
}

impl LnSum {
    fn add(&mut self, ln: f64) {
        let (more, less) = if self.0 > ln { (self.0, ln) } else { (ln, self.0) };
        self.0 = if less == f64::NEG_INFINITY { more } else { more + (less - more).exp().ln_1p() };
    }

    fn ln(self) -> f64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epsilon(multiplier: f64, rate: f64, rounds: u32, delta: f64) -> f64 {
        Renyi::of(Noise { multiplier, rate }, rounds).epsilon(delta)
    }

    /// Printed by `accounts.py` beside this file, with dp-accounting 0.6.0.
    #[test]
    fn epsilons_are_those_of_dp_accounting() {
        for (multiplier, rate, rounds, delta, expected) in [
            (1.0, 0.01, 1000, 1e-5, 2.101_367),
            (1.1, 0.01, 10_000, 1e-5, 5.632_011),
            (1.0, 0.1, 100, 1e-5, 7.903_850),
            (2.0, 0.05, 500, 1e-6, 3.101_868),
            (0.8, 100.0 / 342_477.0, 1600, 1e-6, 1.157_099),
            (5.0, 1.0, 20, 1e-5, 4.161_624),
            (5.0, 1.0, 10, 1e-6, 3.131_090),
            (7.0, 1.0, 50, 1e-5, 4.783_609),
        ] {
            let found = epsilon(multiplier, rate, rounds, delta);
            assert!((found - expected).abs() < 1e-6, "z = {multiplier}, q = {rate}: {found}, not {expected}");
        }
    }

    #[test]
    fn more_noise_fewer_rounds_and_rarer_questions_give_less_away() {
        let base = epsilon(1.0, 0.1, 100, 1e-5);
        assert!(epsilon(1.1, 0.1, 100, 1e-5) < base);
        assert!(epsilon(1.0, 0.09, 100, 1e-5) < base);
        assert!(epsilon(1.0, 0.1, 99, 1e-5) < base);
        assert!(epsilon(1.0, 0.1, 100, 1e-4) < base);
        assert!(epsilon(0.0, 0.1, 1, 1e-5).is_infinite());
        assert_eq!(epsilon(1.0, 0.0, 100, 1e-5).to_bits(), 0);
        assert_eq!(epsilon(1.0, 0.1, 0, 1e-5).to_bits(), 0);
    }

    #[test]
    fn rounds_add_up() {
        let noise = Noise { multiplier: 1.2, rate: 0.05 };
        let mut account = Renyi::of(noise, 30);
        account.add(noise, 70);
        let whole = Renyi::of(noise, 100);
        assert!((account.epsilon(1e-5) - whole.epsilon(1e-5)).abs() < 1e-12);
        account.add(Noise { multiplier: 3.0, rate: 1.0 }, 1);
        assert!(account.epsilon(1e-5) > whole.epsilon(1e-5));
    }

    #[test]
    fn an_order_between_two_whole_ones_costs_what_lies_between() {
        for noise in [Noise { multiplier: 0.7, rate: 0.02 }, Noise { multiplier: 2.0, rate: 0.3 }] {
            // The logarithm of the moment is convex in the order (and 0 at 1).
            let ln_moment = |order: f64| noise.renyi(order) * (order - 1.0);
            for order in 2..8 {
                let at = f64::from(order);
                let middle = ln_moment(at + 0.5);
                assert!(
                    middle > ln_moment(at) && middle <= 0.5 * (ln_moment(at) + ln_moment(at + 1.0)) + 1e-12
                );
            }
        }
    }
}
