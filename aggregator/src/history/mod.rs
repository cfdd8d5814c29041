//! What happened in the runs that were served.
//!
//! Two write it. The [`RoundLog`] is written by the thread that makes a run's durable steps, in their order: a round's row and
//! the updates that it is made of are in the database before the files that say so are removed. Whatever moment the
//! process dies at, the next one finds at most the newest closed round missing, and enters it from the run's files
//! before anybody comes. The [`Recorder`] writes the rest on a thread of its own, a few times a second: what the run
//! waits for, arrivals as they come, what devices leave out, what the operator was told. When the process dies, the last
//! moments of that may be lost.

mod closed_rounds;
mod health;
mod lock;
mod read;
mod recorder;
mod rows;
mod skipped_samples;
mod snapshot;

pub use closed_rounds::{RoundLog, RoundLogError};
pub use health::Health;
pub use lock::Presence;
pub(crate) use read::short;
pub use read::{StoredArrival, StoredEvent, StoredRound, StoredRun};
pub use recorder::Recorder;
pub use skipped_samples::StoredLeftOut;
pub use snapshot::{Awaited, Snapshot, Stage, WaitsFor};
