//! The noise that a run needs for an epsilon.

use shared::aggregation::{DeviceNoise, LEAST_NOISE};
use shared::privacy::{Noise, Renyi, device_noise};

use super::account::Account;

/// How close the multiplier that is looked for comes to the least.
const CLOSE: f64 = 1.0001;
/// The step from the multiplier of Rényi's account, which is quickly found, towards that of the tighter one.
const STEP: f64 = 1.1;

/// The least multiplier, to four digits and rounded up, with which this number of rounds stays within epsilon; `None` if none up to
/// `most` does.
#[must_use]
pub fn multiplier(rate: f64, rounds: u32, epsilon: f64, delta: f64, most: f64) -> Option<f64> {
    let loosely = |multiplier: f64| Renyi::of(Noise { multiplier, rate }, rounds).epsilon(delta) <= epsilon;
    let excess = |multiplier: f64| {
        (Account::of(Noise { multiplier, rate }).spent(rounds, delta).epsilon / epsilon).ln()
    };
    let most = if loosely(most) { bisected(LEAST_NOISE, most, STEP, loosely) } else { most };
    let mut most = (most, excess(most));
    if most.1 > 0.0 {
        return None;
    }
    let mut least = most;
    while least.1 <= 0.0 && least.0 > LEAST_NOISE {
        most = least;
        let next = (least.0 / STEP).max(LEAST_NOISE);
        least = (next, excess(next));
    }
    let most = if least.1 <= 0.0 { least.0 } else { interpolated(least, most, excess) };
    rounded_up(most)
}

/// The same for noise that this number of devices adds to updates of many values, where its units cost nothing.
#[must_use]
pub fn multiplier_of_devices(devices: u32, rounds: u32, epsilon: f64, delta: f64, most: f64) -> Option<f64> {
    let stays = |noise: f64| {
        let noise = DeviceNoise { clip: 1.0, noise, devices, over: devices, values: 1_000_000 };
        device_noise(&noise, rounds).epsilon(delta) <= epsilon
    };
    stays(most).then(|| bisected(LEAST_NOISE, most, CLOSE, stays)).and_then(rounded_up)
}

/// To four digits.
fn rounded_up(multiplier: f64) -> Option<f64> {
    let unit = 10f64.powi(multiplier.log10().floor() as i32 - 3);
    // As it is written, so that no digit of the product is one more.
    let shown =
        format!("{:.*}", (-unit.log10()).max(0.0).round() as usize, (multiplier / unit).ceil() * unit);
    shown.parse().ok()
}

/// The place between two, each with its value, where this falls below 0, or hardly more: by false position in the logarithm of places,
/// a little beyond the guess on the side that is to move, so that both ends come close.
fn interpolated(mut least: (f64, f64), mut most: (f64, f64), excess: impl Fn(f64) -> f64) -> f64 {
    // Half of the distance that is close enough, towards `most` first.
    let near = CLOSE.powf(0.4);
    let mut beyond = near;
    while most.0 / least.0 > CLOSE {
        let share =
            if most.1.is_finite() && least.1.is_finite() { least.1 / (least.1 - most.1) } else { 0.5 };
        let guess = least.0 * (most.0 / least.0).powf(share) * beyond;
        let place = if guess > least.0 && guess < most.0 { guess } else { (least.0 * most.0).sqrt() };
        let found = (place, excess(place));
        if found.1 <= 0.0 {
            (most, beyond) = (found, 1.0 / near);
        } else {
            (least, beyond) = (found, near);
        }
    }
    most.0
}

/// The least number from `least` to `most`, which is one, for which this is true, or a step more.
fn bisected(mut least: f64, mut most: f64, step: f64, is_enough: impl Fn(f64) -> bool) -> f64 {
    if is_enough(least) {
        return least;
    }
    while most / least > step {
        let middle = (least * most).sqrt();
        if is_enough(middle) { most = middle } else { least = middle }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_of_devices_costs_a_little_more() {
        let by_devices = multiplier_of_devices(20, 10, 8.0, 1e-2, 1000.0).expect("there is one");
        let by_server = multiplier(1.0, 10, 8.0, 1e-2, 1000.0).expect("there is one");
        assert!(by_devices > by_server && by_devices < 1.15 * by_server, "{by_devices} {by_server}");
        assert_eq!(multiplier_of_devices(20, 1_000_000, 1e-9, 1e-9, 1000.0), None);
    }

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
