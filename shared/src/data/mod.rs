//! Data sets: samples with their labels, the file formats they are read from, and their division among clients.
//!
//! * [`dataset`]: samples in memory; [`view`]: a client's share of them, without a copy;
//! * [`mod@format`]: what a reader of a file format implements; [`registry`]: which format a folder holds;
//! * [`idx`], [`cifar`], [`mod@safetensors`], [`mod@csv`], [`images`], [`text`]: the formats;
//! * [`byte_tokens`]: texts of a table's column as tokens;
//! * [`inputs`]: what a model is asked about, with labels or without;
//! * [`options`]: how samples are read; [`error`]: errors that all formats share;
//! * [`mod@survey`]: what a folder holds, of which nothing is known yet;
//! * [`sets`]: the data sets that a configuration can name;
//! * [`glyphs`]: a built-in data set that is drawn from a seed, for runs without a download;
//! * [`preparation`]: augmentation and normalisation of samples before a network sees them;
//! * [`partition`]: division among simulated clients, from IID to strong label skew.
//!
//! Pixels are bytes in memory and on disk; they become `f32` in `[0, 1]` only batch by batch, in
//! [`View::fill`], and are then augmented and normalised as the run's [`Preparation`] says.
//!
//! A new format is one file that implements [`SampleFormat`], and one entry in [`FORMATS`]; one in [`DATA_SETS`] if a
//! configuration can name it.

pub mod byte_tokens;
pub mod cifar;
pub mod csv;
pub mod dataset;
pub mod error;
pub mod format;
pub mod glyphs;
pub mod idx;
pub mod images;
pub mod inputs;
mod line_breaks;
pub mod options;
pub mod partition;
pub mod preparation;
pub mod registry;
pub mod safetensors;
pub mod samples;
pub mod sets;
mod skipped;
mod split;
pub mod survey;
pub mod text;
pub mod view;

pub use dataset::Dataset;
pub use error::{DataError, Lacks};
pub use format::{Format, SampleFormat};
pub use inputs::Inputs;
pub use options::{Labels, OnError, ReadOptions};
pub use partition::{Partition, PartitionError};
pub use preparation::{Augmentation, Normalisation, Padding, Preparation, PreparationError};
pub use samples::Samples;
pub use sets::{DataSet, SetSamples};
pub use skipped::Skipped;
pub use split::Split;
pub use view::View;

use cifar::Cifar;

/// All formats, in the order in which messages list them.
pub const FORMATS: &[Format] = &[
    &idx::Idx,
    &Cifar::TEN,
    &Cifar::HUNDRED,
    &safetensors::Safetensors,
    &csv::Csv,
    &images::Images,
    &text::Text,
];

/// All data sets that a configuration can name, in the order in which messages list them.
pub const DATA_SETS: &[&DataSet] = &[
    &sets::GLYPHS,
    &sets::MNIST,
    &sets::FASHION_MNIST,
    &sets::CIFAR_10,
    &sets::CIFAR_100,
    &sets::SHAKESPEARE,
    &images::SET,
    &csv::SET,
    &sets::IDX,
    &sets::TEXT,
    &safetensors::SET,
    &sets::TRAINER,
];
