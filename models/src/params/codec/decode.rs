//! Reading: everything the header declares is checked before data is read, and memory grows as data arrives.

use std::collections::BTreeMap;
use std::io::{self, Read};

use bytes::Bytes;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

use super::declaration::{Declared, declarations};
use super::number::{AnyNumber, Number};
use super::{CHUNK, DecodeError, Limits, fill};
use crate::params::{Array, IntegerFormat, IntegerSet, Integers, ParamSet, Precision};

/// Reads a parameter set and its metadata from safetensors bytes, up to the end of `input`.
///
/// `F32`, `F16` and `BF16` are accepted, mixed as they may be, and become `f32`. Any bytes give a set or an error, and
/// memory is allocated for no more than has arrived plus 16 MiB.
///
/// # Errors
/// [`DecodeError`] for the first thing wrong.
pub fn read(
    input: &mut dyn Read,
    limits: Limits,
) -> Result<(ParamSet, BTreeMap<String, String>), DecodeError> {
    let mut buffer = Vec::new();
    read_with(input, limits, |input, tensor| read_array(input, tensor, &mut buffer))
}

/// [`read`] of bytes that may hold integer tensors (`I64`, `I32`) as well.
///
/// # Errors
/// As [`read`].
pub fn read_with_integers(
    input: &mut dyn Read,
    limits: Limits,
) -> Result<(ParamSet, IntegerSet, BTreeMap<String, String>), DecodeError> {
    let (mut params, mut integers, mut buffer) = (ParamSet::new(), IntegerSet::new(), Vec::new());
    let metadata = read_each(input, limits, |input, tensor: Declared<AnyNumber>| {
        let Declared { name, number, shape, count } = tensor;
        match number {
            AnyNumber::Float(number) => {
                let tensor = Declared { name, number, shape, count };
                let array = read_array(input, &tensor, &mut buffer)?;
                params.insert(tensor.name, array);
            }
            AnyNumber::Integer(format) => {
                let values = match format {
                    IntegerFormat::I64 => read_integers(input, &name, count, i64::from_le)?,
                    IntegerFormat::I32 => {
                        read_integers(input, &name, count, |value| i64::from(i32::from_le(value)))?
                    }
                };
                let tensor =
                    Integers::new(shape, values).expect("as many values were read as the shape needs");
                integers.insert(name, tensor.in_format(format));
            }
        }
        Ok(())
    })?;
    Ok((params, integers, metadata))
}

/// [`read`] from a message in memory, without a copy of it: an `F32` tensor that can be read where it lies stays there, and
/// keeps the message. A broadcast is trained from and an update is folded with as much memory as they came in.
///
/// # Errors
/// As [`read`].
pub fn from_shared(
    message: &Bytes,
    limits: Limits,
) -> Result<(ParamSet, BTreeMap<String, String>), DecodeError> {
    from_pieces(std::slice::from_ref(message), limits)
}

/// [`from_shared`] of a message in pieces, one after the other. A tensor that is spread over several is copied.
///
/// # Errors
/// As [`read`].
pub fn from_pieces(
    pieces: &[Bytes],
    limits: Limits,
) -> Result<(ParamSet, BTreeMap<String, String>), DecodeError> {
    let mut buffer = Vec::new();
    read_with(Pieces::of(pieces), limits, |pieces, tensor| pieces.array(tensor, &mut buffer))
}

/// A message in pieces while it is read.
pub(crate) struct Pieces<'a> {
    later: std::slice::Iter<'a, Bytes>,
    /// What is left of the piece that is read.
    piece: Option<Bytes>,
}

impl<'a> Pieces<'a> {
    /// From the beginning.
    pub(crate) fn of(pieces: &'a [Bytes]) -> Self {
        Self { later: pieces.iter(), piece: None }
    }

    /// The next tensor, which stays where it lies if it can be read there.
    pub(crate) fn array(&mut self, tensor: &Declared, buffer: &mut Vec<u8>) -> Result<Array, DecodeError> {
        let lent = (tensor.number == Precision::F32)
            .then(|| self.take(tensor.count * Precision::F32.bytes()))
            .flatten()
            .and_then(|(data, rest)| Some((Array::lent(&tensor.shape, data)?, rest)));
        match lent {
            Some((array, rest)) => {
                self.piece = Some(rest);
                Ok(array)
            }
            None => read_array(self, tensor, buffer),
        }
    }

    /// What is left of the piece that is read; of the next one that is not empty, if nothing is.
    fn piece(&mut self) -> &Bytes {
        while self.piece.as_ref().is_none_or(Bytes::is_empty) {
            match self.later.next() {
                Some(next) => self.piece = Some(next.clone()),
                None => break,
            }
        }
        self.piece.get_or_insert_default()
    }

    /// The next `length` bytes without a copy, and the rest of their piece; `None` if they are not in one piece.
    fn take(&mut self, length: usize) -> Option<(Bytes, Bytes)> {
        let piece = self.piece();
        (length <= piece.len()).then(|| (piece.slice(..length), piece.slice(length..)))
    }
}

