//! Matrix products.

/// A matrix in memory: `rows` x `columns`, element `(i, j)` at `i * row_stride + j * column_stride`.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Contiguous rows one after the other.
    pub(crate) fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        Self::strided(values, rows, columns, columns)
    }

    /// Contiguous rows that begin `row_stride` apart.
    pub(crate) fn strided(values: &'a [f32], rows: usize, columns: usize, row_stride: usize) -> Self {
        assert!(rows == 0 || columns == 0 || (rows - 1) * row_stride + columns <= values.len());
        Self { values, rows, columns, row_stride, column_stride: 1 }
    }

    pub(crate) fn transposed(self) -> Self {
        let Self { values, rows, columns, row_stride, column_stride } = self;
        Self { values, rows: columns, columns: rows, row_stride: column_stride, column_stride: row_stride }
    }
}

/// `c` (`row_stride` from row to row) `= alpha a b + beta c`, on the calling thread. With `beta` 0, what was in `c` does not
/// matter.
pub(crate) fn product(alpha: f32, a: Matrix, b: Matrix, beta: f32, c: &mut [f32], row_stride: usize) {
    assert_eq!(a.columns, b.rows);
    if a.rows == 0 || b.columns == 0 {
        return;
    }
    assert!(row_stride >= b.columns && (a.rows - 1) * row_stride + b.columns <= c.len());
    // SAFETY: the constructors check that all elements of `a` and `b` lie in their slices, and the assertion above that
    // those of `c` do, which nothing else refers to.
    #[expect(unsafe_code, reason = "the crate takes pointers")]
    unsafe {
        gemm::gemm(
            a.rows,
            b.columns,
            a.columns,
            c.as_mut_ptr(),
            1,
            row_stride.cast_signed(),
            beta != 0.0,
            a.values.as_ptr(),
            a.column_stride.cast_signed(),
            a.row_stride.cast_signed(),
            b.values.as_ptr(),
            b.column_stride.cast_signed(),
            b.row_stride.cast_signed(),
            beta,
            alpha,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
