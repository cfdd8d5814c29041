//! Ensembles: the models of many clients side by side, in one file, and their answers.
//!
//! What an ensemble is, and how its members become one answer, is in [`shared::ensemble`]. An ensemble is as large as all its members
//! together and never wholly in memory: [`Bundle`] holds the prototypes and the offsets of the members' parameters, [`write()`]
//! copies a few values at a time, and [`Bundle::answer`] evaluates one member after the other with running sums for a chunk of
//! samples.

mod answer;
mod bundle;
mod error;
mod extend;
mod inconsistency;
mod leave_out;
mod soundness;
mod writing;

pub use answer::{Answers, Evaluated, Question};
pub use bundle::{Bundle, Values};
pub use error::EnsembleError;
pub use extend::{Extended, extend};
pub use inconsistency::Inconsistency;
pub use leave_out::leave_out;
pub use shared::ensemble::{Fused, MANIFEST_KEY, Manifest, Member, digest};
pub use soundness::is_sound;
pub use writing::{Origin, Source, write};

#[cfg(test)]
mod tests;
