//! Training's inner loops on the CPU, on plain slices: row-major, samples outermost, images as planes of channels.
//!
//! Vector instructions are chosen when the program runs, by `pulp` and by `gemm`: AVX-512, AVX2 or NEON, and plain code
//! where there is none of them. Work is divided among threads by shapes alone, and every sum is taken in one order, so
//! that results have the same bits for any number of threads.

// What runs inside of `pulp`'s dispatch gets its vector instructions only by being inlined there.
#![allow(clippy::inline_always)]

mod activation;
pub(crate) mod bias;
pub(crate) mod columns;
pub(crate) mod correction;
pub(crate) mod direct;
pub(crate) mod embedding;
mod frame;
pub(crate) mod geometry;
mod groups;
mod instructions;
pub(crate) mod lstm;
pub(crate) mod normalisation;
mod panels;
pub(crate) mod pooling;
pub(crate) mod product;
#[cfg(test)]
mod reference;
mod rows;
pub(crate) mod softmax;
pub(crate) mod update;
mod vectorised;
pub(crate) mod winograd;

pub(crate) use instructions::arch;
pub use vectorised::vectorised;

/// Values in `[-1, 1)` for tests.
#[cfg(test)]
pub(crate) fn noise(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_769).wrapping_add(1);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}
