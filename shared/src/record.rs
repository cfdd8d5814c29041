//! Records: the form in which an algorithm's values travel and rest.
//!
//! Everything that crosses the network or survives a round is a set of named tensors and a few scalars. A [`Record`] holds
//! them: tensors in the safetensors format, readable by any safetensors reader, and the scalars as postcard (hex) under one
//! metadata key. [`ToRecord`] converts an algorithm's own types to records and back; it is the only serialisation that an
//! algorithm writes.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};

use bytes::Bytes;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use models::compression::{self, Compression};
use models::params::codec::{self, DecodeError, Limits};
use models::params::{IntegerSet, Mismatch, ParamSet, Precision};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::by_class::ByClass;
use crate::payload::Payload;

/// Metadata key of the scalars.
const SCALARS: &str = "scalars";

/// Metadata key of the results by class.
const TESTED: &str = "tested-by-class";

/// Named tensors and opaque scalars.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The tensors. An algorithm with several sets gives each a name prefix of its own.
    pub tensors: ParamSet,
    /// Integer tensors: the accumulators of partial sums, which travel exactly. Nothing else has any.
    pub integers: IntegerSet,
    /// What is not a tensor, as postcard; empty if there is none.
    pub scalars: Vec<u8>,
    /// How a test of the model that a client was sent went by class; empty unless the run asks for it. Beside updates alone, and no part
    /// of what algorithms make of them.
    pub tested: ByClass,
}

