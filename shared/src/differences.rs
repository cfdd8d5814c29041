//! Models sent as differences, after which every device has the same bytes, whichever way it was sent them.
//!
//! ```text
//! H_1 = B_1        D_r = int8(B_r - H_{r-1})        H_r = H_{r-1} + D_r
//! ```
//!
//! `B_r` is what the algorithm broadcasts in round r. `H_r`, the round's *base*, is what its devices train from: a device that has
//! `H_{r-1}` is sent `D_r`, and any other one `H_r` in f32. Each difference is taken to what devices have, so that errors of rounding do
//! not add up: `H_r` is off from `B_r` by one rounding of `D_r`, however many came before.
//!
//! Tensors that the [8-bit format](models::compression) leaves in f32, the statistics of normalisation layers among them, and those that
//! the base does not have or has in another shape travel as they are, and are exact. A base is named by the SHA-256 of its encoding.

use bytes::Bytes;
use models::Precision;
use models::compression::{self, Compression, Format};
use models::params::codec::Limits;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::outgoing::buffers;
use crate::record::{Record, RecordError};
use crate::spec::RunSpec;

/// The SHA-256 of a base, by which both sides name it.
pub type Digest = [u8; 32];

/// Why a difference does not lead to a model.
#[derive(Debug, thiserror::Error)]
pub enum DifferenceError {
    /// The difference or the base is no record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// It changes a tensor that the base does not have, or has in another shape.
    #[error("it changes the tensor `{tensor}`, which the model that it is a difference to does not have so")]
    NoSuchTensor {
        /// The tensor.
        tensor: String,
    },
    /// It is a difference to another model.
    #[error("it is the difference to another model than the one that is here")]
    OtherBase,
    /// It leads to another model than the sender says.
    #[error("what comes of it is not the model that it is said to be")]
    OtherModel,
    /// The payload is not as long as its parts together.
    #[error("its parts are not as long together as they are said to be")]
    Length,
}

/// What travels beside the tensors.
#[derive(Serialize, Deserialize)]
struct Beside {
    /// The base that it is a difference to.
    from: Digest,
    /// The scalars of the model.
    scalars: Vec<u8>,
}

/// A model that a device has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    digest: Digest,
    bytes: Bytes,
}

impl Base {
    /// The model of these bytes.
    #[must_use]
    pub fn new(bytes: Bytes) -> Self {
        Self { digest: Sha256::digest(&bytes).into(), bytes }
    }

    /// The model of bytes that were stored.
    ///
    /// # Errors
    /// If they are no encoding of a model.
    pub fn stored(bytes: Bytes) -> Result<Self, RecordError> {
        let base = Self::new(bytes);
        base.record()?;
        Ok(base)
    }

    /// The model as it is without an earlier one.
    #[must_use]
    pub fn first(model: &Record) -> Self {
        Self::new(model.to_bytes(Precision::F32).into())
    }

    /// Its SHA-256.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Its encoding.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The difference to the `model` of `round`, encoded.
    ///
    /// # Errors
    /// If this base is no record.
    pub fn difference(&self, model: Record, spec: &RunSpec, round: u32) -> Result<Bytes, DifferenceError> {
        let base = self.record()?;
        let buffers = buffers(spec);
        let fits = |name: &str| {
            let shape = |set: &Record| set.tensors.get(name).map(|array| array.shape().to_vec());
            shape(&base) == shape(&model)
        };
        // An algorithm with several sets puts a prefix before the names of each.
        let exact: Vec<String> = model
            .tensors
            .names()
            .filter(|name| !fits(name) || buffers.iter().any(|buffer| name.ends_with(buffer.as_str())))
            .map(str::to_owned)
            .collect();
        let spare = |name: &str| exact.iter().any(|exact| exact == name);
        let mut tensors = model.tensors;
        let changed: Vec<String> = tensors
            .names()
            .filter(|name| compression::compresses(&tensors, name, &spare))
            .map(str::to_owned)
            .collect();
        for name in &changed {
            if let (Some(array), Some(base)) = (tensors.get_mut(name), base.tensors.get(name)) {
                array.values_mut().iter_mut().zip(base.values()).for_each(|(value, base)| *value -= base);
            }
        }
        let seed = spec.root_seed().derive_numbered("round", u64::from(round)).derive("broadcast");
        let compression = Compression { format: Format::Int8, sparse: false, seed: *seed.as_bytes() };
        let beside = Beside { from: self.digest, scalars: model.scalars };
        Ok(Record::with_scalars(tensors, &beside).to_compressed(&compression, &spare).into())
    }

