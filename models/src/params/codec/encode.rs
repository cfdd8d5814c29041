//! Writing: header first, then tensor after tensor, converted in one small buffer where they are not written as they lie.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use bytes::Bytes;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use serde_json::Value;

use super::number::{AnyNumber, Number};
use super::{ALIGNMENT, CHUNK, METADATA_KEY, to_bytes};
use crate::params::{IntegerFormat, IntegerSet, Integers, ParamSet, Precision};

/// The exact number of bytes that [`write()`] writes for these arguments.
#[must_use]
pub fn encoded_len(params: &ParamSet, precision: Precision, metadata: &BTreeMap<String, String>) -> u64 {
    encoded_len_with_integers(params, precision, &IntegerSet::new(), metadata)
}

/// The exact number of bytes that [`write_with_integers`] writes for these arguments.
#[must_use]
pub fn encoded_len_with_integers(
    params: &ParamSet,
    precision: Precision,
    integers: &IntegerSet,
    metadata: &BTreeMap<String, String>,
) -> u64 {
    let header = header(contents(params, precision, integers), metadata).len() as u64;
    let integers = integers.values().map(|tensor| tensor.values().len() * tensor.format().bytes());
    8 + header + integers.sum::<usize>() as u64 + params.parameters() as u64 * precision.bytes() as u64
}

/// Writes a parameter set as safetensors.
///
/// Values are rounded to the nearest representable one, ties to even. In [`Precision::F16`] a magnitude from 65520
/// becomes infinite: check [`ParamSet::max_abs`] where that matters.
///
/// # Errors
/// Those of `out`, and [`io::ErrorKind::InvalidInput`] for a tensor called `__metadata__`, which the format reserves.
pub fn write(
    params: &ParamSet,
    precision: Precision,
    metadata: &BTreeMap<String, String>,
    out: &mut dyn Write,
) -> io::Result<()> {
    write_with_integers(params, precision, &IntegerSet::new(), metadata, out)
}

/// [`write()`] of floating-point tensors and integer tensors together. The integers come first and are exact, so that they are
/// aligned; no name may stand in both sets.
///
/// # Errors
/// As [`write()`].
pub fn write_with_integers(
    params: &ParamSet,
    precision: Precision,
    integers: &IntegerSet,
    metadata: &BTreeMap<String, String>,
    out: &mut dyn Write,
) -> io::Result<()> {
    check_names(params)?;
    write_head(&header(contents(params, precision, integers), metadata), out)?;
    integers.values().try_for_each(|tensor| write_integers(tensor, out))?;
    match precision {
        Precision::F32 => params.iter().try_for_each(|(_, array)| write_values(array.values(), out)),
        Precision::F16 => write_halves(params, f16::ZERO, f16::to_le_bytes, out),
        Precision::BF16 => write_halves(params, bf16::ZERO, bf16::to_le_bytes, out),
    }
}

/// What [`write()`] writes, in pieces: values that lie in memory as they are encoded are not copied, but shared.
///
/// # Errors
/// As [`write()`], for a tensor whose name the format reserves.
pub fn to_pieces(
    params: &ParamSet,
    precision: Precision,
    metadata: &BTreeMap<String, String>,
) -> io::Result<Vec<Bytes>> {
    if precision != Precision::F32 || cfg!(not(target_endian = "little")) {
        return Ok(vec![to_bytes(params, precision, metadata)?.into()]);
    }
    check_names(params)?;
    let mut begin = Vec::new();
    write_header(shapes(params), metadata, &mut begin)?;
    Ok(std::iter::once(begin.into()).chain(params.iter().map(|(_, array)| array.memory())).collect())
}

pub(crate) fn check_names(params: &ParamSet) -> io::Result<()> {
    if params.get(METADATA_KEY).is_some() {
        let message = format!("no tensor can be called `{METADATA_KEY}`: safetensors reserves the name");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}

/// Writes what stands before the data of tensors of these names and shapes in [`Precision::F32`]. Their values follow in this
/// order, each tensor's by [`write_values`] in as many parts as there are: for sets that are not in memory together.
///
/// # Errors
/// Those of `out`.
pub fn write_header<'a>(
    tensors: impl Iterator<Item = (&'a str, &'a [usize])>,
    metadata: &BTreeMap<String, String>,
    out: &mut dyn Write,
) -> io::Result<()> {
    write_head(&header(tensors.map(|(name, shape)| (name, shape, Precision::F32)), metadata), out)
}

pub(crate) fn write_head(header: &str, out: &mut dyn Write) -> io::Result<()> {
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())
}

/// Writes values as they stand in a file in [`Precision::F32`].
///
/// # Errors
/// Those of `out`.
pub fn write_values(values: &[f32], out: &mut dyn Write) -> io::Result<()> {
    if cfg!(target_endian = "little") {
        // In memory as they are encoded.
        return out.write_all(bytemuck::cast_slice(values));
    }
    let mut bytes = vec![0u8; CHUNK];
    for values in values.chunks(CHUNK / 4) {
        let bytes = &mut bytes[..values.len() * 4];
        for (bytes, value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
            *bytes = value.to_le_bytes();
        }
        out.write_all(bytes)?;
    }
    Ok(())
}

