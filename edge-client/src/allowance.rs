//! The device's own bound on memory, by which it refuses runs that it has no memory for.
//!
//! A server decides how large models and batches are. Without a bound, a run that is too large ends the process when it allocates,
//! again after every restart. The [estimate](shared::memory) of the specification is compared before a task is received.

use shared::memory::{RoundMemory, estimate};
use shared::spec::RunSpec;

use crate::memory::resident;
use crate::system::System;
use crate::system::memory::memory;

/// The share of the free memory that a run may take if the user names no bound: estimates are rough, and other programs need some.
const SHARE: f64 = 0.8;

/// What training takes beyond the estimate: the threads' stacks, the pages of the code, the packed operands of matrix products.
const OVERHEAD: u64 = 4_000_000;

/// The memory that this process may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// In all, in bytes.
    pub bytes: u64,
    /// What the program and its samples take of that without a run.
    pub used: u64,
    /// Whether the user named the bound. Otherwise it follows from what is free.
    pub named: bool,
}

/// A run needs more memory than the device allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this run needs about {} on this device, which allows {}: {}, or allow more with --max-memory",
    size(*.needed), size(*.allowed), remedy(*.round)
)]
pub struct TooLarge {
    /// The estimate for the whole process, in bytes.
    pub needed: u64,
    /// [`Allowance::bytes`].
    pub allowed: u64,
    /// What of it is the run's.
    pub round: RoundMemory,
}

impl Allowance {
    /// What this process may take: `bound` in all, or what it takes now and 80 % of what is free. `None` without a bound on a
    /// system that does not report its memory.
    #[must_use]
    pub fn of_process(bound: Option<u64>) -> Option<Self> {
        let used = in_use().unwrap_or(0);
        let bytes = match bound {
            Some(bound) => bound,
            None => used.saturating_add(default_share(&System::this())?),
        };
        Some(Self { bytes, used, named: bound.is_some() })
    }

    /// The same bound by what this process takes now, and by what is free now if the user named none.
    #[must_use]
    pub fn anew(self) -> Self {
        Self::of_process(self.named.then_some(self.bytes)).unwrap_or(self)
    }

    /// What is left for a run.
    #[must_use]
    pub fn left(&self) -> u64 {
        self.bytes.saturating_sub(self.used)
    }

    /// Refuses a run that would need more with this number of samples.
    ///
    /// # Errors
    /// [`TooLarge`].
    pub fn check(&self, spec: &RunSpec, samples: u64) -> Result<(), TooLarge> {
        // A specification of no run is refused when its task begins, with what is wrong with it.
        let round = estimate(spec, samples).unwrap_or_default();
        let needed = self.used.saturating_add(round.total());
        if needed > self.bytes {
            return Err(TooLarge { needed, allowed: self.bytes, round });
        }
        Ok(())
    }
}

/// What this process takes without a run; `None` if the system does not report it.
pub(crate) fn in_use() -> Option<u64> {
    resident().map(|bytes| bytes.saturating_add(OVERHEAD))
}

/// What a run may take of the free memory if the user names no bound; `None` if the system does not report it.
pub(crate) fn default_share(system: &System) -> Option<u64> {
    memory(system).map(|memory| (memory.free as f64 * SHARE) as u64)
}

/// A number of bytes, for people.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..10_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        10_000_000..1_000_000_000 => format!("{:.0} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

fn remedy(round: RoundMemory) -> &'static str {
    if round.batches > round.models {
        "have the run use smaller batches (training.batch) or a narrower model"
    } else {
        "have the run use a smaller model"
    }
}

#[cfg(test)]
mod tests {
    use models::Architecture;

    use super::*;
    use crate::system::tests::system;

    fn spec() -> RunSpec {
        let mut spec = RunSpec::example("fedavg");
        spec.architecture = Architecture::by_name("mlp-25m", &[1, 28, 28], 10).unwrap();
        spec
    }

    #[test]
    fn a_run_is_refused_by_its_estimate_and_what_the_process_has_already() {
        let needed = estimate(&spec(), 100).unwrap().total();
        assert!(needed > 200_000_000, "two models at least: {needed}");
        let allowance = |bytes| Allowance { bytes, used: 30_000_000, named: true };
        assert_eq!(allowance(needed + 30_000_000).check(&spec(), 100), Ok(()));
        let refused = allowance(needed + 29_999_999).check(&spec(), 100).unwrap_err();
        assert_eq!((refused.needed, refused.allowed), (needed + 30_000_000, needed + 29_999_999));
        let small = allowance(90_000_000).check(&spec(), 100).unwrap_err().to_string();
        for part in
            ["needs about 2", " MB on this device, which allows 90 MB", "smaller model", "--max-memory"]
        {
            assert!(small.contains(part), "no {part:?} in {small}");
        }
        let mut wide = spec();
        wide.training.batch = 0;
        let large = allowance(90_000_000).check(&wide, 1_000_000).unwrap_err().to_string();
        assert!(large.contains("training.batch") && large.contains(" GB on"), "{large}");
    }

    #[test]
    fn without_a_bound_most_of_the_free_memory_is_allowed() {
        let (_root, with) = system(&[("proc/meminfo", "MemTotal: 4000 kB\nMemAvailable: 1000 kB\n")]);
        assert_eq!(default_share(&with), Some(819_200));
        let (_root, without) = system(&[]);
        assert_eq!(default_share(&without), None, "unknown is no bound");
        let here = Allowance::of_process(Some(7)).unwrap();
        assert_eq!((here.bytes, here.left()), (7, 0));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn what_the_process_takes_is_measured_anew_and_a_bound_that_the_user_named_stays() {
        let before = |named| Allowance { bytes: 7, used: 1, named };
        let named = before(true).anew();
        assert!(named.named && named.bytes == 7 && named.used > OVERHEAD, "{named:?}");
        let free = before(false).anew();
        assert!(!free.named && free.bytes >= free.used && free.used > OVERHEAD, "{free:?}");
    }
}
