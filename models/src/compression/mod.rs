//! Updates in 8 and in 4 bits a value, unbiased, and updates of which a few values are sent: the same bytes from the same seed on every
//! processor. Nothing is kept from one set to the next; what is left out of updates is kept by its caller.
//!
//! | format | a value | how |
//! |---|---|---|
//! | [`Format::Float`] | 32 or 16 bits | as it is, or rounded |
//! | [`Format::Int8`] | 8.1 bits | stochastic rounding with a scale for 256 values (Alistarh et al. 2017, "QSGD") |
//! | [`Format::Int4`] | 4.0 bits | random rotation, then the 16 best levels for normal values (Vargaftik et al. 2022, "EDEN") |
//!
//! A tensor becomes bytes of its own length and a few scales. Where [zeros are left out](Compression::sparse), it becomes those of its other
//! values and their positions, in 5 to 8 bits each. Tensors that are too short to gain from it stay as they are, and so do those
//! that the caller spares: statistics and counts, whose errors nothing averages out.

mod file;
mod hadamard;
mod int4;
mod int8;
mod largest;
mod positions;

pub use file::{Marked, compresses, from_pieces, leaves_out, marked_from_pieces, read, to_bytes};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::params::{ParamSet, Precision};

/// A format of the values of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Floating point, for sets whose zeros are left out.
    Float(Precision),
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
    /// Whether zeros are left out, of tensors that take fewer bytes so.
    pub sparse: bool,
    /// What its randomness comes from: a new one for every set. The rotation's signs are drawn from it again where it is decompressed, so
    /// that it travels along.
    pub seed: [u8; 32],
}

/// Makes all values of a set zero but a share of each tensor, the largest by magnitude and at least one; of equal ones the first stay.
/// Tensors of which [`to_bytes`] leaves no zeros out stay whole.
///
/// The share is one of each tensor and not of the whole set: what is sent then follows from the shapes alone, and a layer whose values are
/// small beside those of others does not wait for its turn.
pub fn keep_largest(params: &mut ParamSet, share: f64, spare: &dyn Fn(&str) -> bool) {
    let names = params.names().filter(|name| leaves_out(params, name, spare)).map(str::to_owned);
    for name in names.collect::<Vec<_>>() {
        let values = params.get_mut(&name).expect("its own name").values_mut();
        largest::keep(values, largest::of_share(values.len(), share));
    }
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