/// Writes integers as they stand in a file.
fn write_integers(tensor: &Integers, out: &mut dyn Write) -> io::Result<()> {
    let values = tensor.values();
    match tensor.format() {
        IntegerFormat::I64 if cfg!(target_endian = "little") => out.write_all(bytemuck::cast_slice(values)),
        IntegerFormat::I64 => values.iter().try_for_each(|value| out.write_all(&value.to_le_bytes())),
        IntegerFormat::I32 => {
            let mut bytes = Vec::with_capacity(CHUNK.min(4 * values.len()));
            values.chunks(CHUNK / 4).try_for_each(|values| {
                bytes.clear();
                bytes.extend(values.iter().flat_map(|&value| (value as i32).to_le_bytes()));
                out.write_all(&bytes)
            })
        }
    }
}

/// Name, shape and number format of all tensors, in the order of their data.
fn contents<'a>(
    params: &'a ParamSet,
    precision: Precision,
    integers: &'a IntegerSet,
) -> impl Iterator<Item = (&'a str, &'a [usize], AnyNumber)> {
    let integers = integers
        .iter()
        .map(|(name, tensor)| (name.as_str(), tensor.shape(), AnyNumber::Integer(tensor.format())));
    integers.chain(shapes(params).map(move |(name, shape)| (name, shape, AnyNumber::Float(precision))))
}

fn shapes(params: &ParamSet) -> impl Iterator<Item = (&str, &[usize])> {
    params.iter().map(|(name, array)| (name, array.shape()))
}

/// Writes the data in a 16-bit format. The slice conversion uses the processor's instructions where there are any.
fn write_halves<H: Copy>(
    params: &ParamSet,
    zero: H,
    to_le_bytes: fn(H) -> [u8; 2],
    out: &mut dyn Write,
) -> io::Result<()>
where
    [H]: HalfFloatSliceExt,
{
    let mut bytes = vec![0u8; CHUNK];
    let mut halves = [zero; CHUNK / 2];
    for (_, array) in params {
        for values in array.values().chunks(CHUNK / 2) {
            let halves = &mut halves[..values.len()];
            halves.convert_from_f32_slice(values);
            let bytes = &mut bytes[..values.len() * 2];
            for (bytes, &half) in bytes.as_chunks_mut().0.iter_mut().zip(halves.iter()) {
                *bytes = to_le_bytes(half);
            }
            out.write_all(bytes)?;
        }
    }
    Ok(())
}

/// The JSON header, padded. Written by hand because `safetensors` keeps metadata in a `HashMap`, whose order varies.
pub(crate) fn header<'a, N: Number>(
    tensors: impl Iterator<Item = (&'a str, &'a [usize], N)>,
    metadata: &BTreeMap<String, String>,
) -> String {
    let quoted = |text: &str| Value::from(text).to_string();
    let mut entries = Vec::new();
    if !metadata.is_empty() {
        let pairs: Vec<_> =
            metadata.iter().map(|(key, value)| format!("{}:{}", quoted(key), quoted(value))).collect();
        entries.push(format!("\"{METADATA_KEY}\":{{{}}}", pairs.join(",")));
    }
    let mut start = 0u64;
    for (name, shape, number) in tensors {
        let end = start + (shape.iter().product::<usize>() * number.bytes()) as u64;
        let shape: Vec<_> = shape.iter().map(usize::to_string).collect();
        let (name, dtype, shape) = (quoted(name), number.dtype(), shape.join(","));
        entries.push(format!(
            "{name}:{{\"dtype\":\"{dtype}\",\"shape\":[{shape}],\"data_offsets\":[{start},{end}]}}"
        ));
        start = end;
    }
    let mut header = format!("{{{}}}", entries.join(","));
    let padding = header.len().next_multiple_of(ALIGNMENT) - header.len();
    write!(header, "{:padding$}", "").expect("writing to a string cannot fail");
    header
}

#[cfg(test)]
mod tests {
    use safetensors::{Dtype, SafeTensors};

    use super::super::{DecodeError, Limits, from_bytes, read_with_integers};
    use super::*;
    use crate::params::{Array, Integers};

