//! A vector times a matrix whose rows are contiguous: sums of rows.
//!
//! `gemm` rounds the products of these sums before it adds them on some processors, and does not on others.

use pulp::{Simd, WithSimd};

use super::Matrix;
use crate::kernels::arch;

/// Vectors of the result held in registers.
const VECTORS: usize = 8;
/// Inner elements for which `gemm` does the same everywhere.
const MAX_OF_LIBRARY: usize = 2;

/// Whether `a` is a row and those of `b` are contiguous.
pub(super) fn applies(a: Matrix<'_>, b: Matrix<'_>) -> bool {
    a.rows == 1 && a.columns > MAX_OF_LIBRARY && (b.column_stride == 1 || b.columns == 1)
}

/// `c <- alpha a b + beta c`, for shapes for which [`applies`] is true.
pub(super) fn gemm(alpha: f32, a: Matrix<'_>, b: Matrix<'_>, beta: f32, c: &mut [f32]) {
    arch().dispatch(Product { alpha, a, b, beta, c: &mut c[..b.columns] });
}

struct Product<'a> {
    alpha: f32,
    a: Matrix<'a>,
    b: Matrix<'a>,
    beta: f32,
    c: &'a mut [f32],
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { alpha, a, b, beta, c } = self;
        let block = VECTORS * S::F32_LANES;
        for (index, c) in c.chunks_mut(block).enumerate() {
            let mut sums = [simd.splat_f32s(0.0); VECTORS];
            if beta != 0.0 {
                for (sum, c) in sums.iter_mut().zip(c.chunks(S::F32_LANES)) {
                    *sum = simd.mul_f32s(simd.splat_f32s(beta), simd.partial_load_f32s(c));
                }
            }
            for k in 0..a.columns {
                let factor = simd.splat_f32s(alpha * a.values[k * a.column_stride]);
                let row = &b.values[k * b.row_stride + index * block..][..c.len()];
                if row.len() == block {
                    let (row, _) = S::as_simd_f32s(row);
                    for (sum, &row) in sums.iter_mut().zip(row) {
                        *sum = simd.mul_add_e_f32s(factor, row, *sum);
                    }
                } else {
                    for (sum, row) in sums.iter_mut().zip(row.chunks(S::F32_LANES)) {
                        *sum = simd.mul_add_e_f32s(factor, simd.partial_load_f32s(row), *sum);
                    }
                }
            }
            for (sum, c) in sums.into_iter().zip(c.chunks_mut(S::F32_LANES)) {
                simd.partial_store_f32s(c, sum);
            }
        }
    }
}
