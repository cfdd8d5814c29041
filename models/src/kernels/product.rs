//! Products of matrices.
#![allow(unsafe_code)]

use gemm::Parallelism;

/// A matrix in memory: element (i, j) is at `i * row_stride + j * column_stride`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Rows one after the other.
    #[allow(dead_code)]
    pub(crate) fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        Self::strided(values, rows, columns, columns)
    }

    /// Rows that begin `row_stride` elements apart.
    pub(crate) fn strided(values: &'a [f32], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert!(values.len() >= extent(rows, columns, row_stride), "a matrix within its values");
        Self { values, rows, columns, row_stride, column_stride: 1 }
    }

    /// Some of the rows.
    pub(crate) fn rows(self, rows: std::ops::Range<usize>) -> Self {
        assert!(rows.start < rows.end && rows.end <= self.rows, "rows of the matrix");
        Self { values: &self.values[rows.start * self.row_stride..], rows: rows.len(), ..self }
    }

    pub(crate) fn transposed(self) -> Self {
        Self {
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
            ..self
        }
    }
}

/// Elements from the first to one past the last of a matrix with contiguous rows.
fn extent(rows: usize, columns: usize, row_stride: usize) -> usize {
    assert!(rows <= 1 || columns <= row_stride, "rows that do not overlap");
    if rows == 0 || columns == 0 { 0 } else { (rows - 1) * row_stride + columns }
}

/// `c = alpha a b + beta c` on the calling thread, for `c` with contiguous rows that begin `row_stride` elements apart.
/// With `beta` 0, `c` is only written.
pub(crate) fn product(alpha: f32, a: Matrix, b: Matrix, beta: f32, c: &mut [f32], row_stride: usize) {
    assert_eq!(a.columns, b.rows, "the inner sizes of a product");
    assert!(c.len() >= extent(a.rows, b.columns, row_stride), "a result within its values");
    // SAFETY: every element of the three matrices lies within its slice: for `a` and `b` their constructors check it,
    // for `c` the line above. `c` is borrowed mutably and so overlaps neither.
    unsafe {
        gemm::gemm(
            a.rows,
            b.columns,
            a.columns,
            c.as_mut_ptr(),
            1,
            row_stride as isize,
            beta != 0.0,
            a.values.as_ptr(),
            a.column_stride as isize,
            a.row_stride as isize,
            b.values.as_ptr(),
            b.column_stride as isize,
            b.row_stride as isize,
            beta,
            alpha,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}
