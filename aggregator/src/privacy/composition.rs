//! The epsilon of many rounds, by composition of their privacy losses.
//!
//! Losses of rounds add up, so that their distribution after T rounds is the T-fold convolution of one round's. Koskela, Jälkö,
//! Honkela: *Computing Tight Differential Privacy Guarantees Using FFT*, AISTATS 2020 (arXiv 1906.03049), compute it by a Fourier
//! transform of a window of losses.
//!
//! ```text
//! delta(epsilon) = sum over losses l > epsilon of P_T(l) (1 - exp(epsilon - l)) + P_T(infinite)
//! ```
//!
//! Probabilities are tilted before the transform, `P(l) exp(lambda l) / M(lambda)`, so that epsilon lies where most of the mass is: the
//! sum has digits then also where delta is far below the rounding of numbers, and what the window's ends wrap around is next to
//! nothing. All that is left out, cut off or rounded counts against the run.

use std::sync::{Arc, Mutex, PoisonError};

use super::fourier::{Complex, transform};
use super::losses::Losses;

/// The part of delta that may be lost at the ends of the window.
const LOST: f64 = 1e-5;
/// Points that a window has at most.
const MOST_POINTS: f64 = (1 << 19) as f64;
/// Roundings of one step of a transform.
const ROUNDINGS: f64 = 8.0;
/// The part of delta with which errors may count before another tilt is tried.
const DOUBT: f64 = 1e-5;

/// Spectra that are kept: those of the tilts that one number of rounds tries, as a rule one or two.
const KEPT: usize = 2;

/// The losses of one round in one direction, and their moments.
#[derive(Debug)]
pub(super) struct Composition {
    losses: Losses,
    moments: Vec<Tilt>,
    /// Those that were used last: the next number of rounds has the same as a rule.
    spectra: Mutex<Vec<Arc<Spectrum>>>,
}

/// The transform of one round's tilted losses in a window.
#[derive(Debug)]
struct Spectrum {
    lambda: f64,
    values: Vec<Complex>,
    /// The size of each, 1 at most.
    sizes: Vec<f64>,
}

/// An exponential tilt.
#[derive(Clone, Copy, Debug)]
struct Tilt {
    lambda: f64,
    /// `ln M(lambda) = ln E[exp(lambda L)]` of the losses of one round.
    ln_moment: f64,
}

impl Tilt {
    /// The logarithm of what untilts the mass of a loss after this number of rounds, which is Chernoff's bound on the probability of
    /// all losses from this one on.
    fn exponent(self, rounds: u32, loss: f64) -> f64 {
        f64::from(rounds) * self.ln_moment - self.lambda * loss
    }

    /// What errors of tilted masses above this loss count for together, in proportion.
    fn weight(self, rounds: u32, loss: f64) -> f64 {
        self.exponent(rounds, loss).exp() / self.lambda
    }
}

/// Composed losses.
struct Window {
    /// Tilted masses.
    masses: Vec<f64>,
    /// By how much each of them may be too small.
    error: f64,
}

/// What one tilt gives.
struct Passed {
    epsilon: f64,
    /// The part of delta that is no more than a bound on what is lost and rounded.
    doubt: f64,
}

impl Composition {
    pub(super) fn new(losses: Losses) -> Self {
        // From 1/32 to 4096, two in an octave.
        let lambdas = (-10..=24).map(|half| (f64::from(half) / 2.0).exp2());
        let moments = lambdas.map(|lambda| Tilt { lambda, ln_moment: ln_moment(&losses, lambda) }).collect();
        Self { losses, moments, spectra: Mutex::default() }
    }

    /// The distance of the grid's points.
    pub(super) fn interval(&self) -> f64 {
        self.losses.interval
    }

