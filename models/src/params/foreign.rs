//! Tensors of files that other programs wrote: safetensors in any order, of any kind of number that has a place in ours.

use std::collections::BTreeMap;
use std::io::{self, Read};

use half::{bf16, f16};
use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, Metadata, SafeTensors, TensorView};

use super::Array;

/// The longest header that is read, in bytes.
const MAX_HEADER: u64 = 100 << 20;

/// A tensor of such a file, in single precision.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignTensor {
    /// Shape and values.
    pub array: Array,
    /// Its kind in the file, as the format calls it: `F32`, `I64`.
    pub kind: String,
    /// Whether it counts something, and is no parameter.
    pub is_integer: bool,
}

/// Why such a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ForeignError {
    /// It is a file of `torch.save`: an archive, or of old versions a pickle.
    #[error("it is a file of torch.save and not safetensors")]
    Pickle,
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// It is not in the format.
    #[error("it is no safetensors file, or a damaged one: {0}")]
    Format(#[from] SafeTensorError),
    /// A tensor is of a kind that has no place here, or has an integer that single precision does not hold.
    #[error("`{name}` holds values of the kind {kind} that single precision cannot hold")]
    Values {
        /// The tensor.
        name: String,
        /// Its kind.
        kind: String,
    },
}

/// Whether a file that begins so is one of `torch.save`.
#[must_use]
pub fn is_pickle(beginning: &[u8]) -> bool {
    beginning.starts_with(b"PK\x03\x04") || beginning.starts_with(b"\x80\x02")
}

/// The tensors of a file by their names.
///
/// # Errors
/// [`ForeignError`], which names the tensor.
pub fn read_foreign(bytes: &[u8]) -> Result<BTreeMap<String, ForeignTensor>, ForeignError> {
    if is_pickle(bytes) {
        return Err(ForeignError::Pickle);
    }
    let file = SafeTensors::deserialize(bytes)?;
    file.iter().map(|(name, view)| Ok((name.to_owned(), foreign_tensor(name, &view)?))).collect()
}

/// The names, shapes and kinds of a file's tensors, of which nothing else is read: name, shape, and whether it counts something.
///
/// # Errors
/// [`ForeignError::Pickle`], [`ForeignError::Format`], or [`ForeignError::Read`].
pub fn describe_foreign(input: &mut dyn Read) -> Result<Vec<(String, Vec<usize>, bool)>, ForeignError> {
    let mut length = [0; 8];
    input.read_exact(&mut length)?;
    if is_pickle(&length) {
        return Err(ForeignError::Pickle);
    }
    let length = u64::from_le_bytes(length);
    if length > MAX_HEADER {
        return Err(SafeTensorError::HeaderTooLarge.into());
    }
    let mut header = Vec::new();
    if input.take(length).read_to_end(&mut header)? as u64 != length {
        return Err(SafeTensorError::InvalidHeaderLength.into());
    }
    let metadata: Metadata =
        serde_json::from_slice(&header).map_err(SafeTensorError::InvalidHeaderDeserialization)?;
    let is_integer = |kind| matches!(kind, Dtype::I64 | Dtype::I32 | Dtype::I16 | Dtype::U8 | Dtype::BOOL);
    let mut tensors: Vec<_> = metadata
        .tensors()
        .into_iter()
        .map(|(name, info)| (name, info.shape.clone(), is_integer(info.dtype)))
        .collect();
    tensors.sort();
    Ok(tensors)
}

