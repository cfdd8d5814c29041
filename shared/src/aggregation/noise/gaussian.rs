//! The discrete Gaussian: whole numbers x with probabilities in proportion to `exp(-x^2 / (2 sigma^2))`, drawn exactly.
//!
//! Canonne, Kamath, Steinke (arXiv 2004.00010), algorithms 2 and 3. Added to a whole-numbered sum it gives the privacy of Gaussian
//! noise of the same sigma (theorem 4: `rho = 1 / (2 sigma^2)` for sums that differ by 1, and the same Rényi divergences), and no
//! rounding of floating-point numbers is left that an account would not know of.

use rand::Rng;

use super::bernoulli::{Ratio, coin, exp_minus};

/// The greatest sigma: with it all fractions below stay within 126 bits.
pub(super) const MAX_SIGMA: u64 = 1 << 27;

/// Multiples of sigma beyond which nothing is drawn, whose probability is below `2^-2900`.
const FURTHEST: u64 = 64;

/// The distribution of this sigma, a fraction.
#[derive(Clone, Copy, Debug)]
pub(super) struct DiscreteGaussian {
    numerator: u64,
    denominator: u64,
}

impl DiscreteGaussian {
    /// # Panics
    /// If sigma is 0 or beyond [`MAX_SIGMA`].
    pub(super) fn new(sigma: u64) -> Self {
        Self::of(sigma, 1)
    }

    /// That of the sigma `numerator / denominator`.
    ///
    /// # Panics
    /// If one of the two is 0 or beyond [`MAX_SIGMA`].
    pub(super) fn of(numerator: u64, denominator: u64) -> Self {
        let fits = |part: &u64| (1..=MAX_SIGMA).contains(part);
        assert!([numerator, denominator].iter().all(fits), "the scale of a sum is chosen for its noise");
        Self { numerator, denominator }
    }

    /// Sigma, of a whole one.
    #[cfg(test)]
    pub(super) fn sigma(self) -> u64 {
        self.numerator
    }

    /// One draw.
    pub(super) fn draw(self, rng: &mut impl Rng) -> i64 {
        let scale = self.numerator / self.denominator + 1;
        let [square, divisor] = [self.numerator, self.denominator].map(|part| u128::from(part).pow(2));
        let scale_wide = u128::from(scale);
        let denominator = 2 * square * divisor * scale_wide * scale_wide;
        loop {
            let laplace = discrete_laplace(scale, rng);
            let size = laplace.unsigned_abs();
            if size > FURTHEST * scale {
                continue;
            }
            // (|y| - sigma^2 / t)^2 / (2 sigma^2) with sigma^2 = square / divisor, over the squares of divisor and t.
            let distance = (u128::from(size) * scale_wide * divisor).abs_diff(square);
            if exp_minus(Ratio::new(distance * distance, denominator), rng) {
                return laplace;
            }
        }
    }
}

/// A whole number y with a probability in proportion to `exp(-|y| / scale)`.
fn discrete_laplace(scale: u64, rng: &mut impl Rng) -> i64 {
    loop {
        let low = below(scale, rng);
        if !exp_minus(Ratio::new(low.into(), scale.into()), rng) {
            continue;
        }
        let mut high = 0;
        while exp_minus(Ratio::new(1, 1), rng) {
            high += 1;
        }
        let size = (low + scale * high).cast_signed();
        let negative = coin(Ratio::new(1, 2), rng);
        // Zero has one sign.
        if negative && size == 0 {
            continue;
        }
        return if negative { -size } else { size };
    }
}

