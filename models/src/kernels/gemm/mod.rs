//! Matrix products.
//!
//! The `gemm` crate computes most of them: it picks AVX2, AVX-512 or NEON at run time and comes within a tenth of the
//! processor's peak for nearly every shape that training needs. For the exception, few rows times a transposed matrix, there
//! is [`dot_products`]. The choice depends on the shapes alone, and every element is summed in one order, each part of its sum
//! by one thread, so that the result has the same bits for any number of threads.
//!
//! They are the same with AVX2, AVX-512 and NEON as well: all of them fuse multiplications with additions, and what the crate
//! sums in an order of the processor's own, or rounds otherwise, is done here.

#![allow(unsafe_code)] // One call, in `call`, behind checks of every length.

mod dot_products;
mod vector;

use std::ops::Range;

use gemm::Parallelism;

/// Multiply-adds from which several threads share a product, although they wait for each other at each of its blocks: about 80
/// microseconds of work.
const MIN_PARALLEL_WORK: usize = 1 << 22;
/// Inner elements that `gemm` sums at a time with any caches.
const MAX_DEPTH: usize = 512;
/// Rows and columns up to which `gemm` does not look at the caches.
const SMALL: usize = 64;

/// A matrix in memory: element `(i, j)` is `values[i * row_stride + j * column_stride]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// A contiguous matrix.
    pub(crate) fn new(values: &'a [f32], rows: usize, columns: usize) -> Self {
        Self::strided(values, rows, columns, columns)
    }

    /// Rows that begin `row_stride` elements apart.
    pub(crate) fn strided(values: &'a [f32], rows: usize, columns: usize, row_stride: usize) -> Self {
        let matrix = Self { values, rows, columns, row_stride, column_stride: 1 };
        let fits = matrix.extent().is_some_and(|extent| extent <= values.len());
        assert!(fits, "{rows} x {columns} by {row_stride} in {}", values.len());
        matrix
    }

    /// The transpose, as a view.
    pub(crate) fn transposed(self) -> Self {
        Self {
            values: self.values,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }

    /// Some rows of this matrix.
    pub(crate) fn rows(self, rows: Range<usize>) -> Self {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "rows {rows:?} of {}", self.rows);
        let start = (rows.start * self.row_stride).min(self.values.len());
        Self { values: &self.values[start..], rows: rows.len(), ..self }
    }

    /// Some columns of this matrix.
    pub(crate) fn columns(self, columns: Range<usize>) -> Self {
        assert!(
            columns.start <= columns.end && columns.end <= self.columns,
            "columns {columns:?} of {}",
            self.columns
        );
        let start = (columns.start * self.column_stride).min(self.values.len());
        Self { values: &self.values[start..], columns: columns.len(), ..self }
    }

    /// One past the last element's index; `None` if it overflows.
    fn extent(&self) -> Option<usize> {
        if self.rows == 0 || self.columns == 0 {
            return Some(0);
        }
        let last_row = (self.rows - 1).checked_mul(self.row_stride)?;
        (self.columns - 1).checked_mul(self.column_stride)?.checked_add(last_row)?.checked_add(1)
    }
}

/// `c <- alpha a b + beta c` on the calling thread, where row `i` of `c` begins at `i * row_stride`.
///
/// With `beta` 0 the old values of `c` are ignored, even NaN.
///
/// # Panics
/// If the shapes do not fit: our mistake.
pub(crate) fn gemm(alpha: f32, a: Matrix<'_>, b: Matrix<'_>, beta: f32, c: &mut [f32], row_stride: usize) {
    run(alpha, a, b, beta, c, row_stride, Parallelism::None);
}

/// [`gemm`] on the threads of the current pool, if there is enough work. The result has the same bits for any number of
/// threads: they share out its elements. A product of at most two inner elements, or with a single column, has one thread.
pub(crate) fn gemm_parallel(
    alpha: f32,
    a: Matrix<'_>,
    b: Matrix<'_>,
    beta: f32,
    c: &mut [f32],
    row_stride: usize,
) {
    let work = a.rows.saturating_mul(a.columns).saturating_mul(b.columns);
    let parallel = work >= MIN_PARALLEL_WORK && rayon::current_num_threads() > 1;
    let parallelism = if parallel { Parallelism::Rayon(0) } else { Parallelism::None };
    run(alpha, a, b, beta, c, row_stride, parallelism);
}