    fn metadata(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    fn tiny() -> ParamSet {
        let mut params = ParamSet::new();
        params.insert("w", Array::new([1, 2], vec![1.0, -2.5]).unwrap());
        params.insert("b", Array::new([1], vec![0.1]).unwrap());
        params
    }

    #[test]
    fn golden_bytes() {
        let expected_header = concat!(
            r#"{"__metadata__":{"a":"1","z":"\"\n"},"#,
            r#""b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"#,
            r#""w":{"dtype":"F32","shape":[1,2],"data_offsets":[4,12]}}"#,
        );
        let padded = expected_header.len().next_multiple_of(8);
        let mut expected = (padded as u64).to_le_bytes().to_vec();
        expected.extend(format!("{expected_header:padded$}").bytes());
        expected.extend([0xcd, 0xcc, 0xcc, 0x3d, 0, 0, 0x80, 0x3f, 0, 0, 0x20, 0xc0]);
        let bytes = to_bytes(&tiny(), Precision::F32, &metadata(&[("z", "\"\n"), ("a", "1")])).unwrap();
        assert_eq!(bytes, expected);
    }

    #[test]
    fn what_is_written_in_parts_is_what_is_written_at_once() {
        let (params, metadata) = (tiny(), metadata(&[("a", "1")]));
        let mut parts = Vec::new();
        write_header(shapes(&params), &metadata, &mut parts).unwrap();
        for (_, array) in &params {
            for values in array.values().chunks(1) {
                write_values(values, &mut parts).unwrap();
            }
        }
        assert_eq!(parts, to_bytes(&params, Precision::F32, &metadata).unwrap());
    }

    #[test]
    fn golden_halves() {
        let data = |precision| {
            let bytes = to_bytes(&tiny(), precision, &BTreeMap::new()).unwrap();
            bytes[bytes.len() - 6..].to_vec()
        };
        // 0.1 is 0x2e66 in f16 and 0x3dcd (up from 0x3dcc_cccd) in bf16.
        assert_eq!(data(Precision::F16), [0x66, 0x2e, 0x00, 0x3c, 0x00, 0xc1]);
        assert_eq!(data(Precision::BF16), [0xcd, 0x3d, 0x80, 0x3f, 0x20, 0xc0]);
    }

    #[test]
    fn the_reference_implementation_reads_it() {
        for precision in [Precision::F32, Precision::F16, Precision::BF16] {
            let metadata = metadata(&[("architecture", "{\"name\":\"x\"}"), ("unicode", "\u{1F600}\u{7}")]);
            let mut params = tiny();
            params.insert("scalar", Array::new([], vec![3.0]).unwrap());
            params.insert("nothing", Array::zeros([0, 7]));
            params.insert("quote\"d \u{e9}", Array::zeros([3]));
            let bytes = to_bytes(&params, precision, &metadata).unwrap();
            assert_eq!(bytes.len() as u64, encoded_len(&params, precision, &metadata));

            let tensors = SafeTensors::deserialize(&bytes).unwrap();
            assert_eq!(tensors.len(), params.len());
            for (name, array) in &params {
                let view = tensors.tensor(name).unwrap();
                assert_eq!((view.shape(), view.dtype()), (array.shape(), precision.dtype()));
                if view.dtype() == Dtype::F32 {
                    let data: Vec<u8> = array.values().iter().flat_map(|v| v.to_le_bytes()).collect();
                    assert_eq!(view.data(), data);
                }
            }
            let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
            let read: BTreeMap<_, _> = header.metadata().clone().unwrap().into_iter().collect();
            assert_eq!(read, metadata);
        }
    }

    #[test]
    fn integers_stand_beside_floating_point_values_to_the_bit() {
        let extremes = [i64::MIN, -1, 0, 1, i64::MAX, 1 << 53];
        let halves = [i64::from(i32::MIN), -1, i64::from(i32::MAX)];
        let integers = IntegerSet::from([
            ("sum.w".to_owned(), Integers::new([2, 3], extremes.to_vec()).unwrap()),
            ("sum.none".to_owned(), Integers::zeros([0])),
            ("sum.x".to_owned(), Integers::new([3], halves.to_vec()).unwrap().in_format(IntegerFormat::I32)),
        ]);
        let metadata = metadata(&[("a", "1")]);
        let mut bytes = Vec::new();
        write_with_integers(&tiny(), Precision::F32, &integers, &metadata, &mut bytes).unwrap();
        let length = encoded_len_with_integers(&tiny(), Precision::F32, &integers, &metadata);
        assert_eq!(bytes.len() as u64, length);
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let view = tensors.tensor("sum.w").unwrap();
        assert_eq!((view.dtype(), view.shape()), (Dtype::I64, &[2, 3][..]));
        assert!(view.data().iter().copied().eq(extremes.iter().flat_map(|value| value.to_le_bytes())));
        let view = tensors.tensor("sum.x").unwrap();
        assert_eq!(
            (view.dtype(), view.data()),
            (Dtype::I32, &[0, 0, 0, 128, 255, 255, 255, 255, 255, 255, 255, 127][..])
        );
        let read = read_with_integers(&mut bytes.as_slice(), Limits::default()).unwrap();
        assert_eq!(read, (tiny(), integers, metadata));
        assert!(matches!(from_bytes(&bytes, Limits::default()), Err(DecodeError::UnsupportedType { .. })));
        for cut in [bytes.len() - 1, bytes.len() - 30] {
            let cut = read_with_integers(&mut &bytes[..cut], Limits::default());
            assert!(matches!(cut, Err(DecodeError::Truncated { .. })), "{cut:?}");
        }
    }

    #[test]
    fn a_reserved_name_is_refused() {
        let mut params = tiny();
        params.insert("__metadata__", Array::zeros([1]));
        let error = to_bytes(&params, Precision::F32, &BTreeMap::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        let error = to_pieces(&params, Precision::F32, &BTreeMap::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
