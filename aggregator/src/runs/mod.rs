//! Runs as things: found by their names, listed, deleted, stripped and put into archives. Nothing here works on a run.
//!
//! | module | what it is |
//! |---|---|
//! | [`find`] | the run that a person names |
//! | [`overview`] | one run in figures |
//! | [`listing`] | all that lies in a directory of runs |
//! | [`claim`] | keeping other processes off a run meanwhile |
//! | [`deletion`] | deletion of a run in steps that a crash may cut off anywhere |
//! | [`surplus`] | what a run that is over can do without |
//! | [`rule`] | which whole runs are to go |
//! | [`contents`] | what a run consists of on any machine |
//! | [`archive`] | a run in one file |

pub mod archive;
pub mod claim;
pub mod contents;
pub mod deletion;
mod error;
pub mod find;
pub mod listing;
pub mod overview;
pub mod rule;
pub mod sizes;
pub mod surplus;

pub use error::RunsError;