fn run(
    alpha: f32,
    a: Matrix<'_>,
    b: Matrix<'_>,
    beta: f32,
    c: &mut [f32],
    row_stride: usize,
    parallelism: Parallelism,
) {
    assert_eq!(a.columns, b.rows, "the inner sizes of a product");
    if a.rows == 0 || b.columns == 0 {
        return;
    }
    assert!(b.columns <= row_stride || a.rows == 1, "the rows of a product overlap");
    let extent = (a.rows - 1).checked_mul(row_stride).and_then(|last| last.checked_add(b.columns));
    assert!(extent.is_some_and(|extent| extent <= c.len()), "a product larger than its place");
    if dot_products::applies(a, b) {
        dot_products::gemm(alpha, a, b, beta, c, row_stride, parallelism);
    } else if vector::applies(a, b) {
        vector::gemm(alpha, a, b, beta, c);
    } else if row_stride == 1 && vector::applies(b.transposed(), a.transposed()) {
        vector::gemm(alpha, b.transposed(), a.transposed(), beta, c);
    } else {
        in_depths(alpha, a, b, beta, c, row_stride, parallelism);
    }
}

/// [`call`] for one part of the inner elements after the other. Left to itself, `gemm` would cut them by the size of the
/// processor's caches, at this length or later, and each part is a sum of its own.
fn in_depths(
    alpha: f32,
    a: Matrix<'_>,
    b: Matrix<'_>,
    beta: f32,
    c: &mut [f32],
    row_stride: usize,
    parallelism: Parallelism,
) {
    let depth = a.columns;
    // As `gemm` does: equal parts, unless the result is small.
    let small = a.rows <= SMALL && b.columns <= SMALL;
    let part = if small { MAX_DEPTH } else { depth.div_ceil(depth.div_ceil(MAX_DEPTH).max(1)) };
    let (mut start, mut beta) = (0, beta);
    loop {
        let end = depth.min(start + part);
        call(alpha, a.columns(start..end), b.rows(start..end), beta, c, row_stride, parallelism);
        if end == depth {
            return;
        }
        (start, beta) = (end, 1.0);
    }
}

