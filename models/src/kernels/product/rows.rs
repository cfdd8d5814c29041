//! Few rows times a transposed matrix: `c = a b^T` as dot products of rows with rows, without packing either.
//!
//! This is a linear layer in a small batch. Packing the weights, as a general product does, would take longer than using
//! them.

#![expect(clippy::needless_range_loop, reason = "tiles of registers are indexed by row and column")]

use gemm::Parallelism;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::Matrix;
use crate::kernels::arch;

/// Rows of `a` up to which this pays; measured on AVX-512 against `gemm` for 200 to 3 136 inner elements.
const FEW: usize = 16;
/// Inner elements below which the sums across vectors outweigh the rest.
const DEEP: usize = 64;
/// Inner elements at a time, so that 16 rows of `a` and four of `b` stay in a first-level cache of 32 kB.
const DEPTH: usize = 384;
/// Columns of `c` that one thread computes at a time.
const SHARE: usize = 32;

/// Rows and columns of `c` in registers: twelve sums, four values of `b`, one of `a`; AVX2 has 16 registers.
const ROWS: usize = 3;
const COLUMNS: usize = 4;

pub(super) fn applies(a: Matrix<'_>, b: Matrix<'_>) -> bool {
    a.rows <= FEW && a.columns >= DEEP && a.column_stride == 1 && b.row_stride == 1 && b.columns > 1
}

/// As [`super::product`], for what [`applies`].
pub(super) fn product(
    alpha: f32,
    a: Matrix<'_>,
    b: Matrix<'_>,
    beta: f32,
    c: &mut [f32],
    row_stride: usize,
    parallelism: Parallelism,
) {
    let columns = b.columns;
    let share = |(share, sums): (usize, &mut [f32])| {
        let first = share * SHARE;
        let count = SHARE.min(columns - first);
        arch().dispatch(Share { a, b, first, count, sums });
    };
    // The sums of one share after the other, `[share][row][column]`, then to their places: shares of columns cannot be
    // lent to threads from `c` itself.
    let mut sums = vec![0.0; columns.div_ceil(SHARE) * a.rows * SHARE];
    let shares = sums.chunks_mut(a.rows * SHARE).enumerate();
    match parallelism {
        Parallelism::None => shares.for_each(share),
        Parallelism::Rayon(_) => sums.par_chunks_mut(a.rows * SHARE).enumerate().for_each(share),
    }
    for (share, sums) in sums.chunks(a.rows * SHARE).enumerate() {
        let first = share * SHARE;
        let count = SHARE.min(columns - first);
        for (row, sums) in sums.chunks(SHARE).enumerate() {
            let c = &mut c[row * row_stride + first..][..count];
            for (c, sum) in c.iter_mut().zip(sums) {
                *c = if beta == 0.0 { alpha * sum } else { beta * *c + alpha * sum };
            }
        }
    }
}

/// Columns `first..first + count` of `a b`, into `sums`, `[row][SHARE]`.
///
/// Nothing here is a closure or an array made by one: those are functions of their own, which are compiled without the
/// vector instructions unless the compiler happens to inline them.
struct Share<'a> {
    a: Matrix<'a>,
    b: Matrix<'a>,
    first: usize,
    count: usize,
    sums: &'a mut [f32],
}

impl WithSimd for Share<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let depth = self.a.columns;
        let mut start = 0;
        while start < depth {
            let end = (start + DEPTH).min(depth);
            let mut column = 0;
            while column < self.count {
                let mut b: [&[f32]; COLUMNS] = [&[]; COLUMNS];
                for j in 0..COLUMNS {
                    // A column too many computes the last one again.
                    let column = self.first + (column + j).min(self.count - 1);
                    b[j] = &self.b.values[column * self.b.column_stride..][start..end];
                }
                let mut row = 0;
                while row < self.a.rows {
                    let mut a: [&[f32]; ROWS] = [&[]; ROWS];
                    for i in 0..ROWS {
                        let row = (row + i).min(self.a.rows - 1);
                        a[i] = &self.a.values[row * self.a.row_stride..][start..end];
                    }
                    let tile = dots(simd, a, b);
                    for i in 0..ROWS.min(self.a.rows - row) {
                        for j in 0..COLUMNS.min(self.count - column) {
                            self.sums[(row + i) * SHARE + column + j] += tile[i][j];
                        }
                    }
                    row += ROWS;
                }
                column += COLUMNS;
            }
            start = end;
        }
    }
}

/// The dot product of each of `a` with each of `b`, all of one length.
#[inline(always)]
fn dots<S: Simd>(simd: S, a: [&[f32]; ROWS], b: [&[f32]; COLUMNS]) -> [[f32; COLUMNS]; ROWS] {
    let zero = simd.splat_f32s(0.0);
    let mut sums = [[zero; COLUMNS]; ROWS];
    let length = a[0].len() / S::F32_LANES;
    let mut a_vectors: [&[S::f32s]; ROWS] = [&[]; ROWS];
    let mut b_vectors: [&[S::f32s]; COLUMNS] = [&[]; COLUMNS];
    // Cut to one length, so that no index below needs a check.
    for i in 0..ROWS {
        a_vectors[i] = &S::as_simd_f32s(a[i]).0[..length];
    }
    for j in 0..COLUMNS {
        b_vectors[j] = &S::as_simd_f32s(b[j]).0[..length];
    }
    for k in 0..length {
        for i in 0..ROWS {
            for j in 0..COLUMNS {
                sums[i][j] = simd.mul_add_e_f32s(a_vectors[i][k], b_vectors[j][k], sums[i][j]);
            }
        }
    }
    let rest = length * S::F32_LANES;
    if rest < a[0].len() {
        for i in 0..ROWS {
            let a = simd.partial_load_f32s(&a[i][rest..]);
            for j in 0..COLUMNS {
                let b = simd.partial_load_f32s(&b[j][rest..]);
                sums[i][j] = simd.mul_add_e_f32s(a, b, sums[i][j]);
            }
        }
    }
    let mut dots = [[0.0; COLUMNS]; ROWS];
    for i in 0..ROWS {
        for j in 0..COLUMNS {
            dots[i][j] = simd.reduce_sum_f32s(sums[i][j]);
        }
    }
    dots
}
