//! Products of few rows with a transposed matrix, `c = a b^T`, as dot products of rows without packing.
//!
//! This is a linear layer with a small batch. Packing the weights, as a general product does, would take longer than the
//! product.

#![expect(clippy::needless_range_loop, reason = "tiles of registers are indexed by row and column")]

use gemm::Parallelism;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::Matrix;
use crate::kernels::arch;
use crate::kernels::lanes::{self, LANES};

/// Rows of `a` up to which this is faster; measured on AVX-512 against `gemm` for 200 to 3 136 inner elements.
const MAX_ROWS: usize = 16;
/// Inner elements below which the horizontal sums at the end take too long.
const MIN_DEPTH: usize = 64;
/// Inner elements at a time, so that 16 rows of `a` and four of `b` stay in a first-level cache of 32 kB.
const DEPTH_BLOCK: usize = 384;
/// Elements of the result up to which `gemm` takes dot products of its own, except with NEON.
const MAX_OF_LIBRARY: usize = 256;
/// Inner elements that it takes at a time. Here they are as many for the same products, which so keep the bits of AVX-512.
const DEPTH_OF_LIBRARY: usize = 1024;
/// Columns of `c` per task.
const BLOCK_COLUMNS: usize = 32;

/// Rows and columns of `c` held in registers: twelve sums, with some values of `a` and `b`, in the 16 registers of AVX2.
const ROWS: usize = 3;
const COLUMNS: usize = 4;

/// Besides those for which this is faster, all products that `gemm` sums in an order that depends on the processor.
pub(super) fn applies(a: Matrix<'_>, b: Matrix<'_>) -> bool {
    let differs = a.columns > 0 && (a.rows * b.columns <= MAX_OF_LIBRARY || a.rows == 1 || b.columns == 1);
    a.column_stride == 1 && b.row_stride == 1 && (is_faster(a, b) || differs)
}

fn is_faster(a: Matrix<'_>, b: Matrix<'_>) -> bool {
    a.rows <= MAX_ROWS && a.columns >= MIN_DEPTH && b.columns > 1
}

/// As [`super::gemm`], for shapes for which [`applies`] is true.
pub(super) fn gemm(
    alpha: f32,
    a: Matrix<'_>,
    b: Matrix<'_>,
    beta: f32,
    c: &mut [f32],
    row_stride: usize,
    parallelism: Parallelism,
) {
    let columns = b.columns;
    let depth_block = if is_faster(a, b) { DEPTH_BLOCK } else { DEPTH_OF_LIBRARY };
    let block = |(block, sums): (usize, &mut [f32])| {
        let first = block * BLOCK_COLUMNS;
        let count = BLOCK_COLUMNS.min(columns - first);
        arch().dispatch(ColumnBlock { a, b, first, count, depth_block, sums });
    };
    // The sums are `[block][row][column]` and are copied to `c` afterwards, because blocks of columns of `c` are not contiguous
    // and cannot be borrowed by several threads.
    let mut sums = vec![0.0; columns.div_ceil(BLOCK_COLUMNS) * a.rows * BLOCK_COLUMNS];
    let blocks = sums.chunks_mut(a.rows * BLOCK_COLUMNS).enumerate();
    match parallelism {
        Parallelism::None => blocks.for_each(block),
        Parallelism::Rayon(_) => sums.par_chunks_mut(a.rows * BLOCK_COLUMNS).enumerate().for_each(block),
    }
    for (block, sums) in sums.chunks(a.rows * BLOCK_COLUMNS).enumerate() {
        let first = block * BLOCK_COLUMNS;
        let count = BLOCK_COLUMNS.min(columns - first);
        for (row, sums) in sums.chunks(BLOCK_COLUMNS).enumerate() {
            let c = &mut c[row * row_stride + first..][..count];
            for (c, sum) in c.iter_mut().zip(sums) {
                *c = if beta == 0.0 { alpha * sum } else { beta * *c + alpha * sum };
            }
        }
    }
}

/// Columns `first..first + count` of `a b`, into `sums`, `[row][BLOCK_COLUMNS]`.
///
/// There are no closures here, not even in `array::from_fn`: they are functions of their own, which are compiled without the
/// vector instructions unless the compiler happens to inline them.
struct ColumnBlock<'a> {
    a: Matrix<'a>,
    b: Matrix<'a>,
    first: usize,
    count: usize,
    depth_block: usize,
    sums: &'a mut [f32],
}

impl WithSimd for ColumnBlock<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let depth = self.a.columns;
        let mut start = 0;
        while start < depth {
            let end = (start + self.depth_block).min(depth);
            let mut column = 0;
            while column < self.count {
                let mut b: [&[f32]; COLUMNS] = [&[]; COLUMNS];
                for j in 0..COLUMNS {
                    // Past the end, the last column is computed again.
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
                            self.sums[(row + i) * BLOCK_COLUMNS + column + j] += tile[i][j];
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
    let mut lanes = [[[0.0; LANES]; COLUMNS]; ROWS];
    for part in 0..lanes::parts::<S>() {
        let sums = part_of_lanes(simd, part, a, b);
        for i in 0..ROWS {
            for j in 0..COLUMNS {
                *lanes::part::<S>(&mut lanes[i][j], part) = sums[i][j];
            }
        }
    }
    let mut dots = [[0.0; COLUMNS]; ROWS];
    for i in 0..ROWS {
        for j in 0..COLUMNS {
            dots[i][j] = lanes::sum(simd, &lanes[i][j]);
        }
    }
    dots
}

/// One vector of the lanes of these dot products.
#[inline(always)]
fn part_of_lanes<S: Simd>(
    simd: S,
    part: usize,
    a: [&[f32]; ROWS],
    b: [&[f32]; COLUMNS],
) -> [[S::f32s; COLUMNS]; ROWS] {
    let mut sums = [[simd.splat_f32s(0.0); COLUMNS]; ROWS];
    let length = a[0].len() / LANES * lanes::parts::<S>();
    let mut a_vectors: [&[S::f32s]; ROWS] = [&[]; ROWS];
    let mut b_vectors: [&[S::f32s]; COLUMNS] = [&[]; COLUMNS];
    // Cut to one length, so that the loops below need no bounds checks.
    for i in 0..ROWS {
        a_vectors[i] = &S::as_simd_f32s(a[i]).0[..length];
    }
    for j in 0..COLUMNS {
        b_vectors[j] = &S::as_simd_f32s(b[j]).0[..length];
    }
    let mut k = part;
    while k < length {
        for i in 0..ROWS {
            for j in 0..COLUMNS {
                sums[i][j] = simd.mul_add_e_f32s(a_vectors[i][k], b_vectors[j][k], sums[i][j]);
            }
        }
        k += lanes::parts::<S>();
    }
    if !a[0].len().is_multiple_of(LANES) {
        // What this part has of the last lanes: all of a vector, some, or zeros.
        let rest = (length + part) * S::F32_LANES;
        let rest = rest.min(a[0].len())..(rest + S::F32_LANES).min(a[0].len());
        for i in 0..ROWS {
            let a = simd.partial_load_f32s(&a[i][rest.clone()]);
            for j in 0..COLUMNS {
                let b = simd.partial_load_f32s(&b[j][rest.clone()]);
                sums[i][j] = simd.mul_add_e_f32s(a, b, sums[i][j]);
            }
        }
    }
    sums
}
