//! Event files of TensorBoard: the rounds of a run as scalars, what clients measured as histograms, the settings as hyper-parameters.
//!
//! * `event_file`: records with their checksums, and events in them;
//! * `summary`: what an event says of a round, and of the settings;
//! * `writer`: the file in a run's folder, as a sink while the run goes on, and whole for one that is over.
//!
//! The messages are those of `event.proto`, `summary.proto` and the `hparams` plugin of TensorBoard 2. Tested with TensorBoard's own
//! reader (`tests/tests/tensorboard.rs`).

mod event_file;
mod summary;
mod writer;

pub use writer::TensorBoard;
