//! Bulyan, over Krum.
//!
//! El Mhamdi, Guerraoui, Rouault: *The Hidden Vulnerability of Distributed Learning in Byzantium*, ICML 2018
//! (arXiv 1802.07927), section 4:
//!
//! ```text
//! S = theta = n - 2 f updates, chosen one after the other by Krum among those that are left
//! Bulyan[i] = the mean of the beta = theta - 2 f values of S[i] that are closest to the median of S[i]
//! ```
//!
//! It withstands `f` wrong updates of `n >= 4 f + 3`: a wrong update that is close to the others as a whole cannot be far
//! from them in one value either. Of two values equally close to the median the smaller is taken.

use super::Template;
use super::columns::mean;
use super::distances::Distances;
use super::krum;
use super::median::median;
use super::stored::{StoredError, StoredUpdates};

/// The least `n` for `f` wrong updates.
pub(super) fn least(byzantine: u32) -> usize {
    4 * byzantine as usize + 3
}

/// `S`, in the order of the clients.
pub(super) fn choose(
    updates: &mut dyn StoredUpdates,
    template: &Template,
    byzantine: usize,
) -> Result<Vec<usize>, StoredError> {
    let distances = Distances::measure(updates, template)?;
    let mut left: Vec<usize> = (0..distances.updates()).collect();
    let theta = left.len().saturating_sub(2 * byzantine).max(1);
    let mut chosen = Vec::with_capacity(theta);
    while chosen.len() < theta {
        let best = krum::best(&distances, &left, byzantine, 1);
        left.retain(|update| !best.contains(update));
        chosen.extend(best);
    }
    chosen.sort_unstable();
    Ok(chosen)
}

/// The mean of the `kept` values that are closest to the median; their order changes.
pub(super) fn mean_around_median(values: &mut [f32], kept: usize) -> f32 {
    let middle = f64::from(median(values));
    values.sort_unstable_by(f32::total_cmp);
    // In order of size they stand together, and the window moves up as long as what enters is closer than what leaves.
    // Past equal values it moves without a change: something closer may come behind them.
    let apart = |value: f32| (f64::from(value) - middle).abs();
    let moves = |leaves: f32, enters: f32| apart(enters) < apart(leaves) || enters.total_cmp(&leaves).is_eq();
    let mut start = 0;
    while start + kept < values.len() && moves(values[start], values[start + kept]) {
        start += 1;
    }
    mean(&values[start..start + kept])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_values_closest_to_the_median_count() {
        for (values, kept, expected) in [
            (&mut [5.0][..], 1, 5.0),
            (&mut [1.0, 2.0, 3.0], 3, 2.0),
            // The median is 3: 2 and 4 are equally close, and the smaller is taken.
            (&mut [4.0, 3.0, 2.0], 2, 2.5),
            (&mut [100.0, 1.0, 2.0, 3.0, -7.0], 3, 2.0),
            // The median is 10: 9, 10 and 12 are closest.
            (&mut [12.0, 9.0, 10.0, 0.0, 500.0], 3, 31.0 / 3.0),
            (&mut [0.0, 0.0, 0.0, 9.0, 9.0], 2, 0.0),
            (&mut [6.0, 0.0, 0.0, 5.0, 0.0, 5.0, 6.0], 2, 5.0),
        ] {
            let expected: f32 = expected;
            assert_eq!(mean_around_median(values, kept).to_bits(), expected.to_bits());
        }
    }
}
