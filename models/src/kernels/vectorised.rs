//! Plain loops on the vector instructions of the CPU at hand.

use pulp::{Simd, WithSimd};

use crate::kernels::arch;

/// Runs `f` compiled for the best instruction set that the CPU has (AVX-512, AVX2 with FMA, NEON, or what the target has at
/// least). `f` and all that it calls in its loops must be `#[inline(always)]`: what is not inlined stays as it was.
///
/// [`pulp::Arch::dispatch`] takes closures as well, but calls them by value, through a function that large closures are not
/// inlined into: they would quietly run without vectors.
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
