//! Reading: everything the header declares is checked before data is read, and memory grows as data arrives.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};

use bytes::Bytes;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::TensorInfo;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use super::{CHUNK, Limits, METADATA_KEY};
use crate::params::{Array, ParamSet, Precision, element_count};

/// Why bytes are not a parameter set. All but [`DecodeError::Io`] are the sender's or the file's fault.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The source failed.
    #[error("reading parameters failed")]
    Io(#[source] io::Error),
    /// The bytes end before the header says they do.
    #[error("the parameters end early, in the {within}: the file or message was cut off")]
    Truncated {
        /// What was being read: the header length, the header, or a tensor by name.
        within: String,
    },
    /// There are more bytes than the header accounts for.
    #[error(
        "there are bytes after the last tensor, so this is not the safetensors file that its header describes"
    )]
    TrailingBytes,
    /// The declared header is longer than accepted.
    #[error("a safetensors header of {declared} bytes is declared and at most {limit} are accepted")]
    HeaderTooLarge {
        /// Bytes that the length field declares.
        declared: u64,
        /// [`Limits::max_header`], or what is left of [`Limits::max_bytes`].
        limit: u64,
    },
    /// The declared data makes the whole larger than accepted.
    #[error("parameters of {declared} bytes are declared and at most {limit} are accepted")]
    TooLarge {
        /// Bytes that the header declares in all.
        declared: u64,
        /// [`Limits::max_bytes`].
        limit: u64,
    },
    /// There are more tensors than accepted.
    #[error("{count} tensors are declared and at most {limit} are accepted")]
    TooManyTensors {
        /// Tensors in the header.
        count: usize,
        /// [`Limits::max_tensors`].
        limit: usize,
    },
    /// The header is not UTF-8.
    #[error("the safetensors header is not UTF-8, so this is not a safetensors file")]
    NotUtf8(#[source] std::str::Utf8Error),
    /// The header is not the JSON that safetensors asks for.
    #[error("the safetensors header cannot be understood: {0}")]
    Header(#[source] serde_json::Error),
    /// Two tensors, or two metadata entries, have the same name.
    #[error("the name `{name}` appears twice in the safetensors header")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// The tensor holds something other than `F32`, `F16` or `BF16`.
    #[error("tensor `{tensor}` holds {dtype} values; only F32, F16 and BF16 are supported")]
    UnsupportedType {
        /// The tensor.
        tensor: String,
        /// Its element type.
        dtype: Dtype,
    },
    /// The tensor's data overlaps another's, leaves a gap, or ends before it begins.
    #[error(
        "the data of tensor `{tensor}` is declared at bytes {start}..{end} and should begin at {expected}"
    )]
    Offsets {
        /// The tensor.
        tensor: String,
        /// Where its data is declared to begin.
        start: u64,
        /// Where its data is declared to end.
        end: u64,
        /// Where the data before it ends.
        expected: u64,
    },
    /// The tensor's data does not have the size its shape and element type need.
    #[error(
        "tensor `{tensor}` has the shape {shape:?} in {dtype}, which does not take the declared {declared} bytes"
    )]
    Size {
        /// The tensor.
        tensor: String,
        /// Its shape.
        shape: Vec<usize>,
        /// Its element type.
        dtype: Dtype,
        /// The declared number of bytes.
        declared: u64,
    },
}

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
    let pieces = Pieces { later: pieces.iter(), piece: None };
    read_with(pieces, limits, |pieces, tensor| {
        let lent = (tensor.precision == Precision::F32)
            .then(|| pieces.take(tensor.count * Precision::F32.bytes()))
            .flatten()
            .and_then(|(data, rest)| Some((Array::lent(&tensor.shape, data)?, rest)));
        match lent {
            Some((array, rest)) => {
                pieces.piece = Some(rest);
                Ok(array)
            }
            None => read_array(pieces, tensor, &mut buffer),
        }
    })
}

/// A message in pieces while it is read.
struct Pieces<'a> {
    later: std::slice::Iter<'a, Bytes>,
    /// What is left of the piece that is read.
    piece: Option<Bytes>,
}

impl Pieces<'_> {
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

    /// The next so many bytes where they lie, and what is left of their piece after them; `None` if they are not in one piece.
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

/// Reads all of `input`, each tensor as `take` does.
fn read_with<R: Read>(
    mut input: R,
    limits: Limits,
    mut take: impl FnMut(&mut R, &Declared) -> Result<Array, DecodeError>,
) -> Result<(ParamSet, BTreeMap<String, String>), DecodeError> {
    let (tensors, metadata) = declarations(&mut input, limits)?;
    let mut params = ParamSet::new();
    for tensor in tensors {
        let array = take(&mut input, &tensor)?;
        params.insert(tensor.name, array);
    }
    match input.read_exact(&mut [0]) {
        Ok(()) => Err(DecodeError::TrailingBytes),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok((params, metadata)),
        Err(error) => Err(DecodeError::Io(error)),
    }
}

