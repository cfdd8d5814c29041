//! Krum and Multi-Krum.
//!
//! Blanchard, El Mhamdi, Guerraoui, Stainer: *Machine Learning with Adversaries: Byzantine Tolerant Gradient Descent*,
//! NIPS 2017 (arXiv 1703.02757), section 4:
//!
//! ```text
//! s(i) = sum of ||V_i - V_j||^2 over the n - f - 2 updates V_j that are closest to V_i
//! Krum(V_1 ... V_n) = V_i with the least score s(i)
//! Multi-Krum(V_1 ... V_n) = the mean of the m updates with the least scores
//! ```
//!
//! It withstands `f` wrong updates of `n >= 2 f + 3`. Of equal scores the one that comes first in the order of the clients
//! is taken.

use super::Template;
use super::distances::Distances;
use super::stored::{StoredError, StoredUpdates};

/// The least `n` for `f` wrong updates.
pub(super) fn least(byzantine: u32) -> usize {
    2 * byzantine as usize + 3
}

/// The updates whose mean is taken, in the order of the clients.
pub(super) fn choose(
    updates: &mut dyn StoredUpdates,
    template: &Template,
    byzantine: u32,
    chosen: usize,
) -> Result<Vec<usize>, StoredError> {
    let distances = Distances::measure(updates, template)?;
    let all: Vec<usize> = (0..distances.updates()).collect();
    Ok(best(&distances, &all, byzantine as usize, chosen))
}

/// The `chosen` of `among` with the least scores, in the order of the clients.
pub(super) fn best(distances: &Distances, among: &[usize], byzantine: usize, chosen: usize) -> Vec<usize> {
    let mut scored: Vec<(f64, usize)> =
        among.iter().map(|&update| (score(distances, among, byzantine, update), update)).collect();
    scored.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let mut best: Vec<usize> = scored.into_iter().take(chosen).map(|(_, update)| update).collect();
    best.sort_unstable();
    best
}

/// `s(i)`. Where fewer than `f + 3` are left, as happens inside Bulyan, the closest one alone is the neighbourhood.
fn score(distances: &Distances, among: &[usize], byzantine: usize, update: usize) -> f64 {
    let others = among.iter().filter(|&&other| other != update);
    let mut squares: Vec<f64> = others.map(|&other| distances.between(update, other)).collect();
    squares.sort_unstable_by(f64::total_cmp);
    let neighbours = among.len().saturating_sub(byzantine + 2).max(1);
    squares.iter().take(neighbours).sum()
}
