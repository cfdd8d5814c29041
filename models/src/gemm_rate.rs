//! The CPU's peak rate of matrix products.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::kernels::gemm::{Matrix, gemm_parallel};

/// Rows and columns of the matrices: large enough to reach the peak, small enough for a device's caches.
const SIZE: usize = 512;

/// The peak rate of matrix products on the CPU, in floating-point operations per second: that of the fastest product of two
/// 512 x 512 matrices in `duration`, on the threads of the caller's rayon pool. A yardstick for the speed of training.
#[must_use]
pub fn peak_gemm_rate(duration: Duration) -> f64 {
    let (a, b) = (vec![0.5; SIZE * SIZE], vec![0.25; SIZE * SIZE]);
    let mut c = vec![0.0; SIZE * SIZE];
    let (a, b) = (Matrix::new(&a, SIZE, SIZE), Matrix::new(&b, SIZE, SIZE));
    let mut fastest = Duration::MAX;
    let start = Instant::now();
    while fastest == Duration::MAX || start.elapsed() < duration {
        let product = Instant::now();
        gemm_parallel(1.0, a, b, 0.0, black_box(&mut c), SIZE);
        fastest = fastest.min(product.elapsed());
    }
    2.0 * (SIZE as f64).powi(3) / fastest.as_secs_f64()
}