/// Reads all that stands before the data: the tensors, checked and in the order of their data, and the metadata.
pub(super) fn declarations(
    input: &mut dyn Read,
    limits: Limits,
) -> Result<(Vec<Declared>, BTreeMap<String, String>), DecodeError> {
    let (header, header_bytes) = read_header(input, limits)?;
    let metadata = unique(header.metadata)?;
    Ok((check_tensors(header.tensors, header_bytes, limits)?, metadata))
}

/// A tensor whose declaration has been checked.
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) precision: Precision,
    pub(super) shape: Vec<usize>,
    pub(super) count: usize,
}

/// Reads the length field and the header; also gives the bytes that both took.
fn read_header(input: &mut dyn Read, limits: Limits) -> Result<(Header, u64), DecodeError> {
    let mut length = [0; 8];
    fill(input, &mut length, || "length of the header".to_owned())?;
    let declared = u64::from_le_bytes(length);
    let limit = limits.max_header.min(limits.max_bytes.saturating_sub(8));
    if declared > limit {
        return Err(DecodeError::HeaderTooLarge { declared, limit });
    }
    // Grows as bytes arrive: a declared length alone allocates nothing.
    let mut text = Vec::new();
    input.take(declared).read_to_end(&mut text).map_err(DecodeError::Io)?;
    if (text.len() as u64) < declared {
        return Err(DecodeError::Truncated { within: "header".to_owned() });
    }
    let text = std::str::from_utf8(&text).map_err(DecodeError::NotUtf8)?;
    let header = serde_json::from_str(text).map_err(DecodeError::Header)?;
    Ok((header, 8 + declared))
}

/// Checks all declarations against each other and the limits, and puts them in the order of their data.
fn check_tensors(
    mut tensors: Vec<(String, TensorInfo)>,
    header_bytes: u64,
    limits: Limits,
) -> Result<Vec<Declared>, DecodeError> {
    if tensors.len() > limits.max_tensors {
        return Err(DecodeError::TooManyTensors { count: tensors.len(), limit: limits.max_tensors });
    }
    let names: Vec<_> = tensors.iter().map(|(name, _)| (name.clone(), ())).collect();
    unique(names)?;

    tensors.sort_by_key(|(_, info)| info.data_offsets);
    let mut position = 0u64;
    let mut checked = Vec::with_capacity(tensors.len());
    for (name, info) in tensors {
        let (start, end) = (info.data_offsets.0 as u64, info.data_offsets.1 as u64);
        if start != position || end < start {
            return Err(DecodeError::Offsets { tensor: name, start, end, expected: position });
        }
        let Some(precision) = Precision::from_dtype(info.dtype) else {
            return Err(DecodeError::UnsupportedType { tensor: name, dtype: info.dtype });
        };
        let count = element_count(&info.shape).filter(|&count| {
            count.checked_mul(precision.bytes()).map(|bytes| bytes as u64) == Some(end - start)
        });
        let Some(count) = count else {
            return Err(DecodeError::Size {
                tensor: name,
                shape: info.shape,
                dtype: info.dtype,
                declared: end - start,
            });
        };
        position = end;
        checked.push(Declared { name, precision, shape: info.shape, count });
    }
    let declared = header_bytes.saturating_add(position);
    if declared > limits.max_bytes {
        return Err(DecodeError::TooLarge { declared, limit: limits.max_bytes });
    }
    Ok(checked)
}

/// Room for so many values (16 MiB) is made for a tensor at once, so that few tensors are moved as they grow; beyond that
/// memory grows with what has arrived.
const BELIEVED: usize = 4 << 20;

/// Reads and converts the data of one tensor.
fn read_array(input: &mut dyn Read, tensor: &Declared, buffer: &mut Vec<u8>) -> Result<Array, DecodeError> {
    let at_once = CHUNK / tensor.precision.bytes();
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
    match tensor.precision {
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

/// Fills the buffer or says what ended early.
fn fill(input: &mut dyn Read, buffer: &mut [u8], within: impl Fn() -> String) -> Result<(), DecodeError> {
    input.read_exact(buffer).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => DecodeError::Truncated { within: within() },
        _ => DecodeError::Io(error),
    })
}