    /// The epsilon of this number of rounds for this delta; `None` where that takes a larger window than is worth it.
    pub(super) fn epsilon(&self, rounds: u32, delta: f64) -> Option<f64> {
        let mut windows: Vec<(f64, Tilt)> =
            self.moments.iter().map(|&tilt| (self.window(rounds, delta, tilt), tilt)).collect();
        windows.sort_by(|(one, _), (other, _)| one.total_cmp(other));
        let mut found: Option<f64> = None;
        let mut worst = f64::INFINITY;
        for (window, tilt) in windows {
            // The smallest window first. Another tilt is tried where errors count too much, and only one that makes less of them.
            if found.is_some_and(|epsilon| tilt.weight(rounds, epsilon) >= worst) {
                continue;
            }
            let Some(passed) = self.pass(rounds, delta, tilt, window) else { break };
            let epsilon = found.map_or(passed.epsilon, |found| found.min(passed.epsilon));
            found = Some(epsilon);
            if passed.doubt <= DOUBT * delta {
                break;
            }
            worst = 0.5 * tilt.weight(rounds, epsilon);
        }
        found
    }

    /// The length of the window from 0 of which only a part of delta is lost: losses above it, and what is folded into it from below
    /// and from above, whose tilted masses count at its other end.
    fn window(&self, rounds: u32, delta: f64, tilt: Tilt) -> f64 {
        let ln_lost = (delta * LOST).ln();
        let stronger = self.moments.iter().filter(|other| other.lambda > tilt.lambda);
        let above = stronger
            .map(|other| (f64::from(rounds) * other.ln_moment - ln_lost) / (other.lambda - tilt.lambda))
            .fold(f64::INFINITY, f64::min);
        above.max(-ln_lost / tilt.lambda)
    }

    /// The epsilon that one tilt gives.
    fn pass(&self, rounds: u32, delta: f64, tilt: Tilt, window: f64) -> Option<Passed> {
        let interval = self.losses.interval;
        let points = window / interval + 2.0;
        if points > MOST_POINTS {
            return None;
        }
        let points = (points as usize).next_power_of_two();
        let Window { masses, error } = self.composed(rounds, points, tilt);
        let top = points as f64 * interval;
        let lost = self.moments.iter().map(|tilt| tilt.exponent(rounds, top)).fold(f64::INFINITY, f64::min);

        // From the window's end down to epsilon: the mass above, and the same times exp(-loss), relative to that of the point.
        let (mut mass, mut discounted) = (lost.exp() + f64::from(rounds) * self.losses.beyond, 0.0);
        let mut doubt = mass;
        if mass > delta {
            return None;
        }
        let step = (-interval).exp();
        for (point, tilted) in masses.iter().enumerate().rev() {
            let loss = point as f64 * interval;
            let weight = tilt.exponent(rounds, loss).exp();
            let found = (tilted.max(0.0) + error) * weight;
            doubt += error * weight;
            mass += found;
            discounted = discounted * step + found;
            if mass - discounted * step > delta {
                let epsilon = loss + ((mass - delta) / discounted).ln();
                return Some(Passed { epsilon: epsilon.max(0.0), doubt });
            }
        }
        Some(Passed { epsilon: 0.0, doubt })
    }

    /// The transform of one round's losses: one that is kept, or a new one.
    fn spectrum(&self, points: usize, tilt: Tilt) -> Arc<Spectrum> {
        // Each is whole before it is kept.
        let mut kept = self.spectra.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it =
            |it: &Arc<Spectrum>| it.values.len() == points && it.lambda.to_bits() == tilt.lambda.to_bits();
        if let Some(at) = kept.iter().position(is_it) {
            kept[..=at].rotate_right(1);
        } else {
            kept.truncate(KEPT - 1);
            kept.insert(0, Arc::new(self.transformed(points, tilt)));
        }
        kept[0].clone()
    }

    /// The same as it is computed.
    fn transformed(&self, points: usize, tilt: Tilt) -> Spectrum {
        let Losses { interval, first, masses, .. } = &self.losses;
        let mut window = vec![Complex::default(); points];
        for (index, mass) in masses.iter().enumerate() {
            let point = first + index.cast_signed() as i64;
            let tilted = mass * (tilt.lambda * interval * point as f64 - tilt.ln_moment).exp();
            window[point.rem_euclid(points.cast_signed() as i64) as usize].re += tilted;
        }
        transform(&mut window);
        let sizes = window.iter().map(|value| value.size().min(1.0)).collect();
        Spectrum { lambda: tilt.lambda, values: window, sizes }
    }

