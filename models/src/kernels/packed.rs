//! Packed matrices, for products of a few rows with the same matrix, as in every step of a recurrence.
//!
//! A general product packs its operands each time, which for ten rows costs as much as the product. Here the matrix is packed
//! once. Each element of a result is one sum over the depth, from the first term to the last, so that rows may be divided
//! among threads in any way without changing a bit.

use pulp::Simd;

/// Columns that are stored next to each other: two vectors of AVX-512, four of AVX2.
const PANEL_COLUMNS: usize = 32;

/// Rows held in registers, each with two vectors of columns: ten sums, in the 16 registers of AVX2.
const ROWS: usize = 5;

/// A matrix of `depth` rows, stored by panels of columns: `[columns / PANEL_COLUMNS][depth][PANEL_COLUMNS]`.
#[derive(Debug, Default)]
pub(crate) struct PackedMatrix {
    values: Vec<f32>,
    depth: usize,
    columns: usize,
}

impl PackedMatrix {
    /// Packs a matrix, `[depth, columns]`.
    pub(crate) fn copy(&mut self, matrix: &[f32], depth: usize, columns: usize) {
        self.resize(depth, columns);
        for (panel, to) in self.values.chunks_exact_mut((depth * PANEL_COLUMNS).max(1)).enumerate() {
            let first = panel * PANEL_COLUMNS;
            let count = PANEL_COLUMNS.min(columns - first);
            for (from, to) in matrix.chunks_exact(columns).zip(to.chunks_exact_mut(PANEL_COLUMNS)) {
                to[..count].copy_from_slice(&from[first..first + count]);
            }
        }
    }

    /// Packs the transpose of a matrix, `[columns, depth]`.
    pub(crate) fn copy_transposed(&mut self, matrix: &[f32], depth: usize, columns: usize) {
        /// Values of a row copied at a time, so that the destination stays in the first-level cache.
        const BLOCK: usize = 16;
        self.resize(depth, columns);
        for (panel, to) in self.values.chunks_exact_mut((depth * PANEL_COLUMNS).max(1)).enumerate() {
            let rows = &matrix[panel * PANEL_COLUMNS * depth..];
            for (block, to) in to.chunks_mut(BLOCK * PANEL_COLUMNS).enumerate() {
                for (column, row) in rows.chunks_exact(depth).take(PANEL_COLUMNS).enumerate() {
                    for (from, to) in row[block * BLOCK..].iter().zip(to.chunks_exact_mut(PANEL_COLUMNS)) {
                        to[column] = *from;
                    }
                }
            }
        }
    }

    /// Sets the size. The unused columns of the last panel may hold any values: no result depends on them.
    fn resize(&mut self, depth: usize, columns: usize) {
        (self.depth, self.columns) = (depth, columns);
        self.values.resize(columns.div_ceil(PANEL_COLUMNS) * PANEL_COLUMNS * depth, 0.0);
    }

    /// `c <- c + a P` for `rows` rows, which begin `a_stride` values apart in `a` and `c_stride` in `c`.
    #[inline(always)]
    pub(crate) fn multiply_add<S: Simd>(
        &self,
        simd: S,
        rows: usize,
        (a, a_stride): (&[f32], usize),
        (c, c_stride): (&mut [f32], usize),
    ) {
        for (panel, values) in self.values.chunks_exact((self.depth * PANEL_COLUMNS).max(1)).enumerate() {
            let first = panel * PANEL_COLUMNS;
            let columns = first..(first + PANEL_COLUMNS).min(self.columns);
            for row in (0..rows).step_by(ROWS) {
                let (a, c) = (&a[row * a_stride..], &mut c[row * c_stride..]);
                let c = (c, c_stride, columns.clone());
                match rows - row {
                    1 => tile::<S, 1>(simd, values, (a, a_stride), c),
                    2 => tile::<S, 2>(simd, values, (a, a_stride), c),
                    3 => tile::<S, 3>(simd, values, (a, a_stride), c),
                    4 => tile::<S, 4>(simd, values, (a, a_stride), c),
                    _ => tile::<S, ROWS>(simd, values, (a, a_stride), c),
                }
            }
        }
    }
}

