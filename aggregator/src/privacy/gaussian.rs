//! The epsilon of Gaussian noise without sampling, in closed form.
//!
//! Balle, Wang: *Improving the Gaussian Mechanism for Differential Privacy*, ICML 2018 (arXiv 1805.06530), theorem 8. T rounds with noise
//! of deviation z tell as much as one with z / sqrt(T) (Dong, Roth, Su: *Gaussian Differential Privacy*, 2022, corollary 3.3).
//!
//! ```text
//! delta(epsilon) = Phi(mu / 2 - epsilon / mu) - exp(epsilon) Phi(-mu / 2 - epsilon / mu),   mu = sqrt(T) / z
//! ```

use shared::privacy::ln_erfc;

/// The epsilon of this number of rounds, rounded up in the last digits.
pub(super) fn epsilon(multiplier: f64, rounds: u32, delta: f64) -> f64 {
    let mu = f64::from(rounds).sqrt() / multiplier;
    if of(mu, 0.0) <= delta {
        return 0.0;
    }
    let (mut least, mut most) = (0.0, 1.0);
    while of(mu, most) > delta {
        (least, most) = (most, 2.0 * most);
        if most > 1e12 {
            return f64::INFINITY;
        }
    }
    while most - least > most * 1e-13 {
        let middle = least + (most - least) / 2.0;
        if of(mu, middle) <= delta { most = middle } else { least = middle }
    }
    most
}

/// delta of this epsilon.
fn of(mu: f64, epsilon: f64) -> f64 {
    let ln_below = |x: f64| ln_erfc(-x * std::f64::consts::FRAC_1_SQRT_2) - std::f64::consts::LN_2;
    let (above, beyond) = (ln_below(mu / 2.0 - epsilon / mu), epsilon + ln_below(-mu / 2.0 - epsilon / mu));
    -above.exp() * (beyond - above).exp_m1()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Printed by `accounts.py` beside this file, which solves the equation above with scipy.
    #[test]
    fn epsilons_solve_the_equation() {
        for (multiplier, rounds, delta, expected) in [
            (5.0, 20, 1e-5, 3.848_610_282_5),
            (5.0, 10, 1e-6, 2.921_600_590_4),
            (7.0, 50, 1e-5, 4.428_688_203_7),
            (1.0, 1, 1e-5, 4.377_178_095_7),
            (0.5, 1, 1e-5, 9.997_256_146_4),
            (100.0, 1, 1e-4, 0.019_420_440_1),
        ] {
            let found = epsilon(multiplier, rounds, delta);
            assert!(
                (found - expected).abs() < 2e-10,
                "z = {multiplier}, {rounds} rounds: {found}, not {expected}"
            );
        }
    }

    #[test]
    fn hardly_anything_is_given_away_by_hardly_anything() {
        assert_eq!(epsilon(1000.0, 1, 0.01).to_bits(), 0);
        assert!(epsilon(0.01, u32::MAX, 1e-6) > 1e6);
    }
}