    /// The tilted distribution of the losses of this number of rounds, modulo a window that begins at 0.
    fn composed(&self, rounds: u32, points: usize, tilt: Tilt) -> Window {
        let spectrum = self.spectrum(points, tilt);
        let power = f64::from(rounds - 1);
        let size = spectrum.sizes.iter().map(|size| size.powf(power)).sum::<f64>() / points as f64;
        let mut window: Vec<Complex> =
            spectrum.values.iter().map(|value| value.power(rounds).conjugate()).collect();
        transform(&mut window);
        let masses = window.iter().map(|value| value.re / points as f64).collect();
        // Each value of a transform of numbers that add up to 1 is off by a few roundings at each of its steps, and its power by that
        // times the number of rounds and the power before.
        let roundings = ROUNDINGS * f64::from(rounds) * f64::from(points.ilog2() + 1);
        Window { masses, error: roundings * f64::EPSILON * size }
    }
}

/// `ln E[exp(lambda L)]` of the finite losses.
fn ln_moment(losses: &Losses, lambda: f64) -> f64 {
    let Losses { interval, first, masses, .. } = losses;
    let last = (first + masses.len().cast_signed() as i64 - 1) as f64 * interval;
    // Relative to the last point, whose mass is far from the least number: the moment itself may be too large for one.
    let ratio = (-lambda * interval).exp();
    let (sum, _) =
        masses.iter().rev().fold((0.0, 1.0), |(sum, weight), mass| (sum + mass * weight, weight * ratio));
    f64::ln(sum) + lambda * last
}

#[cfg(test)]
mod tests {
    use super::super::losses::{losses, on_grid};
    use super::*;
    use shared::privacy::{Noise, ln_erfc};

    /// The epsilons of a device that is removed and of one that is added, on this grid or the usual one.
    fn both(noise: Noise, interval: Option<f64>, rounds: u32, delta: f64) -> [f64; 2] {
        let losses = interval.map_or_else(|| losses(noise, 1.0), |interval| on_grid(noise, interval));
        losses.map(|losses| Composition::new(losses).epsilon(rounds, delta).expect("a window of this size"))
    }

    fn normal(x: f64) -> f64 {
        0.5 * ln_erfc(-x * std::f64::consts::FRAC_1_SQRT_2).exp()
    }

    /// delta of one round and any epsilon, in closed form: `P(L > epsilon) - exp(epsilon) Q(L > epsilon)`.
    fn one_round(Noise { multiplier: z, rate: q }: Noise, epsilon: f64, is_added: bool) -> f64 {
        let without = |x: f64| normal(-x / z);
        let with = |x: f64| (1.0 - q) * without(x) + q * without(x - 1.0);
        // The noisy value with this loss; none has less than ln(1 - q).
        let place = |loss: f64| z * z * ((loss.exp_m1() + q) / q).max(0.0).ln() + 0.5;
        if is_added {
            let x = place(-epsilon);
            (1.0 - without(x)) - epsilon.exp() * (1.0 - with(x))
        } else {
            let x = place(epsilon);
            with(x) - epsilon.exp() * without(x)
        }
    }

    /// The same of two rounds: of the first by a sum over its noisy values.
    fn two_rounds(noise: Noise, epsilon: f64, is_added: bool) -> f64 {
        let Noise { multiplier: z, rate: q } = noise;
        let density = |x: f64| (-x * x / (2.0 * z * z)).exp() / (z * std::f64::consts::TAU.sqrt());
        let (steps, reach) = (4000, 12.0 * z + 1.0);
        let step = 2.0 * reach / f64::from(steps);
        let at = |index: i32| {
            let x = f64::from(index) * step - reach + 0.5;
            let loss = (-q).ln_1p() + (q / (1.0 - q) * ((2.0 * x - 1.0) / (2.0 * z * z)).exp()).ln_1p();
            let (density, loss) = if is_added {
                (density(x), -loss)
            } else {
                ((1.0 - q) * density(x) + q * density(x - 1.0), loss)
            };
            density * step * one_round(noise, epsilon - loss, is_added)
        };
        (0..=steps).map(at).sum()
    }

    /// Printed by `accounts.py` beside this file, with dp-accounting 0.6.0 and its usual grid.
    const GOLDEN: [(f64, f64, u32, f64, f64); 5] = [
        (1.0, 0.01, 1000, 1e-5, 1.828_244),
        (1.1, 0.01, 10_000, 1e-5, 5.192_620),
        (1.0, 0.1, 100, 1e-5, 7.046_603),
        (2.0, 0.05, 500, 1e-6, 2.872_629),
        (0.8, 100.0 / 342_477.0, 1600, 1e-6, 0.135_814_4),
    ];

