//! Updates in 8 and in 4 bits a value: unbiased, without memory from round to round, and the same bytes from the same seed on every
//! processor.
//!
//! | format | a value | how |
//! |---|---|---|
//! | [`Format::Int8`] | 8.1 bits | stochastic rounding with a scale for 256 values (Alistarh et al. 2017, "QSGD") |
//! | [`Format::Int4`] | 4.0 bits | random rotation, then the 16 best levels for normal values (Vargaftik et al. 2022, "EDEN") |
//!
//! A tensor becomes bytes of its own length and a few scales. Tensors that are too short to gain from it stay as they are, and so do those
//! that the caller spares: statistics and counts, whose errors nothing averages out.

mod file;
mod hadamard;
mod int4;
mod int8;

pub use file::{Marked, compresses, from_pieces, marked_from_pieces, read, to_bytes};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

/// A format with less than 16 bits a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// 8 bits, and a scale for each 256 values.
    Int8,
    /// 4 bits of rotated values, and a scale for each 4096.
    Int4,
}

/// How a set of parameters is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// The format.
    pub format: Format,
    /// What its randomness comes from: a new one for every set. The rotation's signs are drawn from it again where it is decompressed, so
    /// that it travels along.
    pub seed: [u8; 32],
}

/// The shortest tensor that is compressed, in values.
const LEAST: usize = 256;

impl Compression {
    /// What values are rounded by.
    fn rounding(&self) -> ChaCha8Rng {
        let mut rng = ChaCha8Rng::from_seed(self.seed);
        rng.set_stream(1);
        rng
    }

    /// The signs of the rotation.
    fn signs(seed: [u8; 32]) -> ChaCha8Rng {
        ChaCha8Rng::from_seed(seed)
    }
}
