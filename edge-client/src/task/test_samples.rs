//! The device's test samples, read on demand.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use shared::data::{DataError, View};

/// A device's test samples. They are read when a run first asks for tests, so that other runs do not pay for them, and then kept
/// like training samples: files that change later are seen by the next process.
#[derive(Clone)]
pub struct TestSamples {
    read: Arc<ReadTests>,
    kept: Arc<Mutex<Option<View>>>,
}

type ReadTests = dyn Fn() -> Result<Option<View>, DataError> + Send + Sync;

impl TestSamples {
    /// Those that `read` returns; `None` if the device has none, and then the next round reads again.
    pub fn new(read: impl Fn() -> Result<Option<View>, DataError> + Send + Sync + 'static) -> Self {
        Self { read: Arc::new(read), kept: Arc::default() }
    }

    /// A device without test samples.
    #[must_use]
    pub fn none() -> Self {
        Self::new(|| Ok(None))
    }

    /// Those in `samples`, in memory.
    #[must_use]
    pub fn of(samples: View) -> Self {
        Self::new(move || Ok(Some(samples.clone())))
    }

    /// The samples, if the device has any.
    pub(super) fn get(&self) -> Result<Option<View>, DataError> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_none() {
            *kept = (self.read)()?;
        }
        Ok(kept.clone())
    }
}

impl fmt::Debug for TestSamples {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TestSamples")
    }
}