/// A uniform number below `limit`, which is not 0.
fn below(limit: u64, rng: &mut impl Rng) -> u64 {
    // What is above the last whole multiple of the limit is drawn again.
    let most = u64::MAX - u64::MAX % limit;
    loop {
        let bits = rng.next_u64();
        if bits < most {
            return bits % limit;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;

    /// The statistic of Pearson's test over this many groups of equal width within four sigma, and how many groups count.
    fn chi_square((numerator, denominator): (u64, u64), groups: i64, draws: u32) -> (f64, usize) {
        let gaussian = DiscreteGaussian::of(numerator, denominator);
        let mut rng = Seed::root(17).derive_numbered("sigma", numerator).rng();
        let (exact, sigma) = (numerator as f64 / denominator as f64, numerator.div_ceil(denominator));
        let reach = 4 * sigma.cast_signed();
        let group = |x: i64| ((x + reach) * groups).div_euclid(2 * reach + 1).clamp(0, groups - 1);
        let mut found = vec![0.0; groups as usize];
        for _ in 0..draws {
            found[group(gaussian.draw(&mut rng)) as usize] += 1.0;
        }
        let mut expected = vec![0.0; groups as usize];
        let (mut whole, step) = (0.0, (sigma / 2000).max(1).cast_signed());
        // Of a large sigma every so-many-th number stands for its neighbours.
        for x in (-3 * reach..=3 * reach).step_by(step as usize) {
            let weight = (-((x as f64 / exact).powi(2)) / 2.0).exp();
            expected[group(x) as usize] += weight;
            whole += weight;
        }
        let terms = found.iter().zip(&expected).filter_map(|(found, weight)| {
            let expected = weight / whole * f64::from(draws);
            (expected >= 5.0).then(|| (found - expected).powi(2) / expected)
        });
        let terms: Vec<f64> = terms.collect();
        (terms.iter().sum(), terms.len())
    }

    #[test]
    fn draws_pass_pearsons_test() {
        let whole = [(1, 9), (10, 81), (1000, 50), (1 << 20, 50), (MAX_SIGMA, 50)];
        let fractions =
            [((1, 2), 9), ((7, 3), 25), ((MAX_SIGMA, MAX_SIGMA - 1), 17), ((MAX_SIGMA, 1000), 50)];
        for (sigma, groups) in whole.map(|(sigma, groups)| ((sigma, 1), groups)).into_iter().chain(fractions)
        {
            let (statistic, counted) = chi_square(sigma, groups, 100_000);
            let freedom = (counted - 1) as f64;
            // Five deviations of the distribution's normal approximation.
            assert!(statistic < freedom + 5.0 * (2.0 * freedom).sqrt(), "sigma {sigma:?}: {statistic}");
            assert!(statistic > freedom - 5.0 * (2.0 * freedom).sqrt(), "sigma {sigma:?}: {statistic}");
            println!(
                "sigma {} / {}: chi-square {statistic:.1} at {freedom} degrees of freedom",
                sigma.0, sigma.1
            );
        }
    }

    #[test]
    fn a_fraction_that_is_whole_draws_what_the_whole_number_does() {
        let draws = |gaussian: DiscreteGaussian| {
            let mut rng = Seed::root(20).rng();
            (0..1000).map(|_| gaussian.draw(&mut rng)).collect::<Vec<_>>()
        };
        assert_eq!(draws(DiscreteGaussian::new(1000)), draws(DiscreteGaussian::of(3000, 3)));
    }

    #[test]
    fn the_last_bits_are_even() {
        let (sigma, draws, groups) = (1 << 20, 64_000, 64);
        let gaussian = DiscreteGaussian::new(sigma);
        let mut rng = Seed::root(19).rng();
        let mut found = [0.0; 64];
        for _ in 0..draws {
            found[gaussian.draw(&mut rng).rem_euclid(groups) as usize] += 1.0;
        }
        let expected = f64::from(draws) / groups as f64;
        let statistic: f64 = found.iter().map(|found| (found - expected).powi(2) / expected).sum();
        assert!((statistic - 63.0).abs() < 5.0 * 126f64.sqrt(), "{statistic}");
    }

    #[test]
    fn moments_are_the_distributions() {
        let (sigma, draws) = (1u64 << 26, 200_000);
        let mut rng = Seed::root(18).rng();
        let gaussian = DiscreteGaussian::new(sigma);
        let drawn: Vec<f64> = (0..draws).map(|_| gaussian.draw(&mut rng) as f64 / sigma as f64).collect();
        let mean = |power: i32| drawn.iter().map(|x| x.powi(power)).sum::<f64>() / f64::from(draws);
        let error = 4.5 / f64::from(draws).sqrt();
        assert!(mean(1).abs() < error, "{}", mean(1));
        assert!((mean(2) - 1.0).abs() < 1.5 * error, "{}", mean(2));
        assert!(mean(3).abs() < 4.0 * error, "{}", mean(3));
        assert!((mean(4) - 3.0).abs() < 10.0 * error, "{}", mean(4));
    }
}
