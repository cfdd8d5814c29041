//! Compressed sets as they are read: nothing is believed, and memory grows with what has arrived and the caller's limits alone.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use bytes::Bytes;
use rand_chacha::ChaCha8Rng;

use super::{AT, Described, How, KEY, Packed, SCALE, Values, seed};
use crate::compression::{Compression, int4, int8, positions};
use crate::params::codec::{Declared, DecodeError, Limits, Number, Pieces, read_array, read_each};
use crate::params::{Array, ParamSet, element_count};

/// What is said of bytes that are too few or too many.
const NOT_AS_MANY: &str = "its bytes and scales are not as many as its shape needs";

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
        let described = match metadata.remove(KEY) {
            Some(json) => serde_json::from_str(&json).map_err(DecodeError::Header)?,
            None => Described { signs: None, tensors: BTreeMap::new() },
        };
        let mut signs = described.signs.map(|words| Compression::signs(seed(words)));
        let (mut room, mut compressed) = (self.limits.max_values / 4, BTreeSet::new());
        for (name, how) in described.tensors {
            let shape = match &how {
                How::Int8 => match self.bytes.get(&name) {
                    Some((_, shape, _)) => shape.clone(),
                    None => return Err(wrong(&name, "it is not there")),
                },
                How::Int4(shape) | How::Sparse { shape, .. } => shape.clone(),
            };
            let count = element_count(&shape).filter(|&count| count as u64 <= room);
            let count = count.ok_or_else(|| wrong(&name, "its values are more than are accepted"))?;
            room -= count as u64;
            let values = match how {
                How::Int8 => self.unpack(&name, count, Values::Int8, &mut signs)?,
                How::Int4(_) => self.unpack(&name, count, Values::Int4, &mut signs)?,
                How::Sparse { kept, .. } if kept > count => return Err(wrong(&name, NOT_AS_MANY)),
                How::Sparse { kept, values, .. } => {
                    let kept = self.unpack(&name, kept, values, &mut signs)?;
                    self.spread(&name, count, &kept)?
                }
            };
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

    /// The `count` values that a tensor's bytes and scales stand for.
    fn unpack(
        &mut self,
        name: &str,
        count: usize,
        format: Values,
        signs: &mut Option<ChaCha8Rng>,
    ) -> Result<Vec<f32>, DecodeError> {
        let (expected, of_bytes, of_scales) = match format {
            Values::Float => {
                let array = self.params.remove(name).ok_or_else(|| wrong(name, "it is not there"))?;
                let fits = array.shape() == [count];
                return if fits { Ok(array.into_values()) } else { Err(wrong(name, NOT_AS_MANY)) };
            }
            Values::Int8 => (Packed::Signed, count, int8::scales(count)),
            Values::Int4 => (Packed::Unsigned, int4::bytes(count), int4::scales(count)),
        };
        let (number, _, bytes) = self.bytes.remove(name).ok_or_else(|| wrong(name, "it is not there"))?;
        if number != expected {
            return Err(wrong(name, "its values are of another type"));
        }
        let scales = self.params.remove(&format!("{name}{SCALE}"));
        let scales = scales.ok_or_else(|| wrong(name, "it has no scales"))?;
        if (bytes.len(), scales.values().len()) != (of_bytes, of_scales) {
            return Err(wrong(name, NOT_AS_MANY));
        }
        let mut values = Vec::with_capacity(count);
        if format == Values::Int4 {
            let signs = signs.as_mut().ok_or_else(|| wrong(name, "the seed of its signs is missing"))?;
            int4::decompress(count, &bytes, scales.values(), signs, &mut values);
        } else {
            int8::decompress(&bytes, scales.values(), &mut values);
        }
        Ok(values)
    }

    /// These values at the tensor's positions among `count`, and zeros elsewhere.
    fn spread(&mut self, name: &str, count: usize, kept: &[f32]) -> Result<Vec<f32>, DecodeError> {
        let positions = self.bytes.remove(&format!("{name}{AT}")).filter(|(of, ..)| *of == Packed::Unsigned);
        let (_, _, positions) = positions.ok_or_else(|| wrong(name, "it has no positions"))?;
        let (mut values, mut kept_values) = (vec![0.0; count], kept.iter());
        let spread = positions::decode(count, kept.len(), &positions, |position| {
            values[position] = *kept_values.next().expect("as many positions as values");
        });
        spread.map(|()| values).ok_or_else(|| wrong(name, "its positions are not those of its values"))
    }
}

fn wrong(tensor: &str, reason: &'static str) -> DecodeError {
    DecodeError::Compressed { tensor: tensor.to_owned(), reason }
}
