//! Features of samples under a frozen extractor, kept in memory from epoch to epoch and from round to round.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that all of them take together in a process. What does not fit is used and not kept.
pub const KEPT_FEATURES_LIMIT: u64 = 256 << 20;

/// The bytes that are taken.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// What samples come from: samples of others are others, even if their numbers are the same.
pub type Source = Arc<dyn Any + Send + Sync>;

/// The features of selections of the samples of one source, one selection for each client.
///
/// The features of a sample can differ in their last bits with the samples that are computed beside it. A selection is therefore
/// kept or computed as a whole, and is computed in the same batches each time.
#[derive(Default)]
pub struct KeptFeatures(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Held, so that no other source takes its place in memory.
    source: Option<Source>,
    of: HashMap<Box<[u32]>, Arc<[f32]>>,
    bytes: u64,
}

impl KeptFeatures {
    /// The features of these samples, one after the other, which are computed unless they are kept; and kept if there is room.
    /// Those of another source are dropped.
    ///
    /// # Errors
    /// Those of `compute`.
    pub fn get_or_compute<E>(
        &self,
        source: &Source,
        samples: &[u32],
        compute: impl FnOnce() -> Result<Vec<f32>, E>,
    ) -> Result<Arc<[f32]>, E> {
        if let Some(features) = self.kept_of(source).of.get(samples) {
            return Ok(features.clone());
        }
        let features: Arc<[f32]> = compute()?.into();
        let bytes = (size_of_val(&*features) + size_of_val(samples)) as u64;
        let mut kept = self.kept_of(source);
        let taken = TAKEN.fetch_add(bytes, Ordering::Relaxed);
        let is_there = kept.of.contains_key(samples);
        if is_there || taken.saturating_add(bytes) > KEPT_FEATURES_LIMIT {
            TAKEN.fetch_sub(bytes, Ordering::Relaxed);
        } else {
            kept.bytes += bytes;
            kept.of.insert(samples.into(), features.clone());
        }
        Ok(features)
    }

    /// What is kept of this source.
    fn kept_of(&self, source: &Source) -> impl std::ops::DerefMut<Target = Kept> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.source.as_ref().is_none_or(|held| !Arc::ptr_eq(held, source)) {
            *kept = Kept::default();
            kept.source = Some(source.clone());
        }
        kept
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        TAKEN.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for KeptFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptFeatures").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// The features of these samples, and whether they were computed.
    fn get(kept: &KeptFeatures, source: &Source, samples: &[u32], features: &[f32]) -> (Arc<[f32]>, bool) {
        let mut computed = false;
        let compute = || {
            computed = true;
            Ok::<_, Infallible>(features.to_vec())
        };
        let Ok(found) = kept.get_or_compute(source, samples, compute);
        (found, computed)
    }

    // One test, because all share the limit.
    #[test]
    fn a_selection_is_computed_once_for_each_source_while_there_is_room() {
        let kept = KeptFeatures::default();
        let [first, second]: [Source; 2] = [Arc::new(7_u8), Arc::new(7_u8)];
        assert_eq!(get(&kept, &first, &[3, 8], &[1.0, 2.0]), ([1.0, 2.0].into(), true));
        assert_eq!(get(&kept, &first, &[3, 8], &[5.0, 6.0]), ([1.0, 2.0].into(), false));
        assert_eq!(get(&kept, &first, &[8, 3], &[5.0, 6.0]), ([5.0, 6.0].into(), true), "another selection");
        assert_eq!(get(&kept, &second, &[3, 8], &[7.0, 8.0]), ([7.0, 8.0].into(), true), "another source");
        assert!(get(&kept, &first, &[3, 8], &[1.0, 2.0]).1, "one source at a time");
        let failed = kept.get_or_compute(&first, &[9], || Err("no"));
        assert_eq!(failed, Err("no"));
        assert!(get(&kept, &first, &[9], &[1.0]).1, "a failure is not kept");

        // Two of these are more than all may take together.
        let half = vec![0.5; (KEPT_FEATURES_LIMIT / 8) as usize];
        assert!(get(&kept, &first, &[1], &half).1);
        for _ in 0..2 {
            assert_eq!(get(&kept, &first, &[2], &half), (half.clone().into(), true), "there is no room");
        }
        drop(kept);
        let kept = KeptFeatures::default();
        assert!(get(&kept, &first, &[2], &half).1);
        assert!(!get(&kept, &first, &[2], &half).1, "dropping made room");
    }
}