    /// The model that a difference to this one leads to.
    ///
    /// # Errors
    /// [`DifferenceError`], if it is none to this model.
    pub fn after(&self, difference: &Bytes) -> Result<Self, DifferenceError> {
        let limits = Limits {
            max_bytes: difference.len() as u64,
            // No more tensors are compressed than the base has.
            max_values: self.bytes.len() as u64,
            ..of_twice_as_many_tensors(difference)
        };
        let (mut difference, changed) = Record::marked(difference, limits)?;
        let Beside { from, scalars } = difference.scalars(EXPECTED)?;
        if from != self.digest {
            return Err(DifferenceError::OtherBase);
        }
        let base = self.record()?;
        for tensor in changed {
            let (Some(array), Some(base)) = (difference.tensors.get_mut(&tensor), base.tensors.get(&tensor))
            else {
                return Err(DifferenceError::NoSuchTensor { tensor });
            };
            if array.shape() != base.shape() {
                return Err(DifferenceError::NoSuchTensor { tensor });
            }
            array.values_mut().iter_mut().zip(base.values()).for_each(|(value, base)| *value += base);
        }
        Ok(Self::first(&Record { scalars, ..difference }))
    }

    /// The model after the differences that `payload` consists of, of these lengths, the oldest first; those that lead up to this one
    /// are passed over.
    ///
    /// # Errors
    /// [`DifferenceError`], if they do not lead from this model to that of this digest.
    pub fn follow(&self, payload: &Bytes, lengths: &[u64], to: Digest) -> Result<Self, DifferenceError> {
        let (mut rest, mut reached) = (payload.clone(), None);
        for &length in lengths {
            let length = usize::try_from(length).ok().filter(|&length| length <= rest.len());
            let difference = rest.split_to(length.ok_or(DifferenceError::Length)?);
            let next = match &reached {
                Some(base) => Self::after(base, &difference)?,
                None => match self.after(&difference) {
                    // It may lead to this one.
                    Err(DifferenceError::OtherBase) => continue,
                    next => next?,
                },
            };
            reached = Some(next);
        }
        if !rest.is_empty() {
            return Err(DifferenceError::Length);
        }
        let reached = match reached {
            Some(reached) => reached,
            // All of them lead up to this one.
            None if self.digest == to => self.clone(),
            None => return Err(DifferenceError::OtherBase),
        };
        if reached.digest == to { Ok(reached) } else { Err(DifferenceError::OtherModel) }
    }

    fn record(&self) -> Result<Record, RecordError> {
        let limits = Limits { max_bytes: self.bytes.len() as u64, ..Limits::default() };
        Record::from_shared(&self.bytes, limits)
    }
}

/// Limits for a difference to a model within the usual ones: a compressed tensor has another one with its scales, and is named once more.
fn of_twice_as_many_tensors(difference: &Bytes) -> Limits {
    let default = Limits::default();
    Limits { max_header: difference.len() as u64, max_tensors: 2 * default.max_tensors, ..default }
}

/// What a difference's scalars are called in errors.
const EXPECTED: &str = "a difference of models";

/// The base that an encoded difference is to.
///
/// # Errors
/// If it is none.
pub fn base_of(difference: &Bytes) -> Result<Digest, RecordError> {
    let length = difference.len() as u64;
    let limits = Limits { max_bytes: length, max_values: 4 * length, ..of_twice_as_many_tensors(difference) };
    let (difference, _) = Record::marked(difference, limits)?;
    difference.scalars::<Beside>(EXPECTED).map(|beside| beside.from)
}

#[cfg(test)]
mod tests;
