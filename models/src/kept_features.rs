//! Features of samples under a frozen extractor, kept in memory from epoch to epoch and from round to round.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes that all of them take together in a process. What does not fit is computed each time.
pub const KEPT_FEATURES_LIMIT: u64 = 256 << 20;

/// The bytes that are taken.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// What samples come from: samples of others are others, even if their numbers are the same.
pub type Source = Arc<dyn Any + Send + Sync>;

/// The features of the samples of one source.
#[derive(Default)]
pub struct KeptFeatures(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    /// Held, so that no other source takes its place in memory.
    source: Option<Source>,
    of: HashMap<u32, Box<[f32]>>,
    bytes: u64,
}

impl KeptFeatures {
    /// The features of these samples, one after the other; `None` unless all are kept.
    #[must_use]
    pub fn get(&self, source: &Source, samples: impl ExactSizeIterator<Item = u32>) -> Option<Vec<f32>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.source.as_ref().filter(|held| Arc::ptr_eq(held, source))?;
        let mut features = Vec::new();
        for sample in samples {
            features.extend_from_slice(kept.of.get(&sample)?);
        }
        Some(features)
    }

    /// Keeps the features of these samples, which follow each other, as far as there is room. Those of another source are dropped.
    pub fn keep(&self, source: &Source, samples: impl ExactSizeIterator<Item = u32>, features: &[f32]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.source.as_ref().is_none_or(|held| !Arc::ptr_eq(held, source)) {
            *kept = Kept { source: Some(source.clone()), ..Kept::default() };
        }
        let each = features.len() / samples.len().max(1);
        let size = size_of_val(features) as u64 / samples.len().max(1) as u64;
        for (sample, features) in samples.zip(features.chunks_exact(each.max(1))) {
            if kept.of.contains_key(&sample) {
                continue;
            }
            let taken = TAKEN.fetch_add(size, Ordering::Relaxed);
            if taken.saturating_add(size) > KEPT_FEATURES_LIMIT {
                TAKEN.fetch_sub(size, Ordering::Relaxed);
                return;
            }
            kept.bytes += size;
            kept.of.insert(sample, features.into());
        }
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
    use super::*;

    fn source() -> Source {
        Arc::new(7_u8)
    }

    #[test]
    fn what_was_kept_comes_back_in_any_order_for_its_source_alone() {
        let (kept, first, second) = (KeptFeatures::default(), source(), source());
        assert_eq!(kept.get(&first, [3].into_iter()), None);
        kept.keep(&first, [3, 8].into_iter(), &[1.0, 2.0, 3.0, 4.0]);
        assert_eq!(kept.get(&first, [8, 3].into_iter()), Some(vec![3.0, 4.0, 1.0, 2.0]));
        assert_eq!(kept.get(&first, [8, 4].into_iter()), None, "one is missing");
        assert_eq!(kept.get(&second, [8].into_iter()), None);
        kept.keep(&second, [8].into_iter(), &[5.0]);
        assert_eq!(kept.get(&second, [8].into_iter()), Some(vec![5.0]));
        assert_eq!(kept.get(&first, [3].into_iter()), None, "one source at a time");
    }

    #[test]
    fn more_than_the_limit_is_not_kept_and_dropping_makes_room() {
        let (kept, source) = (KeptFeatures::default(), source());
        // Two of these are as much as all may take together.
        let half = vec![0.5; (KEPT_FEATURES_LIMIT / 8) as usize + 1];
        kept.keep(&source, [1].into_iter(), &half);
        kept.keep(&source, [2].into_iter(), &half);
        assert!(kept.get(&source, [1].into_iter()).is_some());
        assert!(kept.get(&source, [2].into_iter()).is_none());
        drop(kept);
        let kept = KeptFeatures::default();
        kept.keep(&source, [2].into_iter(), &half);
        assert!(kept.get(&source, [2].into_iter()).is_some());
    }
}
