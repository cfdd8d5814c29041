//! The noise that a run needs for an epsilon.

use shared::aggregation::LEAST_NOISE;

use super::account::{Account, Noise};

/// The least multiplier, to four digits and rounded up, with which this number of rounds stays within epsilon; `None` if none up to
/// `most` does.
#[must_use]
pub fn multiplier(rate: f64, rounds: u32, epsilon: f64, delta: f64, most: f64) -> Option<f64> {
    let stays = |multiplier: f64| Account::of(Noise { multiplier, rate }, rounds).epsilon(delta) <= epsilon;
    if !stays(most) {
        return None;
    }
    let (mut least, mut most) = (LEAST_NOISE, most);
    if stays(least) {
        return Some(least);
    }
    while most / least > 1.00001 {
        let middle = (least * most).sqrt();
        if stays(middle) { most = middle } else { least = middle }
    }
    let unit = 10f64.powi(most.log10().floor() as i32 - 3);
    // As it is written, so that no digit of the product is one more.
    let shown = format!("{:.*}", (-unit.log10()).max(0.0).round() as usize, (most / unit).ceil() * unit);
    shown.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_multiplier_is_enough_and_hardly_more() {
        for (rate, rounds, epsilon) in [(0.01, 1000, 2.0), (0.1, 100, 8.0), (1.0, 20, 1.0)] {
            let found = multiplier(rate, rounds, epsilon, 1e-5, 1000.0).expect("there is one");
            let of = |multiplier| Account::of(Noise { multiplier, rate }, rounds).epsilon(1e-5);
            assert!(of(found) <= epsilon && of(0.999 * found) > epsilon - 1e-9, "{found}: {}", of(found));
            assert!(found.to_string().len() <= 6, "{found}");
        }
        assert_eq!(multiplier(1.0, u32::MAX, 1e-9, 1e-9, 1000.0), None);
    }
}
