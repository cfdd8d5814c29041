//! Records: how an algorithm's values leave its hands.
//!
//! Everything that crosses the network or survives a round is a set of named tensors plus a few scalars.
//! A [`Record`] is just that: tensors in the safetensors format, readable by any safetensors reader, and
//! the scalars as postcard (hex) under one metadata key. [`ToRecord`] converts an algorithm's own types to
//! records and back; this is the only serialisation an algorithm has to think about.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use bytes::Bytes;
use models::params::codec::{self, DecodeError, Limits};
use models::params::{Mismatch, ParamSet, Precision};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::payload::Payload;

/// Metadata key of the scalars.
const SCALARS: &str = "scalars";

/// Named tensors and opaque scalars, the form in which values travel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// The tensors. An algorithm with several sets gives each a name prefix of its own.
    pub tensors: ParamSet,
    /// What is not a tensor, as postcard; empty if there is none.
    pub scalars: Vec<u8>,
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
}

/// A value that can leave an algorithm's hands: its broadcast, update, server state or client state.
pub trait ToRecord: Sized {
    /// Moves the value into a record, without copying tensors.
    fn into_record(self) -> Record;
    /// Takes the value out of a record. Shapes are the algorithm's to check.
    fn from_record(record: Record) -> Result<Self, RecordError>;
}

/// A bare parameter set is a record without scalars.
impl ToRecord for ParamSet {
    fn into_record(self) -> Record {
        Record { tensors: self, scalars: Vec::new() }
    }

    fn from_record(record: Record) -> Result<Self, RecordError> {
        if record.scalars.is_empty() {
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

impl Record {
    /// A record with `scalars` encoded as postcard.
    ///
    /// # Panics
    /// If `scalars` holds a type that postcard cannot express (a map of unknown length, say). Scalars
    /// are plain structs of an algorithm's own.
    pub fn with_scalars(tensors: ParamSet, scalars: &impl Serialize) -> Self {
        let scalars =
            postcard::to_stdvec(scalars).expect("scalars are plain structs, which postcard encodes");
        Self { tensors, scalars }
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
            let hex: String = self.scalars.iter().map(|byte| format!("{byte:02x}")).collect();
            metadata.insert(SCALARS.to_owned(), hex);
        }
        metadata
    }

    /// Exact length in bytes of [`write_to`](Self::write_to)'s output.
    #[must_use]
    pub fn encoded_len(&self, precision: Precision) -> u64 {
        codec::encoded_len(&self.tensors, precision, &self.metadata())
    }

    /// Streams the record out, tensors rounded to `precision`.
    pub fn write_to(&self, precision: Precision, out: &mut dyn Write) -> io::Result<()> {
        codec::write(&self.tensors, precision, &self.metadata(), out)
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
        let pieces = codec::to_pieces(&self.tensors, precision, &self.metadata());
        Payload::new(pieces.expect("no algorithm gives a tensor the one name that is reserved"))
    }

    /// What is left of the record where it was sent in `precision`.
    pub fn sent(self, precision: Precision) -> Result<Self, RecordError> {
        if precision == Precision::F32 {
            return Ok(self);
        }
        let bytes = self.to_bytes(precision);
        let limits = Limits { max_bytes: bytes.len() as u64, ..Limits::default() };
        Self::read_from(&mut bytes.as_slice(), limits)
    }

    /// Reads one record; `input` must end with it.
    pub fn read_from(input: &mut dyn Read, limits: Limits) -> Result<Self, RecordError> {
        Self::of(codec::read(input, limits)?)
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
        let scalars = match metadata.get(SCALARS) {
            None => Vec::new(),
            Some(hex) => {
                unhex(hex).ok_or(RecordError::Scalars { expected: "any record (not hexadecimal)" })?
            }
        };
        Ok(Self { tensors, scalars })
    }
}

fn unhex(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|value| value as u8);
    digits.chunks_exact(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
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
