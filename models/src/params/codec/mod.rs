//! Parameter sets as bytes: [safetensors](https://github.com/huggingface/safetensors), readable by any of its readers.
//!
//! ```text
//! u64 LE: length of the header | header: JSON, padded with spaces to a multiple of 8 | data, row-major, little-endian
//! ```
//!
//! The same set, precision and metadata always give the same bytes: tensors, their data and the metadata are in name
//! order. Both directions stream, 16-bit values through a buffer of 64 KiB, so no second copy of a model is ever in memory.

mod checksum;
mod declaration;
mod decode;
mod decode_error;
mod encode;
mod number;
mod stream;

use std::collections::BTreeMap;
use std::io::{self, Read};

pub use checksum::{CHECKSUM_KEY, Verifying, write_with_checksum};
pub use decode::{from_pieces, from_shared, read, read_with_integers};
pub use decode_error::DecodeError;
pub use encode::{
    encoded_len, encoded_len_with_integers, to_pieces, write, write_header, write_values, write_with_integers,
};
pub use stream::{TensorCursor, TensorStream};

pub(crate) use declaration::Declared;
pub(crate) use decode::{Pieces, read_array, read_each};
pub(crate) use encode::{check_names, header, write_head};
pub(crate) use number::Number;

use super::{ParamSet, Precision};

/// The header key that holds free text about the file instead of a tensor.
const METADATA_KEY: &str = "__metadata__";

/// The header is padded so that the data begins at a multiple of this.
const ALIGNMENT: usize = 8;

/// Bytes converted and moved at a time: large enough for memory speed, small enough to stay in cache.
const CHUNK: usize = 64 * 1024;

/// What a reader accepts, checked before anything is allocated for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes in all: length field, header and data. The default is 4 GiB, about 10^9 values in `f32`.
    ///
    /// The values take four bytes each once read, so at most twice this in memory if they came in 16 bits.
    pub max_bytes: u64,
    /// The most bytes in the header. The default is 1 MiB; a tensor takes about 100.
    pub max_header: u64,
    /// The most tensors. The default is 10 000; ResNet-50 has 161.
    pub max_tensors: usize,
    /// The most bytes that the values of compressed tensors take in `f32`; 0 for none that is compressed. The default is 4 GiB.
    pub max_values: u64,
    /// Whether tensors may come in another order than that of their names. By default they may; this crate writes them in order.
    pub any_order: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_bytes: 4 << 30,
            max_header: 1 << 20,
            max_tensors: 10_000,
            max_values: 4 << 30,
            any_order: true,
        }
    }
}

impl Limits {
    /// The same for a set of which tensors are compressed: each comes with its scales and with the positions of its values, and is
    /// named once more.
    #[must_use]
    pub fn of_compressed(self) -> Self {
        Self { max_header: 4 * self.max_header, max_tensors: 3 * self.max_tensors, ..self }
    }
}

/// [`write()`] into memory.
///
/// # Errors
/// As [`write()`], for a tensor whose name the format reserves.
pub fn to_bytes(
    params: &ParamSet,
    precision: Precision,
    metadata: &BTreeMap<String, String>,
) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(encoded_len(params, precision, metadata) as usize);
    write(params, precision, metadata, &mut bytes)?;
    Ok(bytes)
}

/// [`to_bytes`] of `f32` values without metadata.
///
/// # Panics
/// If a tensor has the name that the format reserves, which no decoder lets through.
#[must_use]
pub fn plain_bytes(params: &ParamSet) -> Vec<u8> {
    to_bytes(params, Precision::F32, &BTreeMap::new()).expect("no tensor has the reserved name")
}

/// [`read`] from memory.
///
/// # Errors
/// As [`read`].
pub fn from_bytes(
    mut bytes: &[u8],
    limits: Limits,
) -> Result<(ParamSet, BTreeMap<String, String>), DecodeError> {
    read(&mut bytes, limits)
}

/// Fills the buffer or says what ended early.
fn fill(input: &mut dyn Read, buffer: &mut [u8], within: impl Fn() -> String) -> Result<(), DecodeError> {
    input.read_exact(buffer).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => DecodeError::Truncated { within: within() },
        _ => DecodeError::Io(error),
    })
}