/// Why bytes are not a record, or a record is not the value that was expected.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The tensors do not decode.
    #[error(transparent)]
    Tensors(#[from] DecodeError),
    /// Parts that belong together do not fit together.
    #[error("the parts of this record do not fit together: {0}")]
    Parts(#[from] Mismatch),
    /// The scalars do not decode.
    #[error("the scalars of this record are not those of {expected}")]
    Scalars {
        /// The value that was expected.
        expected: &'static str,
    },
    /// It lacks a part of the value, or has one too many.
    #[error("this record does not hold the parts of {expected}")]
    Incomplete {
        /// The value that was expected.
        expected: &'static str,
    },
}

/// A value that travels or is stored: a broadcast, an update, a partial sum, server state or client state.
pub trait ToRecord: Sized {
    /// Moves the value into a record, without copying tensors.
    fn into_record(self) -> Record;
    /// Takes the value out of a record. Shapes are the algorithm's to check.
    fn from_record(record: Record) -> Result<Self, RecordError>;
}

/// A bare parameter set is a record without scalars.
impl ToRecord for ParamSet {
    fn into_record(self) -> Record {
        Record { tensors: self, ..Record::default() }
    }

    fn from_record(record: Record) -> Result<Self, RecordError> {
        if record.scalars.is_empty() && record.integers.is_empty() {
            Ok(record.tensors)
        } else {
            Err(RecordError::Scalars { expected: "a bare parameter set" })
        }
    }
}

/// Nothing at all: the client state of algorithms that keep none.
impl ToRecord for () {
    fn into_record(self) -> Record {
        Record::default()
    }

    fn from_record(record: Record) -> Result<Self, RecordError> {
        if record == Record::default() { Ok(()) } else { Err(RecordError::Scalars { expected: "nothing" }) }
    }
}

/// A whole number alone.
impl ToRecord for u64 {
    fn into_record(self) -> Record {
        Record::with_scalars(ParamSet::new(), &self)
    }

    fn from_record(record: Record) -> Result<Self, RecordError> {
        record.scalars("a whole number")
    }
}

impl Record {
    /// The metadata key under which a file has the length of what it was read from.
    pub const RECEIVED: &'static str = "received-bytes";

    /// [`write_to`](Self::write_to) in f32 with the number of bytes from which it was read, which readers of records pass over.
    /// Its length is [`received_len`](Self::received_len).
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_received(&self, received: u64, out: &mut dyn Write) -> io::Result<()> {
        self.write_noted(&[(Self::RECEIVED, received.to_string())], out)
    }

    /// [`write_to`](Self::write_to) in f32 with entries of the metadata that readers of records pass over.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write_noted(&self, notes: &[(&str, String)], out: &mut dyn Write) -> io::Result<()> {
        codec::write(&self.tensors, Precision::F32, &self.metadata_noted(notes), out)
    }

    /// Exact length in bytes of [`write_received`](Self::write_received)'s output.
    #[must_use]
    pub fn received_len(&self, received: u64) -> u64 {
        let metadata = self.metadata_noted(&[(Self::RECEIVED, received.to_string())]);
        codec::encoded_len(&self.tensors, Precision::F32, &metadata)
    }

    fn metadata_noted(&self, notes: &[(&str, String)]) -> BTreeMap<String, String> {
        let mut metadata = self.metadata();
        metadata.extend(notes.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
        metadata
    }

    /// A record with `scalars` encoded as postcard.
    ///
    /// # Panics
    /// If `scalars` holds a type that postcard cannot express (a map of unknown length, say). Scalars
    /// are plain structs of an algorithm's own.
    pub fn with_scalars(tensors: ParamSet, scalars: &impl Serialize) -> Self {
        let scalars =
            postcard::to_stdvec(scalars).expect("scalars are plain structs, which postcard encodes");
        Self { tensors, scalars, ..Self::default() }
    }

    /// Several records as one, the tensors of each under its prefix, with scalars of their own beside them. No prefix begins
    /// with another one.
    ///
    /// # Panics
    /// As [`with_scalars`](Self::with_scalars).
    pub fn join(scalars: &impl Serialize, parts: impl IntoIterator<Item = (String, Self)>) -> Self {
        let (mut joined, mut of_parts) = (Self::default(), Vec::new());
        for (prefix, part) in parts {
            joined.tensors.insert_under(&prefix, part.tensors);
            let integers = part.integers.into_iter();
            joined.integers.extend(integers.map(|(name, tensor)| (format!("{prefix}{name}"), tensor)));
            of_parts.push((prefix, part.scalars));
        }
        joined.scalars = Self::with_scalars(ParamSet::new(), &(scalars, of_parts)).scalars;
        joined
    }

    /// The scalars and the parts that were [joined](Self::join), by their prefixes; `expected` names the value for the error.
    pub fn split<T: DeserializeOwned>(
        mut self,
        expected: &'static str,
    ) -> Result<(T, BTreeMap<String, Self>), RecordError> {
        let (scalars, of_parts): (T, Vec<(String, Vec<u8>)>) = self.scalars(expected)?;
        let mut parts = BTreeMap::new();
        for (prefix, scalars) in of_parts {
            let tensors = self.tensors.take_under(&prefix);
            let is_part = |(name, _): &(String, _)| name.starts_with(&prefix);
            let (of_part, rest) = std::mem::take(&mut self.integers).into_iter().partition(is_part);
            self.integers = rest;
            let of_part: IntegerSet = of_part;
            let unprefixed = |(name, tensor): (String, _)| (name[prefix.len()..].to_owned(), tensor);
            let integers = of_part.into_iter().map(unprefixed).collect();
            parts.insert(prefix, Self { tensors, integers, scalars, ..Self::default() });
        }
        if self.tensors.is_empty() && self.integers.is_empty() {
            Ok((scalars, parts))
        } else {
            Err(RecordError::Incomplete { expected })
        }
    }

    /// Decodes the scalars; `expected` names the value for the error.
    pub fn scalars<T: DeserializeOwned>(&self, expected: &'static str) -> Result<T, RecordError> {
        match postcard::take_from_bytes(&self.scalars) {
            Ok((value, [])) => Ok(value),
            _ => Err(RecordError::Scalars { expected }),
        }
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        let mut metadata = BTreeMap::new();
        if !self.scalars.is_empty() {
            metadata.insert(SCALARS.to_owned(), HEXLOWER.encode(&self.scalars));
        }
        if !self.tested.is_empty() {
            let counts = postcard::to_stdvec(&self.tested).expect("numbers can be encoded");
            metadata.insert(TESTED.to_owned(), HEXLOWER.encode(&counts));
        }
        metadata
    }

    /// Exact length in bytes of [`write_to`](Self::write_to)'s output.
    #[must_use]
    pub fn encoded_len(&self, precision: Precision) -> u64 {
        codec::encoded_len_with_integers(&self.tensors, precision, &self.integers, &self.metadata())
    }

    /// Streams the record out, tensors rounded to `precision` and integers exact.
    pub fn write_to(&self, precision: Precision, out: &mut dyn Write) -> io::Result<()> {
        codec::write_with_integers(&self.tensors, precision, &self.integers, &self.metadata(), out)
    }

    /// The record's bytes.
    #[must_use]
    pub fn to_bytes(&self, precision: Precision) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len(precision) as usize);
        self.write_to(precision, &mut bytes).expect("writing to a vector does not fail");
        bytes
    }

    /// The record as a payload. Tensors that are in memory as they are encoded stay there, shared.
    #[must_use]
    pub fn to_payload(&self, precision: Precision) -> Payload {
        if !self.integers.is_empty() {
            return self.to_bytes(precision).into();
        }
        let pieces = codec::to_pieces(&self.tensors, precision, &self.metadata());
        Payload::new(pieces.expect("no algorithm gives a tensor the one name that is reserved"))
    }

    /// What arrives of the record if it is sent in `precision`.
    pub fn sent(self, precision: Precision) -> Result<Self, RecordError> {
        if precision == Precision::F32 {
            return Ok(self);
        }
        let bytes = self.to_bytes(precision);
        let limits = Limits { max_bytes: bytes.len() as u64, ..Limits::default() };
        Self::read_from(&mut bytes.as_slice(), limits)
    }

    /// Reads one record without integers; `input` must end with it. What clients send has none.
    pub fn read_from(input: &mut dyn Read, limits: Limits) -> Result<Self, RecordError> {
        Self::of(codec::read(input, limits)?)
    }

    /// The record's bytes with its tensors compressed, but for those that `spare` names.
    #[must_use]
    pub fn to_compressed(&self, compression: &Compression, spare: &dyn Fn(&str) -> bool) -> Vec<u8> {
        let bytes = compression::to_bytes(&self.tensors, compression, spare, &self.metadata());
        bytes.expect("no algorithm gives a tensor the one name that is reserved")
    }

    /// [`read_from`](Self::read_from) of a record that may be compressed, as updates are.
    pub fn read_update(input: &mut dyn Read, limits: Limits) -> Result<Self, RecordError> {
        Self::of(compression::read(input, limits)?)
    }

    /// [`from_payload`](Self::from_payload) of a record that may be compressed.
    pub fn update_from_payload(payload: &Payload, limits: Limits) -> Result<Self, RecordError> {
        Self::of(compression::from_pieces(payload.pieces(), limits)?)
    }

    /// [`update_from_payload`](Self::update_from_payload) of one piece, with the names of the tensors that were compressed.
    pub fn marked(message: &Bytes, limits: Limits) -> Result<(Self, BTreeSet<String>), RecordError> {
        let pieces = std::slice::from_ref(message);
        let (tensors, compressed, metadata) = compression::marked_from_pieces(pieces, limits)?;
        Ok((Self::of((tensors, metadata))?, compressed))
    }

    /// Reads one record that may have integers, as partial sums do; `input` must end with it.
    pub fn read_with_integers(input: &mut dyn Read, limits: Limits) -> Result<Self, RecordError> {
        let (tensors, integers, metadata) = codec::read_with_integers(input, limits)?;
        Ok(Self { integers, ..Self::of((tensors, metadata))? })
    }

    /// Reads one record, which is the whole payload, where it lies: tensors that need no conversion stay there
    /// ([`codec::from_pieces`]).
    pub fn from_payload(payload: &Payload, limits: Limits) -> Result<Self, RecordError> {
        Self::of(codec::from_pieces(payload.pieces(), limits)?)
    }

    /// [`Record::from_payload`] of one piece.
    pub fn from_shared(message: &Bytes, limits: Limits) -> Result<Self, RecordError> {
        Self::of(codec::from_shared(message, limits)?)
    }

    fn of((tensors, metadata): (ParamSet, BTreeMap<String, String>)) -> Result<Self, RecordError> {
        let not_hex = RecordError::Scalars { expected: "any record (not hexadecimal)" };
        let scalars = metadata.get(SCALARS).map_or(Some(Vec::new()), |hex| unhex(hex)).ok_or(not_hex)?;
        let not_counts = RecordError::Scalars { expected: "a test by class" };
        let counts = |hex: &String| postcard::from_bytes(&unhex(hex)?).ok();
        let tested = metadata.get(TESTED).map_or(Some(ByClass::default()), counts).ok_or(not_counts)?;
        Ok(Self { tensors, scalars, tested, ..Self::default() })
    }
}

