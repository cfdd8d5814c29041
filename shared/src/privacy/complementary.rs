//! The logarithm of the complementary error function.

/// From here on the continued fraction is exact to the last digits with [`TERMS`] terms.
const FAR: f64 = 2.5;
const TERMS: u32 = 60;

/// `ln erfc(x)`, also where `erfc(x)` itself is too small for a number.
#[must_use]
pub fn ln_erfc(x: f64) -> f64 {
    if x < FAR {
        return libm::erfc(x).ln();
    }
    // Laplace's continued fraction: erfc(x) = exp(-x^2) / sqrt(pi) / (x + (1/2)/(x + 1/(x + (3/2)/(x + ...)))).
    let fraction = (1..=TERMS).rev().fold(x, |rest, term| x + f64::from(term) / 2.0 / rest);
    -x * x - 0.5 * std::f64::consts::PI.ln() - fraction.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_agree_where_they_meet_and_with_published_values() {
        let near = libm::erfc(FAR).ln();
        assert!((ln_erfc(FAR) - near).abs() < 1e-13, "{} {near}", ln_erfc(FAR));
        // Abramowitz and Stegun, table 7.3: x exp(x^2) erfc(x) = 0.559 8... for large x goes to 1/sqrt(pi).
        for (x, expected) in
            [(-3.0, 1.999_977_909_503_001_4_f64), (0.0, 1.0), (1.0, 0.157_299_207_050_285_13)]
        {
            assert!((ln_erfc(x) - expected.ln()).abs() < 1e-14, "{x}");
        }
        // erfc(10) = 2.088487583762544757e-45, and erfc(30) = 2.564656203756111600e-393.
        assert!((ln_erfc(10.0) - (2.088_487_583_762_54e-45_f64).ln()).abs() < 1e-12);
        let ten = std::f64::consts::LN_10;
        assert!((ln_erfc(30.0) - (2.564_656_203_756_11_f64.ln() - 393.0 * ten)).abs() < 1e-10);
    }
}
