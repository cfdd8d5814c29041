//! The account of a run: the epsilon of a number of rounds with Gaussian noise.
//!
//! A round asks every device with probability q, independently, and adds to the sum of updates, each of at most the length 1, normal
//! noise of the deviation z in every direction. Neighbours are runs with and without one device.
//!
//! Without sampling there is a closed form (`gaussian`). With it, losses are composed on a grid (`composition`), which is as tight
//! as the grid is fine; where that takes too much work, a coarser grid or the account of Rényi's divergences (`renyi`) serves. Each is an
//! upper bound.

use std::fmt;

use serde::Serialize;
use shared::privacy::{Noise, Renyi};

use super::composition::Composition;
use super::{gaussian, losses};

/// What the discrete noise of a run may give away beyond normal noise: its probabilities are those of rounded normal noise times
/// `1 + (x^2 / sigma^2 - 1) / (24 sigma^2)`. With at least `2^25` units to sigma, and `2^50` values in all rounds together, the logarithm
/// of the product of these is beyond a quarter of this with a probability below `10^-30`.
pub const ROUNDED: f64 = 1e-7;

/// By how much coarser grids are where the usual one would take too much work.
const COARSER: [f64; 2] = [4.0, 16.0];

/// How an epsilon was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// Gaussian noise without sampling.
    ClosedForm,
    /// Composed privacy losses.
    Losses,
    /// Rényi's divergences.
    Renyi,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ClosedForm => "of Gaussian noise in closed form",
            Self::Losses => "of privacy loss distributions",
            Self::Renyi => "of Rényi differential privacy",
        })
    }
}

/// What is given away.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spent {
    /// Infinite if none follows.
    pub epsilon: f64,
    /// How it was found.
    pub method: Method,
}

/// What rounds with one noise give away.
#[derive(Debug)]
pub struct Account {
    noise: Noise,
    /// One round's losses of a device that is removed and of one that is added; none without sampling.
    compositions: Vec<Composition>,
}

impl Account {
    /// The account of rounds with this noise.
    #[must_use]
    pub fn of(noise: Noise) -> Self {
        let is_sampled = noise.rate > 0.0 && noise.rate < 1.0 && noise.multiplier > 0.0;
        let sampled = is_sampled.then(|| losses::losses(noise, 1.0).map(Composition::new));
        Self { noise, compositions: sampled.into_iter().flatten().collect() }
    }

    /// The distance of the points on which losses are composed, if they are; where that is too much work, coarser ones have to do.
    #[must_use]
    pub fn interval(&self) -> Option<f64> {
        self.compositions.first().map(Composition::interval)
    }

    /// What this number of rounds gives away, for this delta.
    ///
    /// # Panics
    /// If delta is not between 0 and 1.
    #[must_use]
    pub fn spent(&self, rounds: u32, delta: f64) -> Spent {
        if rounds == 0 {
            return Spent { epsilon: 0.0, method: Method::ClosedForm };
        }
        let Noise { multiplier, rate } = self.noise;
        let of = |epsilon, method| Spent { epsilon, method };
        if rate >= 1.0 && multiplier > 0.0 {
            return of(gaussian::epsilon(multiplier, rounds, delta) + ROUNDED, Method::ClosedForm);
        }
        if let Some(epsilon) = composed(&self.compositions, rounds, delta) {
            return of(epsilon, Method::Losses);
        }
        let renyi = of(Renyi::of(self.noise, rounds).epsilon(delta), Method::Renyi);
        let coarser = |factor: &f64| {
            let grid = losses::losses(self.noise, *factor).map(Composition::new);
            composed(&grid, rounds, delta)
        };
        let coarse = COARSER.iter().filter(|_| !self.compositions.is_empty()).find_map(coarser);
        coarse.filter(|epsilon| *epsilon < renyi.epsilon).map_or(renyi, |epsilon| of(epsilon, Method::Losses))
    }
}

