//! Compressed sets as bytes, and what is refused.

use proptest::prelude::*;

use bytes::Bytes;

use super::*;
use crate::params::codec::{self, DecodeError, Limits, encoded_len, from_bytes};

fn params(sizes: &[usize]) -> ParamSet {
    let mut params = ParamSet::new();
    for (number, &size) in sizes.iter().enumerate() {
        let values = (0..size).map(|i| ((i * 31 + number) as f32 * 0.37).sin()).collect();
        params.insert(format!("t{number}.weight"), Array::new([1, size], values).unwrap());
    }
    params
}

fn compressed(params: &ParamSet, format: Format) -> Vec<u8> {
    let metadata = BTreeMap::from([("scalars".to_owned(), "0a".to_owned())]);
    let spare = |name: &str| name == "t2.weight";
    to_bytes(params, &Compression { format, sparse: false, seed: [7; 32] }, &spare, &metadata).unwrap()
}

fn read(mut bytes: &[u8]) -> Result<(ParamSet, BTreeMap<String, String>), DecodeError> {
    super::read(&mut bytes, Limits::default())
}

#[test]
fn what_is_long_is_compressed_and_the_rest_is_exact() {
    let sent = params(&[10_000, 255, 4096, 256]);
    for (format, most) in [(Format::Int8, 0.008), (Format::Int4, 0.5)] {
        let bytes = compressed(&sent, format);
        let (got, metadata) = read(&bytes).unwrap();
        assert_eq!(metadata, BTreeMap::from([("scalars".to_owned(), "0a".to_owned())]));
        assert_eq!(got.names().collect::<Vec<_>>(), sent.names().collect::<Vec<_>>());
        for (name, array) in &sent {
            let found = got.get(name).unwrap();
            assert_eq!(found.shape(), array.shape());
            let apart =
                array.values().iter().zip(found.values()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            let exact = ["t1.weight", "t2.weight"].contains(&name);
            assert!(if exact { apart == 0.0 } else { apart > 0.0 && apart < most }, "{name} {apart}");
        }
        assert_eq!(bytes, compressed(&sent, format), "the same seed, the same bytes");
        let pieces = [&bytes[..100], &bytes[100..5000], &bytes[5000..]].map(Bytes::copy_from_slice);
        assert_eq!(from_pieces(&pieces, Limits::default()).unwrap().0, got);
        // A reader of plain sets says what it does not know.
        assert!(matches!(from_bytes(&bytes, Limits::default()), Err(DecodeError::UnsupportedType { .. })));
    }
}

/// With the tests of the kernels, this one is run with all vector instructions that the processor has.
#[test]
fn the_bytes_and_what_is_read_of_them_are_the_same_on_every_processor() {
    let digest = |bytes: &[u8]| {
        use sha2::Digest as _;
        sha2::Sha256::digest(bytes)[..8].iter().map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    // Quotients, which have the same bits everywhere.
    let values = (0..10_000).map(|i| ((i * 7919) % 10_007) as f32 / 5003.0 - 1.0).collect();
    let mut sent = ParamSet::new();
    sent.insert("t0.weight".to_owned(), Array::new([1, 10_000], values).unwrap());
    for (format, expected) in [
        (Format::Int8, ["f8834398ceacac3d", "7de6d5a0920b5864"]),
        (Format::Int4, ["e6d8c6710f33a3f4", "471fc37ce0f70671"]),
    ] {
        let bytes = compressed(&sent, format);
        let (got, _) = read(&bytes).unwrap();
        let values: Vec<u8> =
            got.get("t0.weight").unwrap().values().iter().flat_map(|value| value.to_le_bytes()).collect();
        assert_eq!([digest(&bytes), digest(&values)], expected, "{format:?}");
    }
}

#[test]
fn the_bytes_are_as_few_as_promised() {
    for (model, input) in [("cnn-mnist", [1, 28, 28]), ("resnet-9", [3, 32, 32])] {
        let architecture = crate::Architecture::by_name(model, &input, 10).unwrap();
        let specs = architecture.parameter_specs().unwrap();
        let set: ParamSet = specs.into_iter().map(|spec| (spec.name, Array::zeros(spec.shape))).collect();
        let plain = encoded_len(&set, Precision::F32, &BTreeMap::new()) as f64;
        for (format, least) in [(Format::Int8, 3.8), (Format::Int4, 7.5)] {
            let bytes = to_bytes(
                &set,
                &Compression { format, sparse: false, seed: [1; 32] },
                &|_| false,
                &BTreeMap::new(),
            );
            let ratio = plain / bytes.unwrap().len() as f64;
            assert!(ratio >= least, "{model} {format:?}: {ratio}");
        }
    }
}

#[test]
fn plain_sets_are_read_as_they_are() {
    let sent = params(&[3, 300]);
    let bytes = codec::to_bytes(&sent, Precision::F32, &BTreeMap::new()).unwrap();
    assert_eq!(read(&bytes).unwrap().0, sent);
}

#[test]
fn what_does_not_fit_is_named() {
    let bytes = compressed(&params(&[300, 1, 1]), Format::Int8);
    let text = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let mut bytes = bytes.clone();
        let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        read(&bytes).unwrap_err().to_string()
    };
    assert!(text("t0.weight.scale", "t0.weight.scald").contains("it has no scales"));
    assert!(text("int8", "int9").contains("int9"));
    assert!(text("compressed", "compresses").contains("nothing says how"));
    assert!(text("\"I8\"", "\"U8\"").contains("of another type"));
    let small = Limits { max_values: 1000, ..Limits::default() };
    let refused = super::read(&mut bytes.as_slice(), small).unwrap_err().to_string();
    assert!(refused.contains("more than are accepted"), "{refused}");
    let none = Limits { max_values: 0, ..Limits::default() };
    assert!(matches!(super::read(&mut bytes.as_slice(), none), Err(DecodeError::UnsupportedType { .. })));
}

const FORMATS: [Format; 5] = [
    Format::Float(Precision::F32),
    Format::Float(Precision::F16),
    Format::Float(Precision::BF16),
    Format::Int8,
    Format::Int4,
];

fn sparse(params: &ParamSet, format: Format) -> Vec<u8> {
    let compression = Compression { format, sparse: true, seed: [7; 32] };
    to_bytes(params, &compression, &|name| name == "t2.weight", &BTreeMap::new()).unwrap()
}

fn largest(sizes: &[usize], share: f64) -> ParamSet {
    let mut params = params(sizes);
    crate::compression::keep_largest(&mut params, share, &|name| name == "t2.weight");
    params
}

#[test]
fn what_is_left_out_is_zero_and_the_rest_is_as_without() {
    let sent = largest(&[20_000, 255, 4096, 300], 0.05);
    let kept =
        |params: &ParamSet, name| params.get(name).unwrap().values().iter().filter(|v| **v != 0.0).count();
    let counts = ["t0.weight", "t1.weight", "t2.weight", "t3.weight"].map(|name| kept(&sent, name));
    assert_eq!((counts[0], counts[3]), (1000, 15));
    assert!(counts[1] > 200 && counts[2] > 4000, "what is short or spared is whole: {counts:?}");
    for (format, most) in FORMATS.into_iter().zip([0.0, 0.001, 0.005, 0.01, 0.6]) {
        let bytes = sparse(&sent, format);
        assert_eq!(bytes, sparse(&sent, format), "the same seed, the same bytes");
        let (got, metadata) = read(&bytes).unwrap();
        assert!(metadata.is_empty());
        assert_eq!(got.names().collect::<Vec<_>>(), sent.names().collect::<Vec<_>>());
        for (name, array) in &sent {
            let found = got.get(name).unwrap();
            assert_eq!(found.shape(), array.shape());
            for (a, b) in array.values().iter().zip(found.values()) {
                assert!((a - b).abs() <= most && (*a != 0.0 || *b == 0.0), "{format:?} {name}: {a} {b}");
            }
            let exact = ["t1.weight", "t2.weight"].contains(&name);
            assert!(!exact || array == found, "{format:?} {name}");
        }
        let pieces = [&bytes[..100], &bytes[100..5000], &bytes[5000..]].map(Bytes::copy_from_slice);
        assert_eq!(from_pieces(&pieces, Limits::default()).unwrap().0, got);
    }
}

#[test]
fn sets_without_zeros_are_as_long_as_those_that_leave_none_out() {
    for sizes in [&[3000, 1][..], &[256, 300]] {
        let set = params(sizes);
        let plain = codec::to_bytes(&set, Precision::F32, &BTreeMap::new()).unwrap();
        // The 0 at the beginning is not worth positions.
        assert_eq!(sparse(&set, Format::Float(Precision::F32)), plain);
        for format in [Format::Int8, Format::Int4] {
            let compression = Compression { format, sparse: false, seed: [7; 32] };
            let whole = to_bytes(&set, &compression, &|_| false, &BTreeMap::new()).unwrap();
            assert_eq!(sparse(&set, format), whole, "{format:?}");
        }
    }
    let none = ParamSet::from_iter([("w".to_owned(), Array::zeros([40, 100]))]);
    for format in FORMATS {
        let bytes = sparse(&none, format);
        assert!(bytes.len() < 300, "{}", bytes.len());
        assert_eq!(read(&bytes).unwrap().0, none);
    }
}

#[test]
fn a_hundredth_of_the_values_takes_as_few_bytes_as_promised() {
    let count = 1_000_000;
    let mut set = params(&[count]);
    let mut state = 1_u32;
    for value in set.get_mut("t0.weight").unwrap().values_mut() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *value = (state >> 8) as f32;
    }
    for (share, bits) in [(0.01, [40.4, 24.4, 24.4, 16.6, 12.6]), (0.1, [36.9, 20.9, 20.9, 13.1, 9.0])] {
        let mut set = set.clone();
        crate::compression::keep_largest(&mut set, share, &|_| false);
        for (format, most) in FORMATS.into_iter().zip(bits) {
            let found = 8.0 * sparse(&set, format).len() as f64 / (share * count as f64);
            assert!(found < most, "{share} {format:?}: {found} bits a value");
        }
    }
}

