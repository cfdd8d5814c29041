//! The noise that a run needs for an epsilon.

use shared::aggregation::LEAST_NOISE;

use super::account::Account;
use super::noise::Noise;
use super::renyi::Renyi;

/// How close the multiplier that is looked for comes to the least.
const CLOSE: f64 = 1.0001;
/// The step from the multiplier of Rényi's account, which is quickly found, towards that of the tighter one.
const STEP: f64 = 1.1;

/// The least multiplier, to four digits and rounded up, with which this number of rounds stays within epsilon; `None` if none up to
/// `most` does.
#[must_use]
pub fn multiplier(rate: f64, rounds: u32, epsilon: f64, delta: f64, most: f64) -> Option<f64> {
    let loosely = |multiplier: f64| Renyi::of(Noise { multiplier, rate }, rounds).epsilon(delta) <= epsilon;
    let stays =
        |multiplier: f64| Account::of(Noise { multiplier, rate }).spent(rounds, delta).epsilon <= epsilon;
    let mut most = if loosely(most) {
        bisected(LEAST_NOISE, most, loosely)
    } else if stays(most) {
        most
    } else {
        return None;
    };
    let mut least = most / STEP;
    while least > LEAST_NOISE && stays(least) {
        (least, most) = (least / STEP, least);
    }
    let most = bisected(least.max(LEAST_NOISE), most, stays);
    let unit = 10f64.powi(most.log10().floor() as i32 - 3);
    // As it is written, so that no digit of the product is one more.
    let shown = format!("{:.*}", (-unit.log10()).max(0.0).round() as usize, (most / unit).ceil() * unit);
    shown.parse().ok()
}

/// The least number from `least` to `most`, which is one, for which this is true, or hardly more.
fn bisected(mut least: f64, mut most: f64, is_enough: impl Fn(f64) -> bool) -> f64 {
    if is_enough(least) {
        return least;
    }
    while most / least > CLOSE {
        let middle = (least * most).sqrt();
        if is_enough(middle) { most = middle } else { least = middle }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_multiplier_is_enough_and_hardly_more() {
        for (rate, rounds, epsilon) in [(0.01, 1000, 2.0), (0.1, 100, 8.0), (1.0, 20, 1.0)] {
            let found = multiplier(rate, rounds, epsilon, 1e-5, 1000.0).expect("there is one");
            let of = |multiplier| Account::of(Noise { multiplier, rate }).spent(rounds, 1e-5).epsilon;
            assert!(of(found) <= epsilon && of(0.999 * found) > epsilon - 1e-9, "{found}: {}", of(found));
            assert!(found.to_string().len() <= 6, "{found}");
        }
        assert_eq!(multiplier(1.0, u32::MAX, 1e-9, 1e-9, 1000.0), None);
    }
}
