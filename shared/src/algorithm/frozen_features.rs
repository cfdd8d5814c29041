//! What a frozen extractor makes of a client's samples, computed once for each of them.

use std::ops::ControlFlow;
use std::sync::Arc;

use models::architecture::ArchitectureError;
use models::{Batch, Frozen, KEPT_FEATURES_LIMIT, Learner, ModelError, Source};

use super::TrainError;
use crate::data::View;
use crate::spec::RunSpec;

/// Samples in one pass. The features have these bits in every round because the passes are the same.
pub(crate) const CHUNK: usize = 32;

/// The features of a client's samples.
pub(super) struct FrozenFeatures {
    /// `[samples, ...]`
    values: Arc<[f32]>,
    /// Values of one sample.
    each: usize,
}

/// The bytes that the features of as many samples take; `None` if they are computed anew with each batch, because the extractor is
/// not frozen, samples change at random, or the features would be larger than [`KEPT_FEATURES_LIMIT`].
pub(crate) fn kept_bytes(spec: &RunSpec, samples: u64) -> Result<Option<u64>, ArchitectureError> {
    if !spec.architecture.is_part_frozen("extractor") || !spec.data.preparation.is_fixed() {
        return Ok(None);
    }
    let each = spec.architecture.feature_shape()?.iter().product::<usize>() as u64;
    let bytes = samples.saturating_mul(each).saturating_mul(4);
    Ok(Some(bytes).filter(|&bytes| bytes <= KEPT_FEATURES_LIMIT))
}

impl FrozenFeatures {
    /// Those of all samples of a client, kept of an earlier round or computed now; `None` as in [`kept_bytes`]. `monitor` hears of
    /// every pass and may break to cancel.
    pub(super) fn of(
        spec: &RunSpec,
        data: &View,
        learner: &mut Learner,
        mut monitor: impl FnMut() -> ControlFlow<()>,
    ) -> Result<Option<Self>, TrainError> {
        let Some(kept) = spec.architecture.frozen.as_ref().and_then(Frozen::features) else {
            return Ok(None);
        };
        if data.is_empty() || kept_bytes(spec, data.len() as u64).map_err(ModelError::from)?.is_none() {
            return Ok(None);
        }
        let source = data.dataset().clone() as Source;
        let values = kept.get_or_compute(&source, data.indices(), || {
            let mut features = Vec::new();
            let positions: Vec<usize> = (0..data.len()).collect();
            for positions in positions.chunks(CHUNK) {
                let batch = spec.data.preparation.batch(data, positions, &spec.architecture.input)?;
                features.extend_from_slice(learner.features(&batch)?);
                if monitor().is_break() {
                    return Err(TrainError::Cancelled);
                }
            }
            Ok(features)
        })?;
        let each = values.len() / data.len();
        Ok(Some(Self { values, each }))
    }

    /// The batch of the samples at these positions with their features.
    pub(super) fn give(&self, batch: Batch, positions: &[usize]) -> Batch {
        let of = |&position: &usize| &self.values[position * self.each..][..self.each];
        batch.with_features(positions.iter().flat_map(of).copied().collect())
    }
}
