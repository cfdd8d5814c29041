//! What stands before the data: the header, read and checked as a whole.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;

use safetensors::tensor::TensorInfo;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, Visitor};

use super::number::Number;
use super::{DecodeError, Limits, METADATA_KEY, fill};
use crate::params::{Precision, element_count};

/// The tensors of a file, in the order of their data, and its metadata.
type Declarations<N> = (Vec<Declared<N>>, BTreeMap<String, String>);

/// Reads all that stands before the data: the tensors, checked and in the order of their data, and the metadata.
pub(super) fn declarations<N: Number>(
    input: &mut dyn Read,
    limits: Limits,
) -> Result<Declarations<N>, DecodeError> {
    let (header, header_bytes) = read_header(input, limits)?;
    let metadata = unique(header.metadata)?;
    Ok((check_tensors(header.tensors, header_bytes, limits)?, metadata))
}

/// A tensor whose declaration has been checked.
pub(crate) struct Declared<N = Precision> {
    pub(crate) name: String,
    pub(crate) number: N,
    pub(crate) shape: Vec<usize>,
    pub(crate) count: usize,
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
fn check_tensors<N: Number>(
    mut tensors: Vec<(String, TensorInfo)>,
    header_bytes: u64,
    limits: Limits,
) -> Result<Vec<Declared<N>>, DecodeError> {
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
        let Some(number) = N::from_dtype(info.dtype) else {
            return Err(DecodeError::UnsupportedType { tensor: name, dtype: info.dtype });
        };
        let count = element_count(&info.shape).filter(|&count| {
            count.checked_mul(number.bytes()).map(|bytes| bytes as u64) == Some(end - start)
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
        checked.push(Declared { name, number, shape: info.shape, count });
    }
    let declared = header_bytes.saturating_add(position);
    if declared > limits.max_bytes {
        return Err(DecodeError::TooLarge { declared, limit: limits.max_bytes });
    }
    if !limits.any_order && !checked.is_sorted_by(|a, b| a.name < b.name) {
        return Err(DecodeError::Order);
    }
    Ok(checked)
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
