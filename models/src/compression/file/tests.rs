//! Compressed sets as bytes, and what is refused.

use proptest::prelude::*;

use super::*;
use crate::params::codec::{self, encoded_len, from_bytes};

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
    to_bytes(params, &Compression { format, seed: [7; 32] }, &spare, &metadata).unwrap()
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
            let bytes = to_bytes(&set, &Compression { format, seed: [1; 32] }, &|_| false, &BTreeMap::new());
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

proptest! {
    #[test]
    fn any_change_of_a_byte_is_read_without_panic(at in 0_usize..3000, byte: u8, int4: bool) {
        let format = if int4 { Format::Int4 } else { Format::Int8 };
        let mut bytes = compressed(&params(&[2000, 3]), format);
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = read(&bytes);
    }
}
