//! Plain facts of a round: its policy, its counts, its record.
//!
//! Nothing here does I/O, and nothing here imports from another folder of this crate: the state machine, the configuration,
//! the run's files and the reports all rest on it.
//!
//! A round is *void* if it closes without changing the model, for lack of updates.
//!
//! | module | what it has |
//! |---|---|
//! | `policy` | [`RoundPolicy`]: when a round opens, whom it asks, when it closes; [`Lateness`] |
//! | `tally` | [`Tally`]: the counts of a round |
//! | `record` | [`RoundRecord`]: one line of `rounds.jsonl`; [`ClosedRound`] |
//! | `weight_bounds` | [`WeightBounds`] and [`SampleCap`]: what one device may count for |
//! | `dominance` | [`Dominance`]: a device that has most of the weight |
//! | [`jsonl`] | records as the text of `rounds.jsonl`, and back |
//! | `plateau` | [`Plateau`] and [`PlateauState`]: when the server trains on at a lower rate |
//! | [`stopping`] | which model is the best, and when training ends early |

#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod dominance;
pub mod jsonl;
mod plateau;
mod policy;
mod record;
pub mod stopping;
mod tally;
mod weight_bounds;

pub use dominance::Dominance;
pub use plateau::{Plateau, PlateauState};
pub use policy::{Lateness, Poisson, RoundPolicy, VOID_PAUSE};
pub use record::{ClosedRound, RoundRecord, UpdateWork, of_a_model};
pub use stopping::{Criterion, EarlyStopping};
pub use tally::{Tally, WaitedFor};
pub use weight_bounds::{SampleCap, WeightBounds};