impl Read for Pieces<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let piece = self.piece();
        let count = into.len().min(piece.len());
        into[..count].copy_from_slice(&piece[..count]);
        let rest = piece.slice(count..);
        self.piece = Some(rest);
        Ok(count)
    }
}

/// Reads all of `input` as floating-point tensors, each as `take` does.
fn read_with<R: Read>(
    input: R,
    limits: Limits,
    mut take: impl FnMut(&mut R, &Declared) -> Result<Array, DecodeError>,
) -> Result<(ParamSet, BTreeMap<String, String>), DecodeError> {
    let mut params = ParamSet::new();
    let metadata = read_each(input, limits, |input, tensor: Declared| {
        let array = take(input, &tensor)?;
        params.insert(tensor.name, array);
        Ok(())
    })?;
    Ok((params, metadata))
}

/// Reads all of `input`, each tensor as `take` does; gives the metadata.
pub(crate) fn read_each<R: Read, N: Number>(
    mut input: R,
    limits: Limits,
    mut take: impl FnMut(&mut R, Declared<N>) -> Result<(), DecodeError>,
) -> Result<BTreeMap<String, String>, DecodeError> {
    let (tensors, metadata) = declarations(&mut input, limits)?;
    tensors.into_iter().try_for_each(|tensor| take(&mut input, tensor))?;
    match input.read_exact(&mut [0]) {
        Ok(()) => Err(DecodeError::TrailingBytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(metadata),
        Err(error) => Err(DecodeError::Io(error)),
    }
}

/// Values (16 MiB) that are reserved for a tensor at once, so that few tensors are moved as they grow; beyond that
/// memory grows with what has arrived.
const BELIEVED: usize = 4 << 20;

/// Reads and converts the data of one tensor.
pub(crate) fn read_array(
    input: &mut dyn Read,
    tensor: &Declared,
    buffer: &mut Vec<u8>,
) -> Result<Array, DecodeError> {
    let at_once = CHUNK / tensor.number.bytes();
    let mut values: Vec<f32> = Vec::new();
    while values.len() < tensor.count {
        let wanted = (tensor.count - values.len()).min(at_once);
        // Beyond what is believed at most double what has arrived, and exactly the declared count in the end.
        let room = (tensor.count - values.len()).min(values.len().max(BELIEVED));
        if values.capacity() - values.len() < wanted {
            values.reserve_exact(room);
        }
        read_values(input, tensor, wanted, buffer, &mut values)?;
    }
    Ok(Array::new(tensor.shape.clone(), values).expect("as many values were read as the shape needs"))
}

/// Reads the data of an integer tensor. Memory grows with what has arrived, as in [`read_array`].
fn read_integers<T: bytemuck::Pod>(
    input: &mut dyn Read,
    name: &str,
    count: usize,
    value: impl Fn(T) -> i64,
) -> Result<Vec<i64>, DecodeError> {
    let mut values: Vec<i64> = Vec::new();
    let mut buffer = vec![T::zeroed(); count.min(CHUNK / size_of::<T>())];
    while values.len() < count {
        let wanted = (count - values.len()).min(buffer.len());
        if values.capacity() - values.len() < wanted {
            values.reserve_exact((count - values.len()).min(values.len().max(BELIEVED / 2)));
        }
        let read = &mut buffer[..wanted];
        fill(input, bytemuck::cast_slice_mut(read), || format!("data of tensor `{name}`"))?;
        values.extend(read.iter().map(|read| value(*read)));
    }
    Ok(values)
}

/// Reads the next `count` values of a tensor and appends them to `values`. `buffer` is there for those that have to be
/// converted.
pub(super) fn read_values(
    input: &mut dyn Read,
    tensor: &Declared,
    count: usize,
    buffer: &mut Vec<u8>,
    values: &mut Vec<f32>,
) -> Result<(), DecodeError> {
    let within = || format!("data of tensor `{}`", tensor.name);
    match tensor.number {
        // Without a detour: this is what most of a federation's bytes are.
        Precision::F32 => {
            let before = values.len();
            values.resize(before + count, 0.0);
            let values = &mut values[before..];
            fill(input, bytemuck::cast_slice_mut(values), within)?;
            for value in values {
                *value = f32::from_bits(u32::from_le(value.to_bits()));
            }
        }
        Precision::F16 => {
            buffer.resize(2 * count, 0);
            fill(input, buffer, within)?;
            let mut halves = [f16::ZERO; 256];
            for part in buffer.as_chunks().0.chunks(halves.len()) {
                let halves = &mut halves[..part.len()];
                for (half, &bytes) in halves.iter_mut().zip(part) {
                    *half = f16::from_le_bytes(bytes);
                }
                let before = values.len();
                values.resize(before + part.len(), 0.0);
                halves.convert_to_f32_slice(&mut values[before..]);
            }
        }
        Precision::BF16 => {
            buffer.resize(2 * count, 0);
            fill(input, buffer, within)?;
            values.extend(buffer.as_chunks().0.iter().map(|&bytes| bf16::from_le_bytes(bytes).to_f32()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
