//! Compressed sets as bytes: still safetensors, which any of its readers opens.
//!
//! ```text
//! w           I8, of the tensor's shape, or U8 where two values share a byte; where zeros are left out, the other values in any format
//! w.scale     F32, a scale for each chunk or block
//! w.at        U8, the positions of the values that are not zero
//! metadata    "compressed": the signs' seed, and for each such tensor its format, and its shape where its bytes do not say it
//! ```

mod read;

pub use read::{Marked, from_pieces, marked_from_pieces, read};

use std::collections::BTreeMap;
use std::io::{self, Write};

use half::{bf16, f16};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use safetensors::Dtype;

use super::{Compression, Format, LEAST, int4, int8, positions};
use crate::params::codec::{Number, check_names, header, write_head, write_values};
use crate::params::{Array, ParamSet, Precision, element_count};

/// Floating point, and bytes that stand for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packed {
    Float(Precision),
    /// A whole number of 8 bits each.
    Signed,
    /// Anything of 8 bits.
    Unsigned,
}

impl Number for Packed {
    fn from_dtype(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::I8 => Some(Self::Signed),
            Dtype::U8 => Some(Self::Unsigned),
            _ => Precision::from_dtype(dtype).map(Self::Float),
        }
    }

    fn dtype(self) -> Dtype {
        match self {
            Self::Float(precision) => precision.dtype(),
            Self::Signed => Dtype::I8,
            Self::Unsigned => Dtype::U8,
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Float(precision) => precision.bytes(),
            Self::Signed | Self::Unsigned => 1,
        }
    }
}

/// The metadata key.
const KEY: &str = "compressed";
/// What the name of a tensor's scales ends with.
const SCALE: &str = ".scale";
/// What the name of a tensor's positions ends with.
const AT: &str = ".at";

/// What the metadata says.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Described {
    /// The seed of the signs of int4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    signs: Option<[u64; 4]>,
    tensors: BTreeMap<String, How>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum How {
    Int8,
    /// With the shape.
    Int4(Vec<usize>),
    /// With the shape, the number of values that are there, and their format.
    Sparse {
        shape: Vec<usize>,
        kept: usize,
        #[serde(default, skip_serializing_if = "Values::is_float")]
        values: Values,
    },
}

/// The format of values beside which zeros are left out.
#[derive(Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Values {
    #[default]
    Float,
    Int8,
    Int4,
}

impl Values {
    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
    fn is_float(&self) -> bool {
        *self == Self::Float
    }

    fn of(format: Format) -> Self {
        match format {
            Format::Float(_) => Self::Float,
            Format::Int8 => Self::Int8,
            Format::Int4 => Self::Int4,
        }
    }
}

fn words(seed: [u8; 32]) -> [u64; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(seed.as_chunks::<8>().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    words
}

fn seed(words: [u64; 4]) -> [u8; 32] {
    let mut seed = [0; 32];
    for (bytes, word) in seed.as_chunks_mut::<8>().0.iter_mut().zip(words) {
        *bytes = word.to_le_bytes();
    }
    seed
}

/// One tensor as it is written.
enum Stored<'a> {
    Plain(&'a Array),
    Scales(Vec<f32>, [usize; 1]),
    Bytes(Packed, Vec<u8>, Vec<usize>),
}

impl Stored<'_> {
    fn shape(&self) -> &[usize] {
        match self {
            Self::Plain(array) => array.shape(),
            Self::Scales(_, shape) => shape,
            Self::Bytes(_, _, shape) => shape,
        }
    }

    fn number(&self) -> Packed {
        match self {
            Self::Plain(_) | Self::Scales(..) => Packed::Float(Precision::F32),
            Self::Bytes(number, ..) => *number,
        }
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Plain(array) => write_values(array.values(), out),
            Self::Scales(scales, _) => write_values(scales, out),
            Self::Bytes(_, bytes, _) => out.write_all(bytes),
        }
    }
}

/// Whether [`to_bytes`] compresses this tensor of a set: it is neither short nor spared, and the name of its scales is free.
pub fn compresses(params: &ParamSet, name: &str, spare: &dyn Fn(&str) -> bool) -> bool {
    params.get(name).is_some_and(|array| array.len() >= LEAST)
        && !spare(name)
        && params.get(&format!("{name}{SCALE}")).is_none()
}

/// Whether [`to_bytes`] leaves zeros out of this tensor, if it has enough of them and the [compression](Compression::sparse) says so.
pub fn leaves_out(params: &ParamSet, name: &str, spare: &dyn Fn(&str) -> bool) -> bool {
    compresses(params, name, spare) && params.get(&format!("{name}{AT}")).is_none()
}

/// Writes values in a format, with the randomness of the whole set.
struct Packer {
    format: Format,
    signs: ChaCha8Rng,
    rounding: ChaCha8Rng,
}

/// Values in a format.
struct PackedValues {
    number: Packed,
    bytes: Vec<u8>,
    scales: Vec<f32>,
}

