//! Parameters as safetensors: whole, a few values at a time, and as a model's file.

use std::collections::BTreeMap;

use bytes::Bytes;
use models::codec::{self, Limits};
use models::compression::{self, Compression, Format};
use models::params::codec::TensorStream;
use models::{Architecture, Array, ParamSet, Precision};
use shared::differences::{Base, base_of};
use shared::record::Record;
use shared::seed::Seed;
use shared::spec::RunSpec;

use super::Seen;

/// What stands in headers.
pub const WORDS: &[&str] = &[
    "\"shape\":[0,1099511627776,1099511627776]",
    "\"shape\":[4294967296,4294967296]",
    "\"shape\":[]",
    "\"dtype\":\"F32\"",
    "\"dtype\":\"F16\"",
    "\"dtype\":\"BF16\"",
    "\"dtype\":\"U8\"",
    "\"dtype\":\"I8\"",
    "{\"int4\":[300]}",
    "{\"sparse\":{\"shape\":[3,100],\"kept\":3}}",
    "\"values\":\"int8\"",
    ".at",
    "compressed",
    "\"int8\"",
    "\"dtype\":\"U16\"",
    "\"data_offsets\":[0,0]",
    "__metadata__",
    "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
];

/// All at once. What is read is written and read again.
///
/// # Panics
/// If it then differs.
#[must_use]
pub fn read(bytes: &[u8]) -> Seen {
    let limits = Limits { max_bytes: 1 << 40, ..Limits::default() };
    let found = codec::from_bytes(bytes, limits);
    if let Ok((params, metadata)) = &found {
        let written = codec::to_bytes(params, Precision::F32, metadata).expect("memory takes all bytes");
        assert_eq!(written.len() as u64, codec::encoded_len(params, Precision::F32, metadata));
        let (again, same) = codec::from_bytes(&written, limits).expect("what is written is read");
        assert_eq!(&same, metadata);
        assert!(again.names().eq(params.names()));
        let bits = |params: &ParamSet| -> Vec<u32> {
            params.iter().flat_map(|(_, array)| array.values().iter().map(|value| value.to_bits())).collect()
        };
        // Without the payloads of what is no number: a conversion may quiet them.
        if params.first_non_finite().is_none() {
            assert_eq!(bits(&again), bits(params));
        }
        let tight = Limits { max_bytes: bytes.len() as u64, ..limits };
        assert!(codec::from_bytes(bytes, tight).is_ok(), "no more than the whole is needed");
        let short = Limits { max_bytes: bytes.len() as u64 - 1, ..limits };
        assert!(codec::from_bytes(bytes, short).is_err(), "a limit is kept");
    }
    Seen::result(&found)
}

