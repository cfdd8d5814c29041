//! Products of 8-bit integers, for inference: weights of `i8` with a scale per output, activations of `u8` with a scale and a
//! zero point per sample or row (Jacob et al., CVPR 2018, section 2).
//!
//! Activations are quantised from `f32` where a layer needs them, by the range of the sample alone, and results are `f32` again:
//! sums of integers are exact, so that answers depend neither on threads nor on instructions nor on the other samples.
//!
//! Four 8-bit numbers that follow each other along the depth of a product are one `u32`, the first in its lowest byte: what
//! instructions for dot products take. Both factors of a product are packed once, in the order in which it reads them.

mod columns;
mod convolution;
mod depthwise;
mod finish;
mod linear;
mod lstm;
mod quantise;
mod tile;
mod weights;

pub(crate) use convolution::{Convolution, Scratch};
pub(crate) use depthwise::Depthwise;
pub(crate) use finish::Function;
pub(crate) use linear::Linear;
pub(crate) use lstm::Lstm;

/// The largest depth of a product whose sum cannot leave 32 bits: `2^31 / (255 * 127)`, rounded down to a power of two.
pub(crate) const MAX_DEPTH: usize = 1 << 16;

/// Columns of a panel: a vector of AVX-512, with four numbers in each of its parts.
const PANEL: usize = 16;

/// Rows whose sums are in registers together.
const ROWS: usize = 8;
