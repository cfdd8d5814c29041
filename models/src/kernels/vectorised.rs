//! Automatic vectorisation of plain loops for the CPU at run time.

use pulp::{Simd, WithSimd};

use crate::kernels::arch;

/// Runs `f` compiled for the CPU's best instruction set (AVX-512, AVX2 with FMA, NEON, or the target's baseline). `f` and all
/// that it calls in its loops must be `#[inline(always)]`: code that is not inlined is compiled for the baseline.
///
/// [`pulp::Arch::dispatch`] takes closures as well, but calls them by value, through a function that large closures are not
/// inlined into: they would run without vectors, with no warning.
#[inline(always)]
pub fn vectorised<T>(f: impl FnMut() -> T) -> T {
    arch().dispatch(Vectorised(f))
}

struct Vectorised<F>(F);

impl<T, F: FnMut() -> T> WithSimd for Vectorised<F> {
    type Output = T;

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, _: S) -> T {
        (self.0)()
    }
}