fn unhex(hex: &str) -> Option<Vec<u8>> {
    HEXLOWER_PERMISSIVE.decode(hex.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use models::params::Array;

    fn record() -> Record {
        let mut tensors = ParamSet::new();
        tensors.insert("w", Array::new(vec![2], vec![1.5, -2.0]).expect("two values"));
        Record::with_scalars(tensors, &(7u32, 0.25f64))
    }

    #[test]
    fn bytes_and_back() {
        let sent = record();
        let bytes = sent.to_bytes(Precision::F32);
        assert_eq!(bytes.len() as u64, sent.encoded_len(Precision::F32));
        let got = Record::read_from(&mut bytes.as_slice(), Limits::default()).expect("own bytes decode");
        assert_eq!(got, sent);
        let shared = Record::from_shared(&bytes.into(), Limits::default()).expect("own bytes decode");
        assert_eq!(shared, sent);
        for precision in [Precision::F32, Precision::F16] {
            let payload = sent.to_payload(precision);
            assert_eq!(payload.to_bytes(), sent.to_bytes(precision));
            let got = Record::from_payload(&payload, Limits::default()).expect("own bytes decode");
            assert_eq!(got, sent);
        }
        assert_eq!(got.scalars::<(u32, f64)>("a pair").expect("own scalars decode"), (7, 0.25));
    }

    #[test]
    fn a_test_by_class_travels_beside_it() {
        let mut found = models::PerClass::new(2);
        found.count(0, 1, 0.5);
        let sent = Record { tested: ByClass::from(&found), ..record() };
        let got = Record::read_from(&mut sent.to_bytes(Precision::F32).as_slice(), Limits::default());
        assert_eq!(got.expect("own bytes decode"), sent);
        assert_eq!(
            ParamSet::from_record(Record { scalars: Vec::new(), ..sent }).ok(),
            Some(record().tensors)
        );
        let metadata = BTreeMap::from([(TESTED.to_owned(), "ff".to_owned())]);
        assert!(matches!(Record::of((ParamSet::new(), metadata)), Err(RecordError::Scalars { .. })));
    }

    #[test]
    fn what_was_sent_is_rounded_once() {
        let mut exact = record();
        assert_eq!(record().sent(Precision::F16).expect("own bytes decode"), exact, "halves are exact");
        exact.tensors.get_mut("w").expect("it has one").values_mut()[0] = 1.0 + 2f32.powi(-9);
        for (precision, left) in [(Precision::F32, 2f32.powi(-9)), (Precision::BF16, 0.0)] {
            let sent = exact.clone().sent(precision).expect("own bytes decode");
            let found = f64::from(sent.tensors.get("w").expect("it has one").values()[0]);
            assert_eq!(found.to_bits(), f64::from(1.0 + left).to_bits(), "{precision}");
            assert_eq!(sent.clone().sent(precision).expect("own bytes decode"), sent);
        }
    }

    #[test]
    fn scalars_of_another_type_are_refused() {
        assert!(record().scalars::<u8>("a byte").is_err(), "bytes are left over");
        assert!(ParamSet::from_record(record()).is_err());
        assert!(<()>::from_record(record()).is_err());
    }

    #[test]
    fn metadata_that_is_not_hexadecimal_is_an_error() {
        for hex in ["a", "zz", "0é"] {
            assert_eq!(unhex(hex), None, "{hex}");
        }
        assert_eq!(unhex("00fF"), Some(vec![0, 255]));
    }
}
