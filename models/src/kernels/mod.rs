//! Kernels: the inner loops of training on the CPU, on row-major slices, images as `[n, channels, height, width]`.
//!
//! `pulp` and `gemm` choose the vector instructions at run time: AVX-512, AVX2 or NEON, else scalar code. Work is divided
//! among threads by shapes alone, and every sum has one order, so that results have the same bits for any number of threads. They
//! are the same with AVX2, AVX-512 and NEON, which all fuse multiplications with additions: sums over vectors have
//! [lanes] that do not depend on their length.

// Code inside `pulp`'s dispatch is compiled with its vector instructions only if it is inlined there.
#![allow(clippy::inline_always)]

mod activation;
mod aligned;
pub(crate) mod attention;
mod batch_groups;
pub(crate) mod bias;
pub(crate) mod channels;
mod copy;
pub(crate) mod correction;
pub(crate) mod depthwise;
pub(crate) mod direct;
pub(crate) mod elementwise;
pub(crate) mod embedding;
pub(crate) mod gemm;
pub(crate) mod geometry;
pub(crate) mod grouped;
pub(crate) mod im2col;
pub(crate) mod int8;
mod lanes;
pub(crate) mod lstm;
pub(crate) mod normalisation;
mod packed;
mod padded;
pub(crate) mod pointwise;
pub(crate) mod pooling;
pub(crate) mod rectifier;
#[cfg(test)]
mod reference;
pub(crate) mod simd;
pub(crate) mod softmax;
pub(crate) mod update;
mod vectorised;
mod vectors;
pub(crate) mod waves;
pub(crate) mod winograd;
pub(crate) mod workspace;

pub(crate) use simd::arch;
pub use vectorised::vectorised;

/// Pseudorandom values in `[-1, 1)` for tests.
#[cfg(test)]
pub(crate) fn noise(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_769).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}
