use proptest::prelude::*;
use safetensors::Dtype;

use super::super::METADATA_KEY;
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
    assert!(matches!(error(&u64::MAX.to_le_bytes()), DecodeError::HeaderTooLarge { declared: u64::MAX, .. }));
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
