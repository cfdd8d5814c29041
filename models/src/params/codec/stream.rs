//! Reading a parameter set a few values at a time, in memory that does not grow with the model.

use std::collections::BTreeMap;
use std::io::Read;

use super::declaration::{Declared, declarations};
use super::decode::read_values;
use super::{DecodeError, Limits};
use crate::params::Precision;

/// The values of a parameter set in the order of their bytes.
///
/// ```
/// use models::params::codec::{self, Limits, TensorStream};
/// use models::{Array, ParamSet, Precision};
///
/// let mut params = ParamSet::new();
/// params.insert("a", Array::new([3], vec![1.0, 2.0, 3.0])?);
/// params.insert("b", Array::new([1], vec![4.0])?);
/// let bytes = codec::to_bytes(&params, Precision::F32, &Default::default())?;
///
/// let mut stream = TensorStream::open(bytes.as_slice(), Limits::default())?;
/// let (mut values, mut seen) = (Vec::new(), Vec::new());
/// while let Some((tensor, offset)) = stream.next(2, &mut values)? {
///     seen.push((tensor.to_owned(), offset, values.clone()));
/// }
/// let part = |tensor: &str, offset, values: &[f32]| (tensor.to_owned(), offset, values.to_vec());
/// assert_eq!(seen, [part("a", 0, &[1.0, 2.0]), part("a", 2, &[3.0]), part("b", 0, &[4.0])]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TensorStream<R> {
    input: R,
    cursor: TensorCursor,
}

/// What a [`TensorStream`] knows without its input, which may be closed and opened again at another time: the next byte to
/// read is [`remaining`](Self::remaining) bytes before the end.
pub struct TensorCursor {
    tensors: Vec<Declared>,
    /// The tensor whose values come next, and how many of them were read.
    position: (usize, usize),
    /// For values that have to be converted.
    bytes: Vec<u8>,
}

impl<R: Read> TensorStream<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// As [`read`](super::read), for what is wrong with the header.
    pub fn open(input: R, limits: Limits) -> Result<Self, DecodeError> {
        Ok(Self::open_described(input, limits)?.0)
    }

    /// Reads the header, and gives the metadata in it too.
    ///
    /// # Errors
    /// As [`TensorStream::open`].
    pub fn open_described(
        mut input: R,
        limits: Limits,
    ) -> Result<(Self, BTreeMap<String, String>), DecodeError> {
        let (tensors, metadata) = declarations(&mut input, limits)?;
        let cursor = TensorCursor { tensors, position: (0, 0), bytes: Vec::new() };
        Ok((Self { input, cursor }, metadata))
    }

    /// Names, shapes and number formats in the order of their data.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &[usize], Precision)> {
        let tensors = self.cursor.tensors.iter();
        tensors.map(|tensor| (tensor.name.as_str(), tensor.shape.as_slice(), tensor.number))
    }

    /// The input and the place in it.
    #[must_use]
    pub fn into_parts(self) -> (R, TensorCursor) {
        (self.input, self.cursor)
    }

    /// Puts the next values, at most `limit` of them and all of one tensor, into `values`; gives the tensor's name and the
    /// offset of the first. `None` after the last.
    ///
    /// # Errors
    /// [`DecodeError::Truncated`] or [`DecodeError::Io`].
    pub fn next(
        &mut self,
        limit: usize,
        values: &mut Vec<f32>,
    ) -> Result<Option<(&str, usize)>, DecodeError> {
        self.cursor.next(&mut self.input, limit, values)
    }
}

impl TensorCursor {
    /// Bytes of data that were not read yet.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        let (index, offset) = self.position;
        let rest = self.tensors.get(index..).unwrap_or_default();
        let bytes = |(number, tensor): (usize, &Declared)| {
            let read = if number == 0 { offset } else { 0 };
            ((tensor.count - read) * tensor.number.bytes()) as u64
        };
        rest.iter().enumerate().map(bytes).sum()
    }

    /// [`TensorStream::next`] out of `input`, whose next byte is that of this place.
    ///
    /// # Errors
    /// As [`TensorStream::next`].
    pub fn next(
        &mut self,
        input: &mut dyn Read,
        limit: usize,
        values: &mut Vec<f32>,
    ) -> Result<Option<(&str, usize)>, DecodeError> {
        values.clear();
        let (mut index, mut offset) = self.position;
        while self.tensors.get(index).is_some_and(|tensor| offset == tensor.count) {
            (index, offset) = (index + 1, 0);
        }
        let Some(tensor) = self.tensors.get(index) else { return Ok(None) };
        let count = (tensor.count - offset).min(limit);
        read_values(input, tensor, count, &mut self.bytes, values)?;
        self.position = (index, offset + count);
        Ok(Some((&tensor.name, offset)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::{Array, ParamSet, codec};

    #[test]
    fn a_stream_gives_what_reading_gives() {
        let mut params = ParamSet::new();
        for (name, count) in [("a", 1000), ("b", 0), ("c", 1), ("d", 257)] {
            let values = (0..count).map(|i| i as f32 / 3.0 - 9.0).collect();
            params.insert(name, Array::new([count], values).unwrap());
        }
        for precision in [Precision::F32, Precision::F16, Precision::BF16] {
            let bytes = codec::to_bytes(&params, precision, &BTreeMap::new()).unwrap();
            let (whole, _) = codec::from_bytes(&bytes, Limits::default()).unwrap();
            for limit in [1, 256, 300, 5000] {
                let ordered = Limits { any_order: false, ..Limits::default() };
                let mut stream = TensorStream::open(bytes.as_slice(), ordered).unwrap();
                let (mut values, mut found) = (Vec::new(), BTreeMap::<String, Vec<f32>>::new());
                while let Some((tensor, offset)) = stream.next(limit, &mut values).unwrap() {
                    assert!(!values.is_empty() && values.len() <= limit);
                    let so_far = found.entry(tensor.to_owned()).or_default();
                    assert_eq!(offset, so_far.len());
                    so_far.extend_from_slice(&values);
                }
                let expected = whole.iter().filter(|(_, array)| !array.is_empty());
                let expected: BTreeMap<_, _> =
                    expected.map(|(name, array)| (name.to_owned(), array.values().to_vec())).collect();
                assert_eq!(found, expected, "{precision} {limit}");
            }
            let (_, mut cursor) =
                TensorStream::open(bytes.as_slice(), Limits::default()).unwrap().into_parts();
            let (mut values, mut sum) = (Vec::new(), 0);
            loop {
                let mut input = &bytes[bytes.len() - cursor.remaining() as usize..];
                let Some((tensor, offset)) = cursor.next(&mut input, 300, &mut values).unwrap() else {
                    break;
                };
                let expected = &whole.get(tensor).unwrap().values()[offset..];
                assert_eq!(values, expected[..values.len()], "{precision} {tensor} {offset}");
                sum += values.len();
            }
            assert_eq!(sum, whole.parameters());
            let mut cut = TensorStream::open(&bytes[..bytes.len() - 1], Limits::default()).unwrap();
            let mut values = Vec::new();
            let error = loop {
                match cut.next(100, &mut values) {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("it ends early"),
                    Err(error) => break error,
                }
            };
            assert!(matches!(error, DecodeError::Truncated { .. }), "{error}");
        }
    }
}
