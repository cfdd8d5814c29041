//! Model files: safetensors with the architecture and a checksum in the metadata.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use crate::architecture::{Architecture, ArchitectureError};
use crate::network::check_fit;
use crate::params::codec::{self, CHECKSUM_KEY, DecodeError, Limits, Verifying};
use crate::params::{Mismatch, ParamSet, Precision};

/// The metadata key of the architecture, which is JSON.
pub const ARCHITECTURE_KEY: &str = "architecture";

/// Why a model could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelFileError {
    /// The bytes are not safetensors, or some are missing.
    #[error("this is not a readable safetensors file; was it copied completely, and is it the right file?")]
    NotSafetensors(#[source] DecodeError),
    /// The bytes are not those that were written.
    #[error("the model file is damaged: {0}; restore it from a backup or copy it again")]
    Damaged(DecodeError),
    /// The file does not contain the architecture of its parameters.
    #[error(
        "the file has no `{ARCHITECTURE_KEY}` in its metadata: it was not written as a model by this program"
    )]
    NoArchitecture,
    /// The file's architecture cannot be parsed.
    #[error(
        "the file's architecture cannot be understood; was it written by a newer version of this program?"
    )]
    UnknownArchitecture(#[source] serde_json::Error),
    /// The architecture is not valid.
    #[error("the model's architecture is not valid")]
    InvalidArchitecture(#[from] ArchitectureError),
    /// The parameters do not fit the architecture.
    #[error("the model's parameters do not fit its architecture")]
    Mismatch(#[from] Mismatch),
    /// The caller's metadata uses the key that holds the architecture, or that of the checksum.
    #[error("the metadata keys `{ARCHITECTURE_KEY}` and `{CHECKSUM_KEY}` are taken; choose another")]
    ReservedKey,
    /// Writing failed.
    #[error("writing the model failed")]
    Write(#[source] io::Error),
}

impl From<DecodeError> for ModelFileError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Checksum => Self::Damaged(error),
            error => Self::NotSafetensors(error),
        }
    }
}

/// Writes a model in `f32`, with the caller's own metadata (such as the normalisation of inputs and the names of classes)
/// beside the architecture.
///
/// # Errors
/// [`ModelFileError::ReservedKey`], [`ModelFileError::InvalidArchitecture`] and [`ModelFileError::Mismatch`] before anything
/// is written; [`ModelFileError::Write`] if `out` fails.
pub fn write_model(
    architecture: &Architecture,
    params: &ParamSet,
    extra: &BTreeMap<String, String>,
    out: &mut dyn Write,
) -> Result<(), ModelFileError> {
    check_fit(architecture, params)??;
    let mut metadata = extra.clone();
    let json = serde_json::to_string(architecture).map_err(|error| ModelFileError::Write(error.into()))?;
    if metadata.insert(ARCHITECTURE_KEY.to_owned(), json).is_some() || metadata.contains_key(CHECKSUM_KEY) {
        return Err(ModelFileError::ReservedKey);
    }
    codec::write_with_checksum(&metadata, out, |metadata, out| {
        codec::write(params, Precision::F32, metadata, out)
    })
    .map_err(ModelFileError::Write)
}

/// Reads a model: architecture, parameters that fit it, and the other metadata. Accepts up to the default [`Limits`].
///
/// # Errors
/// [`ModelFileError`], whose text says what is wrong with the file and what to do about it.
pub fn read_model(
    input: &mut dyn Read,
) -> Result<(Architecture, ParamSet, BTreeMap<String, String>), ModelFileError> {
    let mut input = Verifying::new(input);
    let (params, mut metadata) = codec::read(&mut input, Limits::default())?;
    input.finish()?;
    metadata.remove(CHECKSUM_KEY);
    let json = metadata.remove(ARCHITECTURE_KEY).ok_or(ModelFileError::NoArchitecture)?;
    let architecture: Architecture =
        serde_json::from_str(&json).map_err(ModelFileError::UnknownArchitecture)?;
    check_fit(&architecture, &params)??;
    Ok((architecture, params, metadata))
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::params::Array;

    fn model() -> (Architecture, ParamSet) {
        let architecture = Architecture::by_name("lenet-5", &[1, 28, 28], 10).unwrap();
        let params = architecture.initialise(|_| ChaCha8Rng::seed_from_u64(1)).unwrap();
        (architecture, params)
    }

    fn metadata(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    fn read_with(params: &ParamSet, pairs: &[(&str, &str)]) -> ModelFileError {
        let bytes = codec::to_bytes(params, Precision::F32, &metadata(pairs)).unwrap();
        read_model(&mut bytes.as_slice()).unwrap_err()
    }

    #[test]
    fn what_is_written_is_read() {
        let (architecture, params) = model();
        let extra = metadata(&[("normalisation", "[0.1307,0.3081]")]);
        let mut bytes = Vec::new();
        write_model(&architecture, &params, &extra, &mut bytes).unwrap();
        assert_eq!(read_model(&mut bytes.as_slice()).unwrap(), (architecture, params, extra));
    }

    #[test]
    fn each_mistake_has_its_own_error() {
        let (architecture, params) = model();
        let json = serde_json::to_string(&architecture).unwrap();
        let error = read_model(&mut &b"PK\x03\x04 not a model at all"[..]).unwrap_err();
        assert!(matches!(error, ModelFileError::NotSafetensors(_)));
        assert!(matches!(read_with(&params, &[]), ModelFileError::NoArchitecture));
        let newer = json.replace("\"relu\"", "\"relu-of-later\"");
        assert!(matches!(
            read_with(&params, &[(ARCHITECTURE_KEY, &newer)]),
            ModelFileError::UnknownArchitecture(_)
        ));
        let invalid = json.replace("\"stride\":1", "\"stride\":0");
        assert!(matches!(
            read_with(&params, &[(ARCHITECTURE_KEY, &invalid)]),
            ModelFileError::InvalidArchitecture(_)
        ));
        let head = params.select("head.");
        match read_with(&head, &[(ARCHITECTURE_KEY, &json)]) {
            ModelFileError::Mismatch(mismatch) => assert_eq!(mismatch.tensor, "extractor.conv1.bias"),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn nothing_wrong_is_written() {
        let (architecture, mut params) = model();
        let mut bytes = Vec::new();
        let reserved = metadata(&[(ARCHITECTURE_KEY, "x")]);
        let result = write_model(&architecture, &params, &reserved, &mut bytes);
        assert!(matches!(result, Err(ModelFileError::ReservedKey)));
        params.insert("z", Array::zeros([1]));
        let result = write_model(&architecture, &params, &BTreeMap::new(), &mut bytes);
        assert!(matches!(result, Err(ModelFileError::Mismatch(_))));
        assert!(bytes.is_empty());
    }
}
