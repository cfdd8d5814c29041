//! The history of served runs in the database.
//!
//! It has two writers. The disk thread of a run writes the [`RoundLog`] as part of its durable steps: the rows of a round and
//! its updates are in the database before the corresponding files are removed. After a crash at any moment, at most the newest
//! closed round is missing, and it is restored from the run's files before devices can connect. The [`Recorder`] writes the rest
//! on its own thread, a few times a second: what the run waits for, arriving updates, skipped samples, notices to the operator.
//! A crash may lose the last moments of that.

mod closed_rounds;
mod device;
mod health;
mod lock;
mod read;
mod recorder;
mod rows;
mod run_devices;
mod skipped_samples;

pub use closed_rounds::{RoundLog, RoundLogError, restore_rounds};
pub use device::DeviceRecord;
pub use health::Health;
pub use lock::RunLock;
pub(crate) use read::short;
pub use read::{StoredArrival, StoredEvent, StoredRound, StoredRun};
pub use recorder::{LoadOf, Recorder};
pub use skipped_samples::StoredSkipped;