/// One tensor of such a file.
///
/// # Errors
/// [`ForeignError::Values`].
pub fn foreign_tensor(name: &str, view: &TensorView<'_>) -> Result<ForeignTensor, ForeignError> {
    let refused = || ForeignError::Values { name: name.to_owned(), kind: view.dtype().to_string() };
    let whole = |values: Vec<i64>| -> Result<Vec<f32>, ForeignError> {
        let narrow = |value: i64| (value.unsigned_abs() <= 1 << 24).then_some(value as f32);
        values.into_iter().map(narrow).collect::<Option<_>>().ok_or_else(refused)
    };
    let integers = match view.dtype() {
        Dtype::I64 => Some(values(view, i64::from_le_bytes)),
        Dtype::I32 => Some(values(view, |bytes| i64::from(i32::from_le_bytes(bytes)))),
        Dtype::I16 => Some(values(view, |bytes| i64::from(i16::from_le_bytes(bytes)))),
        Dtype::U8 | Dtype::BOOL => Some(values(view, |[byte]: [u8; 1]| i64::from(byte))),
        _ => None,
    };
    let is_integer = integers.is_some();
    let floats = match (integers, view.dtype()) {
        (Some(integers), _) => whole(integers)?,
        (None, Dtype::F32) => values(view, f32::from_le_bytes),
        (None, Dtype::F64) => values(view, |bytes| f64::from_le_bytes(bytes) as f32),
        (None, Dtype::F16) => values(view, |bytes| f16::from_le_bytes(bytes).to_f32()),
        (None, Dtype::BF16) => values(view, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        (None, _) => return Err(refused()),
    };
    let array = Array::new(view.shape(), floats).map_err(|_| refused())?;
    Ok(ForeignTensor { array, kind: view.dtype().to_string(), is_integer })
}

/// The values of a tensor whose values have `N` bytes each.
fn values<const N: usize, T>(view: &TensorView<'_>, read: impl Fn([u8; N]) -> T) -> Vec<T> {
    view.data().as_chunks().0.iter().map(|&bytes| read(bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) -> Vec<u8> {
        let views = tensors
            .iter()
            .map(|(name, kind, shape, data)| (*name, TensorView::new(*kind, shape.to_vec(), data).unwrap()));
        safetensors::serialize(views, None).unwrap()
    }

    #[test]
    fn numbers_of_all_kinds_become_single_precision() {
        let bytes = file(&[
            ("w", Dtype::F64, &[2], [0.5_f64, -1.0].iter().flat_map(|value| value.to_le_bytes()).collect()),
            ("h", Dtype::BF16, &[1], bf16::from_f32(3.0).to_le_bytes().to_vec()),
            ("steps", Dtype::I64, &[], 7_i64.to_le_bytes().to_vec()),
            ("mask", Dtype::BOOL, &[3], vec![1, 0, 1]),
        ]);
        let read = read_foreign(&bytes).unwrap();
        let of = |name: &str| (read[name].array.values().to_vec(), read[name].is_integer);
        assert_eq!(of("w"), (vec![0.5, -1.0], false));
        assert_eq!(of("h"), (vec![3.0], false));
        assert_eq!(of("steps"), (vec![7.0], true));
        assert_eq!(of("mask"), (vec![1.0, 0.0, 1.0], true));
        assert_eq!(read["steps"].array.shape(), [0_usize; 0]);
        let described = describe_foreign(&mut &bytes[..]).unwrap();
        let expected =
            [("h", vec![1], false), ("mask", vec![3], true), ("steps", vec![], true), ("w", vec![2], false)];
        assert_eq!(described, expected.map(|(name, shape, integer)| (name.to_owned(), shape, integer)));
        assert!(describe_foreign(&mut &bytes[..20]).is_err());
    }

    #[test]
    fn what_has_no_place_is_named() {
        let large = file(&[("n", Dtype::I64, &[1], (1_i64 << 24 | 1 << 40).to_le_bytes().to_vec())]);
        assert_eq!(
            read_foreign(&large).unwrap_err().to_string(),
            "`n` holds values of the kind I64 that single precision cannot hold"
        );
        assert!(matches!(read_foreign(b"PK\x03\x04"), Err(ForeignError::Pickle)));
        assert!(matches!(read_foreign(b"hello, world"), Err(ForeignError::Format(_))));
    }
}