/// Collects pairs into a map unless a key repeats.
fn unique<V>(pairs: Vec<(String, V)>) -> Result<BTreeMap<String, V>, DecodeError> {
    let mut map = BTreeMap::new();
    for (name, value) in pairs {
        if map.contains_key(&name) {
            return Err(DecodeError::DuplicateName { name });
        }
        map.insert(name, value);
    }
    Ok(map)
}

/// The header as it is written, with repeated names, so that they can be refused. `safetensors` keeps the last of them.
struct Header {
    metadata: Vec<(String, String)>,
    tensors: Vec<(String, TensorInfo)>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HeaderVisitor;

        impl<'de> Visitor<'de> for HeaderVisitor {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from tensor names to their types, shapes and offsets")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut metadata = None;
                let mut tensors = Vec::new();
                while let Some(name) = map.next_key::<String>()? {
                    if name != METADATA_KEY {
                        tensors.push((name, map.next_value()?));
                    } else if metadata.replace(map.next_value::<Pairs>()?.0).is_some() {
                        return Err(A::Error::duplicate_field(METADATA_KEY));
                    }
                }
                Ok(Header { metadata: metadata.unwrap_or_default(), tensors })
            }
        }

        deserializer.deserialize_map(HeaderVisitor)
    }
}

/// A map of strings with its repetitions.
struct Pairs(Vec<(String, String)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;

        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map from strings to strings")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_map(PairsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::params::codec::{from_bytes, to_bytes, to_pieces};

    type Metadata = BTreeMap<String, String>;

    /// Bytes with this header and data, as a hostile sender would make them.
    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    fn entry(name: &str, dtype: &str, shape: &[usize], start: u64, end: u64) -> String {
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{end}]}}"#)
    }

    fn error(bytes: &[u8]) -> DecodeError {
        from_bytes(bytes, Limits::default()).unwrap_err()
    }

    #[test]
    fn truncation_says_where() {
        let bytes = file(&format!("{{{}}}", entry("w", "F32", &[2], 0, 8)), &[0; 8]);
        assert!(from_bytes(&bytes, Limits::default()).is_ok());
        for (cut, part) in [
            (0, "length of the header"),
            (7, "length of the header"),
            (8, "header"),
            (bytes.len() - 9, "header"),
            (bytes.len() - 8, "data of tensor `w`"),
            (bytes.len() - 1, "data of tensor `w`"),
        ] {
            let error = error(&bytes[..cut]);
            assert!(matches!(&error, DecodeError::Truncated { within } if within == part), "{cut}: {error}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(matches!(error(&longer), DecodeError::TrailingBytes));
    }

    #[test]
    fn limits_are_checked_before_anything_is_read() {
        // No data follows any of these headers: a reader that tried would report truncation.
        let declared =
            |bytes: u64| file(&format!("{{{}}}", entry("w", "F32", &[bytes as usize / 4], 0, bytes)), &[]);
        assert!(matches!(
            error(&u64::MAX.to_le_bytes()),
            DecodeError::HeaderTooLarge { declared: u64::MAX, .. }
        ));
        assert!(matches!(error(&declared(5 << 30)), DecodeError::TooLarge { .. }));
        assert!(matches!(error(&declared(1 << 62)), DecodeError::TooLarge { .. }));
        // Within the limits, a gigabyte that never comes costs no gigabyte.
        assert!(matches!(error(&declared(1 << 30)), DecodeError::Truncated { .. }));

        let two = format!("{{{},{}}}", entry("a", "F32", &[0], 0, 0), entry("b", "F32", &[0], 0, 0));
        let limits = Limits { max_tensors: 1, ..Limits::default() };
        let result = from_bytes(&file(&two, &[]), limits);
        assert!(matches!(result, Err(DecodeError::TooManyTensors { count: 2, limit: 1 })));

        let bytes = file(&format!("{{{}}}", entry("w", "F32", &[2], 0, 8)), &[0; 8]);
        let all = Limits { max_bytes: bytes.len() as u64, ..Limits::default() };
        assert!(from_bytes(&bytes, all).is_ok());
        let less = Limits { max_bytes: bytes.len() as u64 - 1, ..Limits::default() };
        assert!(matches!(from_bytes(&bytes, less), Err(DecodeError::TooLarge { .. })));
        let none = Limits { max_bytes: 3, ..Limits::default() };
        assert!(matches!(from_bytes(&bytes, none), Err(DecodeError::HeaderTooLarge { limit: 0, .. })));
    }

    #[test]
    fn each_malformation_has_its_own_error() {
        let one = |dtype, shape: &[usize], start, end| {
            error(&file(&format!("{{{}}}", entry("w", dtype, shape, start, end)), &[0; 16]))
        };
        assert!(matches!(one("I64", &[1], 0, 8), DecodeError::UnsupportedType { dtype: Dtype::I64, .. }));
        assert!(matches!(one("F33", &[1], 0, 4), DecodeError::Header(_)));
        assert!(matches!(one("F32", &[2], 4, 12), DecodeError::Offsets { start: 4, expected: 0, .. }));
        assert!(matches!(one("F32", &[2], 8, 0), DecodeError::Offsets { .. }));
        assert!(matches!(one("F32", &[3], 0, 8), DecodeError::Size { declared: 8, .. }));
        assert!(matches!(one("F16", &[2], 0, 8), DecodeError::Size { .. }));
        // 2^62 * 4 wraps to 0 bytes, and 2^63 * 2 to 0 values.
        assert!(matches!(one("F32", &[1 << 62], 0, 0), DecodeError::Size { .. }));
        assert!(matches!(one("F32", &[1 << 63, 2], 0, 0), DecodeError::Size { .. }));

        let two = |b: String| error(&file(&format!("{{{},{b}}}", entry("a", "F32", &[2], 0, 8)), &[0; 16]));
        assert!(matches!(
            two(entry("b", "F32", &[2], 4, 12)),
            DecodeError::Offsets { start: 4, expected: 8, .. }
        ));
        assert!(matches!(two(entry("b", "F32", &[1], 12, 16)), DecodeError::Offsets { expected: 8, .. }));
        assert!(
            matches!(two(entry("a", "F32", &[2], 8, 16)), DecodeError::DuplicateName { name } if name == "a")
        );
        assert!(matches!(
            error(&file(r#"{"__metadata__":{"k":"1","k":"2"}}"#, &[])),
            DecodeError::DuplicateName { name } if name == "k"
        ));
        for header in [
            "",
            "null",
            "[]",
            "{",
            r#"{"w":{}}"#,
            r#"{"__metadata__":{"k":1}}"#,
            r#"{"__metadata__":{},"__metadata__":{}}"#,
            r#"{"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#,
            &"[".repeat(100_000),
        ] {
            assert!(matches!(error(&file(header, &[])), DecodeError::Header(_)), "{header:.40}");
        }
        let mut bytes = file("{ }", &[]);
        bytes[9] = 0xff;
        assert!(matches!(error(&bytes), DecodeError::NotUtf8(_)));
    }

    #[test]
    fn order_of_names_and_order_of_data_may_differ_and_precisions_mix() {
        let header = format!(
            "{{{},{},{}}}   ",
            entry("a", "F16", &[1], 6, 8),
            entry("b", "F32", &[], 0, 4),
            entry("c", "BF16", &[1, 1], 4, 6)
        );
        let data = [&1.5f32.to_le_bytes()[..], &0x4020u16.to_le_bytes(), &0xc100u16.to_le_bytes()].concat();
        let (params, metadata) = from_bytes(&file(&header, &data), Limits::default()).unwrap();
        assert_eq!(params.get("a"), Some(&Array::new([1], vec![-2.5]).unwrap()));
        assert_eq!(params.get("b"), Some(&Array::new([], vec![1.5]).unwrap()));
        assert_eq!(params.get("c"), Some(&Array::new([1, 1], vec![2.5]).unwrap()));
        assert!(metadata.is_empty());
    }

    #[test]
    fn tensors_longer_than_a_buffer_survive() {
        // One value before, at and after each multiple of the buffer.
        for count in [CHUNK / 4 - 1, CHUNK / 4, CHUNK / 4 + 1, CHUNK / 2 + 1, CHUNK + 3, BELIEVED + 1] {
            let values: Vec<f32> = (0..count).map(|i| (i % 2048) as f32).collect();
            let params: ParamSet = ["a", "b"]
                .map(|name| (name.to_owned(), Array::new([count], values.clone()).unwrap()))
                .into_iter()
                .collect();
            // Integers up to 2048 are exact in f16; multiples of 16 of them in bf16.
            for precision in [Precision::F32, Precision::F16] {
                let bytes = to_bytes(&params, precision, &Metadata::new()).unwrap();
                assert_eq!(from_bytes(&bytes, Limits::default()).unwrap().0, params);
            }
            let mut coarse = params;
            for (_, array) in coarse.iter_mut() {
                array.values_mut().iter_mut().for_each(|value| *value = (*value / 16.0).floor());
            }
            let bytes = to_bytes(&coarse, Precision::BF16, &Metadata::new()).unwrap();
            let read = from_bytes(&bytes, Limits::default()).unwrap().0;
            assert_eq!(read, coarse);
            assert!(read.iter().all(|(_, array)| array.clone().into_values().capacity() < 2 * count));
        }
    }

    fn param_sets() -> impl Strategy<Value = ParamSet> {
        let array = prop::collection::vec(0usize..4, 0..4).prop_flat_map(|shape| {
            let count = shape.iter().product::<usize>();
            prop::collection::vec(any::<f32>(), count)
                .prop_map(move |values| Array::new(shape.clone(), values).unwrap())
        });
        prop::collection::btree_map(any::<String>(), array, 0..5)
            .prop_map(|arrays| arrays.into_iter().filter(|(name, _)| name != METADATA_KEY).collect())
    }

    fn bits(params: &ParamSet) -> Vec<u32> {
        params.iter().flat_map(|(_, array)| array.values()).map(|value| value.to_bits()).collect()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            params in param_sets(),
            metadata in prop::collection::btree_map(any::<String>(), any::<String>(), 0..3),
            cut in any::<prop::sample::Index>(),
        ) {
            let bytes = to_bytes(&params, Precision::F32, &metadata).unwrap();
            let (read, read_metadata) = from_bytes(&bytes, Limits::default()).unwrap();
            let whole = Bytes::from(bytes);
            let shared = from_shared(&whole, Limits::default()).unwrap();
            prop_assert_eq!((bits(&shared.0), shared.0.layout()), (bits(&params), params.layout()));
            prop_assert_eq!(&shared.1, &metadata);
            let pieces = to_pieces(&params, Precision::F32, &metadata).unwrap();
            let joined = from_pieces(&pieces, Limits::default()).unwrap();
            prop_assert_eq!((bits(&joined.0), joined.0.layout()), (bits(&params), params.layout()));
            let cut = cut.index(whole.len());
            let cut = [whole.slice(..cut), Bytes::new(), whole.slice(cut..)];
            let joined = from_pieces(&cut, Limits::default()).unwrap();
            prop_assert_eq!((bits(&joined.0), joined.0.layout()), (bits(&params), params.layout()));
            prop_assert_eq!(pieces.concat(), &whole[..]);
            prop_assert_eq!(read.layout(), params.layout());
            // By bits, because NaN is not equal to itself.
            prop_assert_eq!(bits(&read), bits(&params));
            prop_assert_eq!(read_metadata, metadata);
        }

        #[test]
        fn rounding_is_within_half_a_unit(values in prop::collection::vec(-60000.0f32..60000.0, 1..200)) {
            let params: ParamSet =
                [("w".to_owned(), Array::new([values.len()], values.clone()).unwrap())].into_iter().collect();
            for (precision, relative, absolute) in
                [(Precision::F16, 2f32.powi(-11), 2f32.powi(-25)), (Precision::BF16, 2f32.powi(-8), 0.0)]
            {
                let bytes = to_bytes(&params, precision, &Metadata::new()).unwrap();
                let (read, _) = from_bytes(&bytes, Limits::default()).unwrap();
                for (&value, &rounded) in values.iter().zip(read.get("w").unwrap().values()) {
                    let bound = (value.abs() * relative).max(absolute);
                    prop_assert!((value - rounded).abs() <= bound, "{} became {}", value, rounded);
                }
                // What has been rounded once is exact from then on.
                let again = to_bytes(&read, precision, &Metadata::new()).unwrap();
                prop_assert_eq!(again, bytes);
            }
        }

        #[test]
        fn every_truncation_is_an_error(params in param_sets(), cut in any::<prop::sample::Index>()) {
            let bytes = to_bytes(&params, Precision::BF16, &Metadata::new()).unwrap();
            let cut = &bytes[..cut.index(bytes.len())];
            let error = from_bytes(cut, Limits::default()).unwrap_err();
            let shared = from_shared(&Bytes::copy_from_slice(cut), Limits::default()).unwrap_err();
            prop_assert_eq!(shared.to_string(), error.to_string());
        }

        #[test]
        fn garbage_never_panics(
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            params in param_sets(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let _ = from_bytes(&bytes, Limits::default());
            let _ = from_bytes(&file(&String::from_utf8_lossy(&bytes), &[]), Limits::default());
            // A valid file with a few bytes changed gets further than noise does.
            let mut almost = to_bytes(&params, Precision::F32, &Metadata::new()).unwrap();
            for (index, byte) in changes {
                let index = index.index(almost.len());
                almost[index] = byte;
            }
            let limits = Limits { max_bytes: 1 << 20, ..Limits::default() };
            let (read, shared) = (from_bytes(&almost, limits), from_shared(&almost.into(), limits));
            prop_assert_eq!(shared.is_ok(), read.is_ok());
        }
    }
}
