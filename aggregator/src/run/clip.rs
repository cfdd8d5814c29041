//! The bound of a private run's updates where it adapts.
//!
//! It follows from the bound before and the noised share of updates within that ([`AdaptiveClip`](shared::aggregation::AdaptiveClip)), and stands in the metadata of every
//! checkpoint, for the round after it: with the model, so that no process finds one without the other. A round without a
//! result leaves it as it is.

use shared::aggregation::{LEAST_CLIP, MOST_CLIP, NoisedShare};

use super::{Run, RunError};
use crate::config::Config;
use crate::round::RoundRecord;

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
        if self.clip.is_some() {
            let bound = |text: &str| text.parse().ok().filter(|clip| (LEAST_CLIP..=MOST_CLIP).contains(clip));
            let what = "to which length updates are clipped in the next round";
            self.clip = Some(self.noted(closed, KEY, bound, what)?);
        }
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
