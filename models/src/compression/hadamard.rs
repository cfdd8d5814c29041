//! The Walsh-Hadamard transform, an orthogonal map that is its own inverse, in `n log2 n` additions.
//!
//! Sums and differences are taken in one order on every processor, so that their bits are the same.

use crate::kernels::vectorised;

/// The longest block that is transformed: 16 KiB, which stay in the first-level cache.
pub(super) const MOST: usize = 4096;
/// The shortest.
pub(super) const LEAST: usize = 256;

/// Lengths of the blocks that a tensor of a number of values is cut into: as many of [`MOST`] as there are, then smaller powers of two, down to
/// [`LEAST`]. What is left is shorter than that.
pub(super) fn blocks(values: usize) -> impl Iterator<Item = usize> {
    let mut left = values;
    std::iter::from_fn(move || {
        let block = if left >= MOST { MOST } else { left.checked_ilog2().map_or(0, |log| 1 << log) };
        left -= block;
        (block >= LEAST).then_some(block)
    })
}

/// Transforms a block in place: every value becomes a sum of all, each with its sign, over the root of their number.
///
/// # Panics
/// If the length is no power of two of at least 8.
pub(super) fn transform(block: &mut [f32]) {
    assert!(block.len().is_power_of_two() && block.len() >= 8, "a power of two");
    vectorised(
        #[inline(always)]
        || {
            let n = block.len();
            for eight in block.as_chunks_mut::<8>().0 {
                *eight = first(*eight);
            }
            let mut half = 8;
            // Two steps at a time: half of the passes over memory.
            while half * 4 <= n {
                for quarter in block.chunks_exact_mut(4 * half) {
                    let (front, back) = quarter.split_at_mut(2 * half);
                    let ((a, b), (c, d)) = (front.split_at_mut(half), back.split_at_mut(half));
                    for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
                        let (ab, a_b, cd, c_d) = (*a + *b, *a - *b, *c + *d, *c - *d);
                        (*a, *b, *c, *d) = (ab + cd, a_b + c_d, ab - cd, a_b - c_d);
                    }
                }
                half *= 4;
            }
            if half < n {
                let (front, back) = block.split_at_mut(half);
                for (a, b) in front.iter_mut().zip(back) {
                    (*a, *b) = (*a + *b, *a - *b);
                }
            }
            let scale = 1.0 / (n as f32).sqrt();
            for value in block.iter_mut() {
                *value *= scale;
            }
        },
    );
}

/// The first three steps.
#[allow(clippy::inline_always, reason = "only what is inlined is compiled with the vectors of its caller")]
#[inline(always)]
fn first([a, b, c, d, e, f, g, h]: [f32; 8]) -> [f32; 8] {
    let (a, b, c, d, e, f, g, h) = (a + b, a - b, c + d, c - d, e + f, e - f, g + h, g - h);
    let (a, c, b, d, e, g, f, h) = (a + c, a - c, b + d, b - d, e + g, e - g, f + h, f - h);
    [a + e, b + f, c + g, d + h, a - e, b - f, c - g, d - h]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_matrix_of_signs_and_its_own_inverse() {
        for n in [8usize, 16, 32, 64, 256] {
            let x: Vec<f32> = (0..n).map(|i| ((i * 29) % 17) as f32 - 8.0).collect();
            let mut y = x.clone();
            transform(&mut y);
            for (row, found) in y.iter().enumerate() {
                // The sign is that of the common bits of row and column.
                let sign =
                    |column: usize| if (row & column).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                let sum: f32 = x.iter().enumerate().map(|(column, value)| sign(column) * value).sum();
                assert!((found - sum / (n as f32).sqrt()).abs() < 1e-4, "{n} {row}: {found} {sum}");
            }
            transform(&mut y);
            assert!(x.iter().zip(&y).all(|(x, y)| (x - y).abs() < 1e-5), "{n}");
        }
    }

    #[test]
    fn blocks_are_powers_of_two_that_leave_little() {
        let of = |values| blocks(values).collect::<Vec<_>>();
        assert!(of(255).is_empty());
        assert_eq!(of(256), [256]);
        assert_eq!(of(10_000), [4096, 4096, 1024, 512, 256]);
        assert!((0..20_000).step_by(37).all(|values| values - of(values).iter().sum::<usize>() < LEAST));
    }
}