/// Adds the product of `R` rows and one panel to some columns of `c`.
#[inline(always)]
fn tile<S: Simd, const R: usize>(
    simd: S,
    panel: &[f32],
    (a, a_stride): (&[f32], usize),
    (c, c_stride, columns): (&mut [f32], usize, std::ops::Range<usize>),
) {
    let depth = panel.len() / PANEL_COLUMNS;
    let a: [&[f32]; R] = std::array::from_fn(|row| &a[row * a_stride..][..depth]);
    let mut sums = [[0.0f32; PANEL_COLUMNS]; R];
    let lanes = S::F32_LANES;
    for pair in (0..PANEL_COLUMNS).step_by(2 * lanes) {
        let zero = simd.splat_f32s(0.0);
        let mut tile = [[zero; 2]; R];
        for (k, values) in panel.chunks_exact(PANEL_COLUMNS).enumerate() {
            let (vectors, _) = S::as_simd_f32s(&values[pair..pair + 2 * lanes]);
            let [left, right] = [vectors[0], vectors[1]];
            for (tile, a) in tile.iter_mut().zip(&a) {
                let a = simd.splat_f32s(a[k]);
                tile[0] = simd.mul_add_e_f32s(a, left, tile[0]);
                tile[1] = simd.mul_add_e_f32s(a, right, tile[1]);
            }
        }
        for (sums, tile) in sums.iter_mut().zip(tile) {
            let (vectors, _) = S::as_mut_simd_f32s(&mut sums[pair..pair + 2 * lanes]);
            vectors.copy_from_slice(&tile);
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        for (c, sum) in c[row * c_stride..][columns.clone()].iter_mut().zip(sums) {
            *c += sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use pulp::WithSimd;

    use super::*;
    use crate::kernels::arch;
    use crate::kernels::noise;

    struct MultiplyAdd<'a>(&'a PackedMatrix, usize, (&'a [f32], usize), (&'a mut [f32], usize));

    impl WithSimd for MultiplyAdd<'_> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            self.0.multiply_add(simd, self.1, self.2, self.3);
        }
    }

    proptest! {
        #[test]
        fn rows_times_panels(
            rows in 1usize..13, depth in 1usize..40, columns in 1usize..100, gap in 0usize..3, transposed: bool,
        ) {
            let matrix = noise(depth * columns, 1);
            let at = |k: usize, j: usize| matrix[if transposed { j * depth + k } else { k * columns + j }];
            let mut panels = PackedMatrix::default();
            // A larger matrix packed earlier must not show.
            panels.copy(&noise(50 * 70, 4), 50, 70);
            if transposed {
                panels.copy_transposed(&matrix, depth, columns);
            } else {
                panels.copy(&matrix, depth, columns);
            }
            let (a_stride, c_stride) = (depth + gap, columns + gap);
            let (a, before) = (noise(rows * a_stride, 2), noise(rows * c_stride, 3));
            let mut c = before.clone();
            arch().dispatch(MultiplyAdd(&panels, rows, (&a, a_stride), (&mut c, c_stride)));
            for (index, (&found, &before)) in c.iter().zip(&before).enumerate() {
                let (row, column) = (index / c_stride, index % c_stride);
                if column >= columns {
                    prop_assert_eq!(found, before);
                    continue;
                }
                let terms = (0..depth).map(|k| f64::from(a[row * a_stride + k]) * f64::from(at(k, column)));
                let (sum, size) = terms.fold((f64::from(before), f64::from(before.abs())), |(sum, size), term| {
                    (sum + term, size + term.abs())
                });
                prop_assert!((f64::from(found) - sum).abs() < 1e-6 * size, "({row}, {column}): {found} {sum}");
            }
            // One row alone gets the same bits.
            let mut alone = before[..columns].to_vec();
            arch().dispatch(MultiplyAdd(&panels, 1, (&a, a_stride), (&mut alone, columns)));
            prop_assert_eq!(&alone, &c[..columns]);
        }
    }
}
