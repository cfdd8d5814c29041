//! An ensemble with all its members in memory, on the CPU.
//!
//! The server reads one member after the other, since an ensemble may be as large as hundreds of models. A device that answers the
//! same question again and again keeps them. The answers are those of the server.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use models::params::codec::{TensorStream, Verifying};
use models::{Architecture, Array, Backend, Batch, DecodeError, Limits, ModelFileError, Network, ParamSet};
use shared::ensemble::{AskError, Gathered, Layout, Manifest};
use shared::spec::{DataSpec, ENSEMBLE_KEY};

use super::{Made, PredictError};

/// Limits of the header: 500 members of a deep network have one of some 20 MB.
const LIMITS: Limits = Limits {
    max_bytes: u64::MAX,
    max_header: 64 << 20,
    max_tensors: 1 << 18,
    max_values: 0,
    any_order: true,
};

/// The members and what is common to them.
#[derive(Debug)]
pub(super) struct Ensemble {
    manifest: Manifest,
    /// `P_g`, `[classes, d]`; none of classifiers.
    prototypes: Vec<f32>,
    members: Vec<Network>,
}

/// Whether a file describes itself as an ensemble.
pub(super) fn is_ensemble(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let described = TensorStream::open_described(BufReader::new(file), LIMITS);
    described.is_ok_and(|(_, metadata)| metadata.contains_key(ENSEMBLE_KEY))
}

impl Ensemble {
    /// Reads an ensemble, as a run leaves it.
    pub(super) fn open(path: &Path, backend: &Backend) -> Result<Self, PredictError> {
        let cannot = |error| PredictError::Open { path: path.to_path_buf(), error };
        let file = File::open(path).map_err(cannot)?;
        let length = file.metadata().map_err(cannot)?.len();
        let unreadable = |problem: ModelFileError| PredictError::Model { path: path.to_path_buf(), problem };
        let no_ensemble = |reason| PredictError::NotAnEnsemble { path: path.to_path_buf(), reason };
        let cut = || no_ensemble("it was not copied completely".to_owned());

        let mut input = Verifying::new(BufReader::new(file));
        let described = TensorStream::open_described(&mut input, LIMITS);
        let (stream, metadata) = described.map_err(|error| unreadable(error.into()))?;
        let manifest = Manifest::of(&metadata).map_err(no_ensemble)?;
        let layout = Layout::of(&manifest).map_err(no_ensemble)?;
        layout.check(manifest.members.len(), &stream).map_err(no_ensemble)?;
        let (data, mut cursor) = stream.into_parts();
        // What the header declares is not allocated before it is known to be there.
        if cursor.remaining() > length {
            return Err(cut());
        }
        let mut values = Vec::new();
        let mut next = |data: &mut dyn Read| {
            let read = cursor.next(data, usize::MAX, &mut values).map_err(|error| match error {
                DecodeError::Truncated { .. } => cut(),
                error => unreadable(error.into()),
            })?;
            let tensor = read.map_or_else(String::new, |(tensor, _)| tensor.to_owned());
            if values.iter().all(|value| value.is_finite()) {
                Ok(std::mem::take(&mut values))
            } else {
                Err(PredictError::Diverged { tensor })
            }
        };
        let mut members = Vec::with_capacity(manifest.members.len());
        for _ in &manifest.members {
            let mut params = ParamSet::new();
            for (name, shape) in &layout.tensors {
                let array = Array::new(shape.clone(), next(data)?);
                params.insert(name.clone(), array.expect("the header was compared with the layout"));
            }
            let network = Network::new(&manifest.architecture, &params, backend);
            members.push(network.map_err(PredictError::Network)?);
        }
        let prototypes = layout.prototypes.as_ref().map(|_| next(data)).transpose()?.unwrap_or_default();
        input.finish().map_err(|error| unreadable(error.into()))?;
        Ok(Self { manifest, prototypes, members })
    }

    /// The architecture of each member.
    pub(super) fn architecture(&self) -> &Architecture {
        &self.manifest.architecture
    }

    /// The description of its samples.
    pub(super) fn samples(&self) -> &DataSpec {
        &self.manifest.data
    }

    /// The predictions for a batch of the samples at these positions, fused as the ensemble's run says.
    pub(super) fn answer(&mut self, batch: &Batch, positions: &[usize]) -> Result<Vec<Made>, PredictError> {
        let Self { manifest, prototypes, members } = self;
        let (fusion, dimensions) =
            (manifest.answering.fusion, prototypes.len() / manifest.architecture.classes.max(1));
        let mut gathered = Gathered::new(manifest, dimensions, &[fusion], positions, batch.x().to_vec());
        for (member, network) in members.iter_mut().enumerate() {
            gathered.ask(manifest, member, network).map_err(|error| match error {
                AskError::Features => PredictError::Member { client: manifest.members[member].client },
                AskError::Model(error) => PredictError::Network(error),
                AskError::Batch(error) => error.into(),
            })?;
        }
        let fused = gathered.conclude(manifest, prototypes).remove(&fusion).unwrap_or_default();
        let made = fused.iter().map(|fused| Made {
            class: fused.class() as u32,
            probabilities: fused.log_probabilities.iter().map(|log| log.exp()).collect(),
        });
        Ok(made.collect())
    }
}