/// The greatest epsilon of these directions, `None` if there is none or it is too much work.
fn composed(directions: &[Composition], rounds: u32, delta: f64) -> Option<f64> {
    let of = |direction: &Composition| direction.epsilon(rounds, delta);
    let both: Vec<f64> = directions.iter().map(of).collect::<Option<_>>()?;
    both.into_iter().reduce(f64::max).map(|greatest| greatest + ROUNDED)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(multiplier: f64, rate: f64, rounds: u32, delta: f64) -> Spent {
        Account::of(Noise { multiplier, rate }).spent(rounds, delta)
    }

    #[test]
    fn the_tightest_account_counts() {
        for (multiplier, rate, rounds, delta, method, least, most) in [
            (1.0, 0.01, 1000, 1e-5, Method::Losses, 1.828_236, 1.828_4),
            (0.8, 100.0 / 342_477.0, 1600, 1e-6, Method::Losses, 0.135_749, 0.135_77),
            (5.0, 1.0, 20, 1e-5, Method::ClosedForm, 3.848_610, 3.848_611),
            (7.0, 1.0, 50, 1e-5, Method::ClosedForm, 4.428_688, 4.428_689),
            // A window of such losses would be too large.
            (0.02, 0.1, 4_000_000_000, 1e-5, Method::Renyi, 1e9, 1e16),
        ] {
            let Spent { epsilon, method: found } = spent(multiplier, rate, rounds, delta);
            assert_eq!(found, method, "z = {multiplier}, q = {rate}");
            assert!(epsilon >= least && epsilon <= most, "z = {multiplier}, q = {rate}: {epsilon}");
        }
    }

    #[test]
    fn it_never_exceeds_that_of_renyi_and_grows_with_every_round() {
        for (multiplier, rate) in [(0.5, 0.3), (1.0, 0.05), (1.5, 1.0), (6.0, 0.5), (0.05, 0.5)] {
            let noise = Noise { multiplier, rate };
            let account = Account::of(noise);
            let mut before = 0.0;
            for rounds in [1, 2, 3, 4, 5, 8, 9, 30, 31, 500] {
                let Spent { epsilon, .. } = account.spent(rounds, 1e-5);
                assert!(epsilon <= Renyi::of(noise, rounds).epsilon(1e-5), "{noise:?} {rounds}: {epsilon}");
                assert!(epsilon > before, "{noise:?} {rounds}: {epsilon} after {before}");
                before = epsilon;
            }
        }
        assert_eq!(spent(1.0, 0.1, 0, 1e-5).epsilon.to_bits(), 0);
    }

    #[test]
    fn no_noise_promises_nothing() {
        assert!(spent(0.0, 0.1, 1, 1e-5).epsilon.is_infinite());
        assert!(spent(0.0, 1.0, 1, 1e-5).epsilon.is_infinite());
    }

    /// What the account of every record of a run takes: `cargo test --release -p aggregator --lib account -- --ignored --nocapture`.
    #[test]
    #[ignore = "a measurement"]
    fn the_time_of_a_record() {
        for (multiplier, rate, rounds) in [(1.1, 0.1, 100), (1.0, 0.01, 1000), (4.292, 0.5, 30)] {
            let noise = Noise { multiplier, rate };
            let time = |of: &dyn Fn(u32) -> f64| {
                let begun = std::time::Instant::now();
                let sum = (1..=rounds).map(of).sum::<f64>();
                assert!(sum >= 0.0);
                1e3 * begun.elapsed().as_secs_f64() / f64::from(rounds)
            };
            let made = time(&|_| Account::of(noise).compositions.len() as f64);
            let anew = time(&|round| Account::of(noise).spent(round, 1e-5).epsilon);
            let account = Account::of(noise);
            let kept = time(&|round| account.spent(round, 1e-5).epsilon);
            println!(
                "{noise:?}, {rounds} rounds: made in {made:.2} ms, {anew:.2} ms a round, {kept:.2} ms if it is kept"
            );
        }
    }
}
