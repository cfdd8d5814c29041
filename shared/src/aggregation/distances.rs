//! How far updates are apart.

use super::Template;
use super::stored::{Chunk, StoredError, StoredUpdates};

/// Terms that are added side by side, so that the loop vectorises.
const LANES: usize = 8;

/// The squared Euclidean distances between all pairs of updates. Statistics of normalisation layers have no part in it:
/// they are no gradient, and their magnitudes are those of the data.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Distances {
    updates: usize,
    /// Row-major, both halves.
    squares: Vec<f64>,
}

impl Distances {
    /// Those of all stored updates: one pass over them, and a number for each pair.
    pub(super) fn measure(updates: &mut dyn StoredUpdates, template: &Template) -> Result<Self, StoredError> {
        let count = updates.contributors().len();
        let mut squares = vec![0.0; count * count];
        updates.pass(&mut |chunk: &Chunk<'_>| {
            if template.is_buffer(chunk.tensor) {
                return;
            }
            for (a, row) in chunk.rows.iter().enumerate() {
                for (b, other) in chunk.rows.iter().enumerate().skip(a + 1) {
                    squares[a * count + b] += square(row, other);
                }
            }
        })?;
        for a in 0..count {
            for b in 0..a {
                squares[a * count + b] = squares[b * count + a];
            }
        }
        Ok(Self { updates: count, squares })
    }

    /// Number of updates.
    pub(super) fn updates(&self) -> usize {
        self.updates
    }

    /// The squared distance of two of them.
    pub(super) fn between(&self, a: usize, b: usize) -> f64 {
        self.squares[a * self.updates + b]
    }
}

/// The squared distance of two equally long rows. Inlined, so that [`models::vectorised`] has vectors in it.
#[allow(clippy::inline_always, reason = "only what is inlined is compiled with the vectors of its caller")]
#[inline(always)]
pub(super) fn square(a: &[f32], b: &[f32]) -> f64 {
    let mut sums = [0.0; LANES];
    let (a, rest_a) = a.as_chunks::<LANES>();
    let (b, rest_b) = b.as_chunks::<LANES>();
    for (a, b) in a.iter().zip(b) {
        for ((sum, &a), &b) in sums.iter_mut().zip(a).zip(b) {
            let apart = f64::from(a) - f64::from(b);
            *sum += apart * apart;
        }
    }
    for ((sum, &a), &b) in sums.iter_mut().zip(rest_a).zip(rest_b) {
        let apart = f64::from(a) - f64::from(b);
        *sum += apart * apart;
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squares_of_rows_of_any_length() {
        for length in [0, 1, 7, 8, 9, 31] {
            let a: Vec<f32> = (0..length).map(|i| i as f32).collect();
            let b: Vec<f32> = a.iter().map(|a| a + 3.0).collect();
            assert_eq!(square(&a, &b).to_bits(), (9.0 * length as f64).to_bits());
        }
    }
}
