//! The Rényi divergence of noise that devices add themselves.
//!
//! Agarwal, Kairouz, Liu: *The Skellam Mechanism for Differentially Private Federated Learning*, NeurIPS 2021 (arXiv 2110.04995), theorem
//! 3.5 and its corollary for vectors: with the variance m of the noise, and a device that changes the sum by the length S and by L in
//! magnitudes of its values,
//!
//! ```text
//! rdp(alpha) <= alpha S^2 / (2 m) + min( ((2 alpha - 1) S^2 + 6 L) / (4 m^2),  3 L / (2 m) )      alpha = 2, 3, ...
//! ```
//!
//! The first term is that of Gaussian noise of the same variance; the others vanish with fine units. Between two whole orders
//! `(alpha - 1) rdp(alpha)`, which is convex, is at most what lies between.
//!
//! Chance hides no device from the server, which knows whom it has asked: every round counts as one with all of them.

use crate::aggregation::DeviceNoise;

use super::renyi::Renyi;

/// The account of this number of rounds.
#[must_use]
pub fn account(noise: &DeviceNoise, rounds: u32) -> Renyi {
    Renyi::of_divergence(|order| renyi(noise, order), rounds)
}

/// What one round costs at this order, in nats.
fn renyi(noise: &DeviceNoise, order: f64) -> f64 {
    let [length, magnitudes] = noise.sensitivities();
    let whole = |order: f64| divergence(order, noise.variance(), length, magnitudes);
    let (below, share) = (order.floor(), order.fract());
    if below < 2.0 {
        return whole(2.0);
    }
    ((1.0 - share) * (below - 1.0) * whole(below) + share * below * whole(below + 1.0)) / (order - 1.0)
}

/// The bound at a whole order.
fn divergence(order: f64, variance: f64, length: f64, magnitudes: f64) -> f64 {
    let square = length * length;
    let fine = ((2.0 * order - 1.0) * square + 6.0 * magnitudes) / (4.0 * variance * variance);
    let coarse = 3.0 * magnitudes / (2.0 * variance);
    order * square / (2.0 * variance) + fine.min(coarse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privacy::Noise;

    /// `exp(-variance) I_k(variance)` for k from 0 to `most`: the probabilities of Skellam noise, by Miller's recurrence.
    fn probabilities(variance: f64, most: usize) -> Vec<f64> {
        let start = most + 60 + 8 * variance.sqrt() as usize;
        let (mut values, mut sum) = (vec![0.0; start + 2], 0.0);
        values[start] = 1e-300;
        for k in (1..=start).rev() {
            values[k - 1] = values[k + 1] + 2.0 * k as f64 / variance * values[k];
            if values[k - 1] > 1e250 {
                for value in &mut values {
                    *value *= 1e-250;
                }
                sum *= 1e-250;
            }
            sum += 2.0 * values[k];
        }
        sum += values[0];
        values.truncate(most + 1);
        values.iter().map(|value| value / sum).collect()
    }

    /// The divergence of Skellam noise from the same around `shift`, summed up.
    fn exact(variance: f64, shift: usize, order: f64) -> f64 {
        let reach = 40 + 12 * variance.sqrt() as usize;
        let p = probabilities(variance, reach + shift);
        let at = |k: i64| p[k.unsigned_abs() as usize].ln();
        let (reach, shift) = (reach.cast_signed() as i64, shift.cast_signed() as i64);
        let terms = (-reach..=reach).map(|k| order * at(k) + (1.0 - order) * at(k - shift));
        terms.filter(|term| term.is_finite()).map(f64::exp).sum::<f64>().ln() / (order - 1.0)
    }

    #[test]
    fn the_bound_is_above_the_divergence_and_near_to_it() {
        for variance in [8.0, 50.0, 400.0] {
            for shift in [1, 3] {
                for order in [2.0, 3.0, 8.0] {
                    let length = shift as f64;
                    let (exact, bound) =
                        (exact(variance, shift, order), divergence(order, variance, length, length));
                    assert!(
                        exact <= bound && bound < exact * (1.0 + 8.0 / variance),
                        "{variance} {shift} {order}: {exact}, {bound}"
                    );
                }
            }
        }
    }

    #[test]
    fn fine_units_cost_what_gaussian_noise_costs() {
        for (noise, devices, values) in [(2.0, 10, 1_660_000), (5.0, 100, 10_000), (9.0, 3, 50)] {
            let skellam = DeviceNoise { clip: 0.3, noise, devices, over: devices, values };
            let account = account(&skellam, 20).epsilon(1e-5);
            let gaussian = Renyi::of(Noise { multiplier: noise, rate: 1.0 }, 20).epsilon(1e-5);
            // Its variance is rounded up.
            let apart = account / gaussian - 1.0;
            assert!((-1e-6..0.03).contains(&apart), "{noise}: {account}, {gaussian}");
        }
    }
}
