//! Compressed sets as bytes: still safetensors, which any of its readers opens.
//!
//! ```text
//! w           I8, of the tensor's shape, or U8 where two values share a byte
//! w.scale     F32, a scale for each chunk or block
//! metadata    "compressed": the signs' seed, and for each such tensor its format, and its shape where its bytes do not say it
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use safetensors::Dtype;

use super::{Compression, Format, LEAST, int4, int8};
use crate::params::codec::{
    Declared, DecodeError, Limits, Number, Pieces, check_names, header, read_array, read_each, write_head,
    write_values,
};
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
    let (mut signs, mut rounding) = (Compression::signs(compression.seed), compression.rounding());
    let mut described = Described { signs: None, tensors: BTreeMap::new() };
    let mut stored: BTreeMap<String, Stored<'_>> = BTreeMap::new();
    for (name, array) in params {
        let (count, of_scales) = (array.values().len(), format!("{name}{SCALE}"));
        if !compresses(params, name, spare) {
            stored.insert(name.to_owned(), Stored::Plain(array));
            continue;
        }
        let (mut bytes, mut scales) = (Vec::with_capacity(count), Vec::new());
        let shape = array.shape().to_vec();
        let (how, number, shape) = match compression.format {
            Format::Int8 => {
                int8::compress(array.values(), &mut rounding, &mut bytes, &mut scales);
                (How::Int8, Packed::Signed, shape)
            }
            Format::Int4 => {
                int4::compress(array.values(), &mut signs, &mut rounding, &mut bytes, &mut scales);
                described.signs = Some(words(compression.seed));
                (How::Int4(shape), Packed::Unsigned, vec![bytes.len()])
            }
        };
        described.tensors.insert(name.to_owned(), how);
        let scales_shape = [scales.len()];
        stored.insert(of_scales, Stored::Scales(scales, scales_shape));
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

/// [`read`](crate::params::codec::read) of a set that may be compressed; its values are what the compressed ones stand for. As many bytes as they take in
/// `f32` count against [`Limits::max_values`]; if that is 0, no tensor may be compressed.
///
/// # Errors
/// As [`read`](crate::params::codec::read), and [`DecodeError::Compressed`].
pub fn read(
    input: &mut dyn Read,
    limits: Limits,
) -> Result<(ParamSet, BTreeMap<String, String>), DecodeError> {
    let (mut found, mut buffer) = (Found::within(limits), Vec::new());
    let metadata = read_each(input, limits, |input, tensor: Declared<Packed>| {
        found.take(input, tensor, |input, tensor| read_array(input, tensor, &mut buffer))
    })?;
    found.decompress(metadata).map(|(params, _, metadata)| (params, metadata))
}

/// [`from_pieces`](crate::params::codec::from_pieces) of a set that may be compressed.
///
/// # Errors
/// As [`read`].
pub fn from_pieces(
    pieces: &[Bytes],
    limits: Limits,
) -> Result<(ParamSet, BTreeMap<String, String>), DecodeError> {
    marked_from_pieces(pieces, limits).map(|(params, _, metadata)| (params, metadata))
}

/// [`from_pieces`] with the names of the tensors that were compressed.
///
/// # Errors
/// As [`read`].
pub fn marked_from_pieces(pieces: &[Bytes], limits: Limits) -> Result<Marked, DecodeError> {
    let (mut found, mut buffer) = (Found::within(limits), Vec::new());
    let metadata = read_each(Pieces::of(pieces), limits, |pieces, tensor: Declared<Packed>| {
        found.take(pieces, tensor, |pieces, tensor| pieces.array(tensor, &mut buffer))
    })?;
    found.decompress(metadata)
}

/// A set, the names of its tensors that were compressed, and the metadata.
pub type Marked = (ParamSet, BTreeSet<String>, BTreeMap<String, String>);

/// The tensors of a file, of which some are compressed.
struct Found {
    limits: Limits,
    params: ParamSet,
    bytes: BTreeMap<String, (Packed, Vec<usize>, Vec<u8>)>,
}

impl Found {
    fn within(limits: Limits) -> Self {
        Self { limits, params: ParamSet::new(), bytes: BTreeMap::new() }
    }

    fn take<R: Read>(
        &mut self,
        input: &mut R,
        tensor: Declared<Packed>,
        array: impl FnOnce(&mut R, &Declared) -> Result<Array, DecodeError>,
    ) -> Result<(), DecodeError> {
        let Declared { name, number, shape, count } = tensor;
        match number {
            Packed::Float(number) => {
                let tensor = Declared { name, number, shape, count };
                let array = array(input, &tensor)?;
                self.params.insert(tensor.name, array);
            }
            Packed::Signed | Packed::Unsigned if self.limits.max_values == 0 => {
                return Err(DecodeError::UnsupportedType { tensor: name, dtype: number.dtype() });
            }
            Packed::Signed | Packed::Unsigned => {
                let mut bytes = Vec::new();
                // Memory grows with what has arrived.
                input.take(count as u64).read_to_end(&mut bytes).map_err(DecodeError::Io)?;
                if bytes.len() < count {
                    return Err(DecodeError::Truncated { within: format!("data of tensor `{name}`") });
                }
                self.bytes.insert(name, (number, shape, bytes));
            }
        }
        Ok(())
    }

    fn decompress(mut self, mut metadata: BTreeMap<String, String>) -> Result<Marked, DecodeError> {
        let wrong = |tensor: &str, reason: &'static str| DecodeError::Compressed {
            tensor: tensor.to_owned(),
            reason,
        };
        let described = match metadata.remove(KEY) {
            Some(json) => serde_json::from_str(&json).map_err(DecodeError::Header)?,
            None => Described { signs: None, tensors: BTreeMap::new() },
        };
        let mut signs = described.signs.map(|words| Compression::signs(seed(words)));
        let (mut room, mut compressed) = (self.limits.max_values / 4, BTreeSet::new());
        for (name, how) in described.tensors {
            let (number, shape, bytes) =
                self.bytes.remove(&name).ok_or_else(|| wrong(&name, "it is not there"))?;
            let (expected, shape) = match how {
                How::Int8 => (Packed::Signed, shape),
                How::Int4(shape) => (Packed::Unsigned, shape),
            };
            if number != expected {
                return Err(wrong(&name, "its values are of another type"));
            }
            let count = element_count(&shape).filter(|&count| count as u64 <= room);
            let count = count.ok_or_else(|| wrong(&name, "its values are more than are accepted"))?;
            room -= count as u64;
            let scales = self.params.remove(&format!("{name}{SCALE}"));
            let scales = scales.ok_or_else(|| wrong(&name, "it has no scales"))?;
            let fits = match number {
                Packed::Unsigned => {
                    int4::bytes(count) == bytes.len() && int4::scales(count) == scales.values().len()
                }
                _ => count == bytes.len() && int8::scales(count) == scales.values().len(),
            };
            if !fits {
                return Err(wrong(&name, "its bytes and scales are not as many as its shape needs"));
            }
            let mut values = Vec::with_capacity(count);
            if number == Packed::Unsigned {
                let signs = signs.as_mut().ok_or_else(|| wrong(&name, "the seed of its signs is missing"))?;
                int4::decompress(count, &bytes, scales.values(), signs, &mut values);
            } else {
                int8::decompress(&bytes, scales.values(), &mut values);
            }
            let array = Array::new(shape, values).expect("as many values as the shape needs");
            if self.params.insert(name.clone(), array).is_some() {
                return Err(wrong(&name, "it is there twice"));
            }
            compressed.insert(name);
        }
        match self.bytes.into_iter().next() {
            Some((name, _)) => Err(wrong(&name, "nothing says how it is compressed")),
            None => Ok((self.params, compressed, metadata)),
        }
    }
}

#[cfg(test)]
mod tests;