fn call(
    alpha: f32,
    a: Matrix<'_>,
    b: Matrix<'_>,
    beta: f32,
    c: &mut [f32],
    row_stride: usize,
    parallelism: Parallelism,
) {
    // A stride is below the length of its slice, which is at most `isize::MAX`, unless there is a single row or column, and
    // then it is never used.
    let stride = usize::cast_signed;
    // SAFETY: every element `i * row_stride + j * column_stride` with `i < rows` and `j < columns` is below `extent`,
    // which the constructors checked against the slice for `a` and `b`, and `run` for `c`, whose rows do not overlap.
    // `c` is borrowed mutably and so shares nothing with `a` and `b`. f32 has no invalid values.
    unsafe {
        gemm::gemm(
            a.rows,
            b.columns,
            a.columns,
            c.as_mut_ptr(),
            1,
            stride(row_stride),
            beta != 0.0,
            a.values.as_ptr(),
            stride(a.column_stride),
            stride(a.row_stride),
            b.values.as_ptr(),
            stride(b.column_stride),
            stride(b.row_stride),
            beta,
            alpha,
            false,
            false,
            false,
            parallelism,
        );
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::noise;

    /// The product in f64, and the sum of the absolute values of what is added up.
    fn naive(
        alpha: f32,
        a: Matrix<'_>,
        b: Matrix<'_>,
        beta: f32,
        c: &[f32],
        row_stride: usize,
    ) -> Vec<(f64, f64)> {
        let at =
            |m: Matrix<'_>, i: usize, j: usize| f64::from(m.values[i * m.row_stride + j * m.column_stride]);
        let element = |i: usize, j: usize| {
            let kept = if beta == 0.0 { 0.0 } else { f64::from(beta) * f64::from(c[i * row_stride + j]) };
            let terms = (0..a.columns).map(|k| f64::from(alpha) * at(a, i, k) * at(b, k, j));
            terms.fold((kept, kept.abs()), |(sum, size), term| (sum + term, size + term.abs()))
        };
        (0..a.rows).flat_map(|i| (0..b.columns).map(move |j| (i, j))).map(|(i, j)| element(i, j)).collect()
    }

    fn matrix(values: &[f32], rows: usize, columns: usize, transposed: bool) -> Matrix<'_> {
        if transposed {
            Matrix::new(values, columns, rows).transposed()
        } else {
            Matrix::new(values, rows, columns)
        }
    }

    proptest! {
        #[test]
        fn every_shape_order_and_stride(
            m in 1usize..40, n in 1usize..70, k in 0usize..90,
            turned in any::<[bool; 2]>(),
            gap in 0usize..3,
            alpha in prop::sample::select(vec![1.0f32, -0.5]),
            beta in prop::sample::select(vec![0.0f32, 1.0, 0.25]),
        ) {
            let (a, b) = (noise(m * k, 1), noise(k * n, 2));
            let (a, b) = (matrix(&a, m, k, turned[0]), matrix(&b, k, n, turned[1]));
            let stride = n + gap;
            let before = if beta == 0.0 { vec![f32::NAN; m * stride] } else { noise(m * stride, 3) };
            let mut c = before.clone();
            gemm(alpha, a, b, beta, &mut c, stride);
            let expected = naive(alpha, a, b, beta, &before, stride);
            for (i, row) in c.chunks(stride).enumerate() {
                for (j, found) in row.iter().enumerate() {
                    if j < n {
                        let (value, size) = expected[i * n + j];
                        prop_assert!((f64::from(*found) - value).abs() <= 1e-6 * size + 1e-30, "({i}, {j}): {found} {value}");
                    } else {
                        prop_assert_eq!(found.to_bits(), before[i * stride + j].to_bits());
                    }
                }
            }
        }
    }

    #[test]
    fn threads_do_not_show() {
        for (m, n, k, turned) in [
            (10, 512, 3136, [false, true]),
            (64, 200, 784, [false, true]),
            (200, 784, 64, [true, false]),
            (33, 3137, 70, [false, false]),
            (100, 4001, 256, [false, true]),
            (100, 256, 4001, [false, false]),
            (4001, 256, 100, [true, false]),
            (16, 1030, 600, [true, true]),
        ] {
            let (a, b) = (noise(m * k, 1), noise(k * n, 2));
            let (a, b) = (matrix(&a, m, k, turned[0]), matrix(&b, k, n, turned[1]));
            let bits = |threads| {
                let mut c = vec![0.0; m * n];
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| gemm_parallel(1.0, a, b, 0.0, &mut c, n));
                c.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
            };
            let one = bits(1);
            assert!([2, 3, 5].into_iter().all(|threads| bits(threads) == one), "{m} x {n} x {k}");
        }
    }

    /// With shapes on both sides of every limit, and for each of the ways in which matrices lie in memory.
    #[test]
    fn products_have_the_same_bits_on_every_processor() {
        if matches!(crate::kernels::arch(), pulp::Arch::Scalar) {
            return; // Products are rounded before they are added.
        }
        let mut crc = crc32fast::Hasher::new();
        for (m, n) in [(1, 1), (1, 70), (70, 1), (3, 5), (17, 15), (17, 33), (70, 70)] {
            for k in [1, 2, 3, 16, 33, 100, 700, 1100] {
                for turned in [[false, false], [false, true], [true, false], [true, true]] {
                    for (alpha, beta, gap) in [(1.0, 0.0, 0), (-0.3, 1.0, 0), (0.7, 0.3, 2)] {
                        let (a, b, mut c) = (noise(m * k, 1), noise(k * n, 2), noise(m * (n + gap), 3));
                        let (a, b) = (matrix(&a, m, k, turned[0]), matrix(&b, k, n, turned[1]));
                        gemm(alpha, a, b, beta, &mut c, n + gap);
                        for value in c {
                            crc.update(&value.to_le_bytes());
                        }
                    }
                }
            }
        }
        assert_eq!(crc.finalize(), 3_819_427_014);
    }

    #[test]
    #[should_panic(expected = " in 0")]
    fn sizes_whose_product_wraps_around_are_no_matrix() {
        // The last element's index plus one is 2^64.
        Matrix::new(&[], 1 << 33, 1 << 31);
    }

    #[test]
    #[should_panic(expected = "larger than its place")]
    fn a_result_that_does_not_fit_is_our_mistake() {
        let (a, b) = ([0.0; 6], [0.0; 6]);
        gemm(1.0, Matrix::new(&a, 2, 3), Matrix::new(&b, 3, 2), 0.0, &mut [0.0; 3], 2);
    }
}
