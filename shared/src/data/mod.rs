//! Data: labelled samples, where they come from, and how a simulation divides them among clients.
//!
//! * [`dataset`]: labelled images, features or text in memory, and a client's share of them without a copy;
//! * [`idx`]: the IDX files of MNIST and its relatives, plain or compressed;
//! * [`cifar`]: the binary files of CIFAR-10 and CIFAR-100;
//! * [`text`]: text by role, a character at a time;
//! * [`images`]: a folder of PNG and JPEG files per class;
//! * [`table`]: CSV with a column of labels; [`tensors`]: safetensors with `x` and `y`;
//! * [`mod@format`]: which of these a folder holds; [`reading`]: what a reader must be told, and what it leaves out;
//! * [`glyphs`]: a data set drawn from a seed, for runs that should need no download;
//! * [`preparation`]: how samples are augmented and normalised before a network sees them;
//! * [`partition`]: which sample goes to which client, from IID to strong label skew;
//! * [`error`]: what can be wrong with data, and where.
//!
//! Pixels are bytes in memory and on disk; they become `f32` in `[0, 1]` only batch by batch, in
//! [`View::fill`], and are then augmented and normalised as the run's [`Preparation`] says.

pub mod cifar;
pub mod csv;
pub mod dataset;
pub mod error;
pub mod format;
pub mod glyphs;
pub mod idx;
pub mod images;
pub mod options;
pub mod partition;
pub mod preparation;
pub mod registry;
pub mod safetensors;
pub mod samples;
mod skipped;
mod split;
pub mod text;
pub mod view;

pub use dataset::Dataset;
pub use error::DataError;
pub use format::{Format, SampleFormat};
pub use options::{Labels, OnError, ReadOptions};
pub use partition::{Partition, PartitionError};
pub use preparation::{Augmentation, Normalisation, Padding, Preparation, PreparationError};
pub use samples::Samples;
pub use skipped::Skipped;
pub use split::Split;
pub use view::View;
