//! Data: labelled images, where they come from, and how a simulation divides them among clients.
//!
//! * [`dataset`]: labelled images in memory, and a client's share of them without a copy;
//! * [`idx`]: the IDX files of MNIST and its relatives, plain or compressed;
//! * [`glyphs`]: a data set drawn from a seed, for runs that should need no download;
//! * [`partition`]: which sample goes to which client, from IID to strong label skew;
//! * [`error`]: what can be wrong with data, and where.
//!
//! Pixels are bytes in memory and on disk; they become `f32` in `[0, 1]` only batch by batch, in
//! [`View::fill`].

pub mod dataset;
pub mod error;
pub mod glyphs;
pub mod idx;
pub mod partition;
pub mod view;

pub use dataset::Dataset;
pub use error::DataError;
pub use idx::Split;
pub use partition::{Partition, PartitionError};
pub use view::View;