/// A few values at a time: the same values.
///
/// # Panics
/// If the two readers disagree.
#[must_use]
pub fn stream(bytes: &[u8]) -> Seen {
    let limits = Limits::default();
    let mut stream = match TensorStream::open(bytes, limits) {
        Ok(stream) => stream,
        Err(error) => return Seen::of(&error),
    };
    let (mut count, mut values) = (0, Vec::new());
    let ended = loop {
        match stream.next(1000, &mut values) {
            Ok(Some(_)) => {
                assert!((1..=1000).contains(&values.len()), "{} values at a time", values.len());
                count += values.len();
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    if let Ok((params, _)) = codec::from_bytes(bytes, limits) {
        assert!(ended.is_ok() && params.iter().map(|(_, array)| array.len()).sum::<usize>() == count);
    }
    Seen::of(&ended)
}

/// A trained model.
///
/// # Panics
/// If what is read cannot be written.
#[must_use]
pub fn model_file(bytes: &[u8]) -> Seen {
    let mut input = bytes;
    let found = models::read_model(&mut input);
    if let Ok((architecture, params, metadata)) = &found {
        let mut written = Vec::new();
        models::write_model(architecture, params, metadata, &mut written)
            .expect("what is read can be written");
    }
    Seen::result(&found)
}

/// A difference of models, on a device that has the one before it or another one.
#[must_use]
pub fn difference(bytes: &[u8]) -> Seen {
    let (base, _) = before_and_after();
    let payload = Bytes::copy_from_slice(bytes);
    let alone = base.after(&payload);
    if let Ok(next) = &alone {
        let lengths = [payload.len() as u64];
        assert_eq!(&base.follow(&payload, &lengths, next.digest()).expect("it leads there"), next);
        assert!(base.follow(&payload, &lengths, [0; 32]).is_err(), "it leads nowhere else");
    }
    let _ = base_of(&payload);
    Seen::result(&alone)
}

/// Differences to mutate.
#[must_use]
pub fn differences() -> Vec<Vec<u8>> {
    vec![before_and_after().1.to_vec()]
}

/// A model that a device has, and a difference to it.
fn before_and_after() -> (Base, Bytes) {
    let model = |step: f32| {
        let mut tensors = small();
        let values = (0_u16..300).map(|value| f32::from(value) * step).collect();
        tensors.insert("extractor.weight", Array::new([3, 100], values).expect("300 values"));
        Record { tensors, ..Record::default() }
    };
    let base = Base::first(&model(0.5));
    let difference = base.difference(model(0.75), &RunSpec::example("fedavg"), 2);
    (base, difference.expect("its own encoding"))
}

fn small() -> ParamSet {
    let mut params = ParamSet::new();
    let values = (0_u8..6).map(|value| f32::from(value) - 2.5).collect();
    params.insert("head.fc.weight", Array::new([2, 3], values).expect("six values"));
    params.insert("head.fc.bias", Array::zeros([2]));
    params.insert("scalar", Array::new(Vec::new(), vec![1.0]).expect("one value"));
    params.insert("empty", Array::zeros([0, 4]));
    params
}

/// Small sets in each precision.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let metadata = BTreeMap::from([("key".to_owned(), "value".to_owned())]);
    let written = |precision| codec::to_bytes(&small(), precision, &metadata).expect("no reserved name");
    let none = codec::to_bytes(&ParamSet::new(), Precision::F32, &BTreeMap::new());
    [Precision::F32, Precision::F16, Precision::BF16]
        .map(written)
        .into_iter()
        .chain([none.expect("no reserved name")])
        .collect()
}

/// Compressed sets. What is read is compressed and read again.
///
/// # Panics
/// If it then has other tensors.
#[must_use]
pub fn compressed(mut bytes: &[u8]) -> Seen {
    let limits = Limits { max_bytes: 1 << 40, max_values: 16 << 20, ..Limits::default() };
    let found = compression::read(&mut bytes, limits);
    if let Ok((params, metadata)) = &found {
        for compression in compressions() {
            let again =
                compression::to_bytes(params, &compression, &|_| false, metadata).expect("no reserved name");
            let limits = Limits { max_bytes: 1 << 40, max_values: 1 << 40, ..limits };
            let (again, _) =
                compression::read(&mut again.as_slice(), limits).expect("what is written is read");
            assert!(again.names().eq(params.names()));
        }
    }
    Seen::result(&found)
}

/// Small sets in each format.
///
/// # Panics
/// Never.
#[must_use]
pub fn compressed_seeds() -> Vec<Vec<u8>> {
    let mut params = small();
    let values = (0_u16..300).map(|value| (f32::from(value) * 0.3).sin()).collect();
    params.insert("body.weight", Array::new([3, 100], values).expect("as many values"));
    let written = |params: &ParamSet, compression| {
        compression::to_bytes(params, &compression, &|_| false, &BTreeMap::new()).expect("no reserved name")
    };
    let mut few = params.clone();
    compression::keep_largest(&mut few, 0.02, &|_| false);
    compressions()
        .map(|compression| written(if compression.sparse { &few } else { &params }, compression))
        .collect()
}

/// Every format, with zeros and without them.
fn compressions() -> impl Iterator<Item = Compression> {
    let compression = |format, sparse| Compression { format, sparse, seed: [3; 32] };
    [Format::Int8, Format::Int4, Format::Float(Precision::F32), Format::Float(Precision::F16)]
        .into_iter()
        .flat_map(move |format| [false, true].map(|sparse| compression(format, sparse)))
}

/// A network of every kind of layer that small models have.
#[must_use]
pub fn architectures() -> Vec<Architecture> {
    [("linear", vec![1, 2, 2]), ("mlp-2nn", vec![1, 2, 2])]
        .iter()
        .filter_map(|(name, input)| Architecture::by_name(name, input, 2).ok())
        .collect()
}

/// Small models.
#[must_use]
pub fn models() -> Vec<Vec<u8>> {
    let architecture = &architectures()[0];
    let params =
        architecture.initialise(|tensor| Seed::root(1).derive(tensor).rng()).expect("a valid network");
    let mut bytes = Vec::new();
    models::write_model(architecture, &params, &BTreeMap::new(), &mut bytes).expect("it fits");
    vec![bytes]
}