#[test]
fn golden_bytes_of_what_leaves_zeros_out() {
    let mut values = vec![0.0; 256];
    (values[3], values[200]) = (1.5, -2.0);
    let set = ParamSet::from_iter([("w".to_owned(), Array::new([2, 128], values).unwrap())]);
    let bytes = sparse(&set, Format::Float(Precision::F32));
    let header = concat!(
        r#"{"__metadata__":{"compressed":"{\"tensors\":{\"w\":{\"sparse\":{\"shape\":[2,128],\"kept\":2}}}}"},"#,
        r#""w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w.at":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}}"#,
    );
    let text = std::str::from_utf8(&bytes[8..8 + header.len()]).unwrap();
    assert_eq!(text, header);
    // Gaps 3 and 196, of which seven bits are low: 1 1100000, 0 1 0010001.
    assert_eq!(bytes[bytes.len() - 11..], [0, 0, 0xc0, 0x3f, 0, 0, 0, 0xc0, 0x07, 0x12, 0x01]);
}

#[test]
fn positions_that_do_not_fit_are_named_and_nothing_is_allocated_for_them() {
    let set = largest(&[300, 1, 1], 0.1);
    let bytes = sparse(&set, Format::Float(Precision::F32));
    let changed = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let mut bytes = bytes.clone();
        let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).expect(from);
        bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
        bytes
    };
    let text = |from, to| read(&changed(from, to)).unwrap_err().to_string();
    assert!(text("t0.weight.at", "t0.weight.as").contains("it has no positions"));
    assert!(text("kept\\\":30", "kept\\\":29").contains("not as many"));
    assert!(text("[1,300]", "[1,200]").contains("not those of its values"));
    assert!(text("[1,300]", "[9,900]").contains("not those of its values"), "another count, other low bits");
    assert!(text("sparse", "sparso").contains("sparso"));
    let small = Limits { max_values: 1000, ..Limits::default() };
    let refused = super::read(&mut bytes.as_slice(), small).unwrap_err().to_string();
    assert!(refused.contains("more than are accepted"), "{refused}");
    let none = Limits { max_values: 0, ..Limits::default() };
    assert!(matches!(super::read(&mut bytes.as_slice(), none), Err(DecodeError::UnsupportedType { .. })));
    // A shape beyond all memory, within a limit that is none.
    let huge = changed("[1,300]", "[9e9,9]");
    assert!(read(&huge).is_err());
}

proptest! {
    #[test]
    fn any_change_of_a_byte_is_read_without_panic(at in 0_usize..3000, byte: u8, int4: bool) {
        let format = if int4 { Format::Int4 } else { Format::Int8 };
        let mut bytes = compressed(&params(&[2000, 3]), format);
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = read(&bytes);
    }

    #[test]
    fn nor_where_zeros_are_left_out(at in 0_usize..3000, byte: u8, format in 0..FORMATS.len()) {
        let mut bytes = sparse(&largest(&[2000, 3], 0.2), FORMATS[format]);
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = read(&bytes);
    }

    #[test]
    fn sparse_sets_and_back(
        values in prop::collection::vec(prop_oneof![4 => Just(0.0_f32), 1 => any::<f32>()], 256..2000),
    ) {
        let set = ParamSet::from_iter([("w".to_owned(), Array::new([values.len()], values.clone()).unwrap())]);
        let found = read(&sparse(&set, Format::Float(Precision::F32))).unwrap().0;
        let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        prop_assert_eq!(bits(found.get("w").unwrap().values()), bits(&values));
    }
}