    #[test]
    fn epsilons_are_those_of_dp_accounting() {
        for (multiplier, rate, rounds, delta, expected) in GOLDEN {
            let noise = Noise { multiplier, rate };
            let [removed, added] = both(noise, Some(1e-4), rounds, delta);
            let found = removed.max(added);
            assert!((found - expected).abs() < 1e-6, "z = {multiplier}, q = {rate}: {found}, not {expected}");
        }
    }

    #[test]
    fn the_usual_grid_adds_little() {
        // On a grid of 1e-5, with dp-accounting as well.
        let fine = [1.828_236_7, 5.192_583_8, 7.046_602_6, 2.872_625_8, 0.135_749_9];
        for ((multiplier, rate, rounds, delta, _), fine) in GOLDEN.into_iter().zip(fine) {
            let [removed, added] = both(Noise { multiplier, rate }, None, rounds, delta);
            let found = removed.max(added);
            println!("z = {multiplier}, q = {rate}: {found:.6}, {:.1e} above", found / fine - 1.0);
            assert!(found > fine - 1e-6 && found < fine * 1.0002, "z = {multiplier}, q = {rate}: {found}");
        }
    }

    #[test]
    fn one_and_two_rounds_are_never_below_their_closed_forms_and_at_most_a_point_a_round_above() {
        for (multiplier, rate) in [(1.0, 0.1), (0.5, 0.02), (3.0, 0.7), (0.3, 0.5), (1.0, 1e-3), (20.0, 0.9)]
        {
            let noise = Noise { multiplier, rate };
            for delta in [1e-3, 1e-6, 1e-10] {
                for (rounds, truth) in [(1, one_round as fn(Noise, f64, bool) -> f64), (2, two_rounds)] {
                    for (epsilon, is_added) in both(noise, None, rounds, delta).into_iter().zip([false, true])
                    {
                        let at = format!(
                            "{noise:?}, {rounds} rounds, delta {delta:e}, added {is_added}: {epsilon}"
                        );
                        let found = truth(noise, epsilon, is_added);
                        assert!(found <= delta * (1.0 + 1e-6), "{at}: {found:e}");
                        let points = f64::from(rounds) * losses(noise, 1.0)[0].interval;
                        let below = truth(noise, epsilon - points, is_added);
                        // One percent of delta is what folded tails may cost.
                        assert!(epsilon <= 1e-6 || below > 0.99 * delta, "{at}: {below:e}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_is_kept_of_other_rounds_changes_no_bit() {
        for (multiplier, rate) in [(1.0, 0.1), (0.5, 0.02), (3.0, 0.7)] {
            let of = || losses(Noise { multiplier, rate }, 1.0).map(Composition::new);
            let kept = of();
            for rounds in [1, 2, 3, 40, 41, 2, 700, 40] {
                for delta in [1e-5, 1e-9] {
                    let bits = |of: &[Composition; 2]| {
                        of.each_ref().map(|direction| direction.epsilon(rounds, delta).map(f64::to_bits))
                    };
                    assert_eq!(bits(&kept), bits(&of()), "z = {multiplier}, q = {rate}: {rounds}");
                }
            }
            assert!(
                kept.iter().all(|direction| direction.spectra.lock().expect("not poisoned").len() <= KEPT)
            );
        }
    }

    #[test]
    fn what_is_hardly_sampled_comes_to_the_closed_form_of_all() {
        for (multiplier, rounds, delta) in
            [(5.0, 20, 1e-5), (1.0, 3, 1e-8), (30.0, 5000, 1e-6), (0.5, 1, 1e-5)]
        {
            let noise = Noise { multiplier, rate: 1.0 - 1e-12 };
            let expected = super::super::gaussian::epsilon(multiplier, rounds, delta);
            for found in both(noise, None, rounds, delta) {
                assert!(
                    found > expected - 1e-6 && found < expected * 1.0005,
                    "{multiplier}: {found}, not {expected}"
                );
            }
        }
    }
}
