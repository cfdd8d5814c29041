//! The bound of a private run's updates where it adapts.
//!
//! It follows from the bound before and the noised share of updates within that ([`AdaptiveClip`](shared::aggregation::AdaptiveClip)), and stands in the metadata of every
//! checkpoint, for the round after it: with the model, so that no process finds one without the other. A round without a
//! result leaves it as it is.

use models::Limits;
use models::params::codec::TensorStream;
use shared::aggregation::{LEAST_CLIP, MOST_CLIP, NoisedShare};

use super::error::{damaged, disk};
use super::{Run, RunError};
use crate::config::Config;
use crate::round::RoundRecord;
use crate::storage::Reading;

/// The key of the bound in a checkpoint's metadata.
pub(super) const KEY: &str = "clip";

/// The bound of the first round, if it adapts.
pub(super) fn first(config: &Config) -> Option<f64> {
    let promise = config.promise?;
    promise.mechanism.adaptive.map(|_| promise.mechanism.clip)
}

impl Run {
    /// Reads the bound of the round after the `closed` one, if it adapts.
    pub(super) fn restore_clip(&mut self, closed: u32) -> Result<(), RunError> {
        if self.clip.is_none() {
            return Ok(());
        }
        let path = self.directory.checkpoint(closed);
        let mut input = Reading::open(&*self.files, &path).map_err(disk("open", &path))?;
        let limits = Limits { max_bytes: u64::MAX, ..Limits::default() };
        let (_, metadata) = TensorStream::open_described(&mut input, limits).map_err(damaged(&path))?;
        let clip = metadata.get(KEY).and_then(|clip| clip.parse().ok());
        let damaged = || RunError::Damaged {
            path: path.clone(),
            reason: "it does not say to which length updates are clipped in the next round".to_owned(),
        };
        self.clip = Some(clip.filter(|clip| (LEAST_CLIP..=MOST_CLIP).contains(clip)).ok_or_else(damaged)?);
        Ok(())
    }

    /// Notes the bound of a closed round and the noised share of updates within it, and moves the bound.
    pub(super) fn adapt_clip(&mut self, record: &mut RoundRecord, share: &NoisedShare) {
        let adaptive = self.config.promise.and_then(|promise| promise.mechanism.adaptive);
        let (Some(adaptive), Some(clip), false) = (adaptive, self.clip, record.closing) else { return };
        record.metrics.insert("clip".to_owned(), clip);
        let Some(share) = share.get() else { return };
        record.metrics.insert("within-clip".to_owned(), share);
        self.clip = Some(adaptive.next(clip, share));
    }
}