impl Packer {
    fn pack(&mut self, values: &[f32], format: Format) -> PackedValues {
        let (mut bytes, mut scales) = (Vec::with_capacity(bytes_of(values.len(), format)), Vec::new());
        let number = match format {
            Format::Float(precision) => {
                match precision {
                    Precision::F32 => {
                        write_values(values, &mut bytes).expect("writing to a vector does not fail");
                    }
                    Precision::F16 => {
                        bytes.extend(values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()));
                    }
                    Precision::BF16 => {
                        bytes.extend(values.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes()));
                    }
                }
                Packed::Float(precision)
            }
            Format::Int8 => {
                int8::compress(values, &mut self.rounding, &mut bytes, &mut scales);
                Packed::Signed
            }
            Format::Int4 => {
                int4::compress(values, &mut self.signs, &mut self.rounding, &mut bytes, &mut scales);
                Packed::Unsigned
            }
        };
        PackedValues { number, bytes, scales }
    }

    /// The tensor's values that are not zero, and the bytes of their positions, if both take fewer bytes than all values.
    fn sparse(&self, array: &Array) -> Option<(Vec<f32>, Vec<u8>)> {
        let values = array.values();
        let there = |&(_, value): &(usize, &f32)| value.to_bits() != 0;
        let at: Vec<usize> = values.iter().enumerate().filter(there).map(|(at, _)| at).collect();
        let format = of_kept(at.len(), self.format);
        let room = bytes_of(values.len(), self.format).checked_sub(bytes_of(at.len(), format))?;
        let positions = positions::encode(values.len(), &at);
        (positions.len() < room).then(|| (at.into_iter().map(|at| values[at]).collect(), positions))
    }
}

/// The format of this number of values beside which zeros are left out: few are exact.
fn of_kept(kept: usize, format: Format) -> Format {
    if kept < LEAST && !matches!(format, Format::Float(_)) { Format::Float(Precision::F32) } else { format }
}

/// The bytes of a number of values, with their scales.
fn bytes_of(values: usize, format: Format) -> usize {
    match format {
        Format::Float(precision) => precision.bytes() * values,
        Format::Int8 => values + 4 * int8::scales(values),
        Format::Int4 => int4::bytes(values) + 4 * int4::scales(values),
    }
}

/// [`to_bytes`](crate::params::codec::to_bytes) of a set whose tensors are compressed, but for those that are short or that `spare` names, which are
/// exact.
///
/// # Errors
/// As [`write()`](crate::params::codec::write()), for a tensor whose name the format reserves.
pub fn to_bytes(
    params: &ParamSet,
    compression: &Compression,
    spare: &dyn Fn(&str) -> bool,
    metadata: &BTreeMap<String, String>,
) -> io::Result<Vec<u8>> {
    check_names(params)?;
    let Compression { format, sparse, seed } = *compression;
    let mut packer = Packer { format, signs: Compression::signs(seed), rounding: compression.rounding() };
    let mut described = Described { signs: None, tensors: BTreeMap::new() };
    let mut stored: BTreeMap<String, Stored<'_>> = BTreeMap::new();
    for (name, array) in params {
        if !compresses(params, name, spare) {
            stored.insert(name.to_owned(), Stored::Plain(array));
            continue;
        }
        let shape = array.shape().to_vec();
        let found = if sparse && leaves_out(params, name, spare) { packer.sparse(array) } else { None };
        let (how, packed, shape) = if let Some((kept, positions)) = found {
            let (format, length) = (of_kept(kept.len(), format), vec![positions.len()]);
            let packed = packer.pack(&kept, format);
            stored.insert(format!("{name}{AT}"), Stored::Bytes(Packed::Unsigned, positions, length));
            let how = How::Sparse { shape, kept: kept.len(), values: Values::of(format) };
            let length = packed.bytes.len() / packed.number.bytes();
            (Some(how), packed, vec![length])
        } else {
            let packed = packer.pack(array.values(), format);
            match format {
                Format::Float(_) => (None, packed, shape),
                Format::Int8 => (Some(How::Int8), packed, shape),
                Format::Int4 => {
                    let length = vec![packed.bytes.len()];
                    (Some(How::Int4(shape)), packed, length)
                }
            }
        };
        let PackedValues { number, bytes, scales } = packed;
        if number == Packed::Unsigned {
            described.signs = Some(words(seed));
        }
        described.tensors.extend(how.map(|how| (name.to_owned(), how)));
        if !matches!(number, Packed::Float(_)) {
            let length = [scales.len()];
            stored.insert(format!("{name}{SCALE}"), Stored::Scales(scales, length));
        }
        stored.insert(name.to_owned(), Stored::Bytes(number, bytes, shape));
    }
    let mut metadata = metadata.clone();
    if !described.tensors.is_empty() {
        metadata.insert(KEY.to_owned(), serde_json::to_string(&described).expect("names and numbers"));
    }
    let tensors = stored.iter().map(|(name, tensor)| (name.as_str(), tensor.shape(), tensor.number()));
    let mut out = Vec::new();
    write_head(&header(tensors, &metadata), &mut out)?;
    let length: usize = stored
        .values()
        .map(|tensor| element_count(tensor.shape()).unwrap_or(0) * tensor.number().bytes())
        .sum();
    out.reserve_exact(length);
    stored.values().try_for_each(|tensor| tensor.write(&mut out))?;
    Ok(out)
}

#[cfg(test)]
mod tests;
