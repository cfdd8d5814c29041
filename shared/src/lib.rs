//! What both sides of the federation agree on.
//!
//! | module | what it settles |
//! |---|---|
//! | [`spec`] | [`RunSpec`](spec::RunSpec): everything a client must know to take part in a run |
//! | [`algorithm`] | the [`Algorithm`](algorithm::Algorithm) trait, the registry, one file per algorithm |
//! | [`aggregation`] | exact, order-free weighted sums and the weights that go into them |
//! | [`record`] | how an algorithm's values become safetensors on the wire and on disk |
//! | [`message`], [`frame`], [`protocol`] | one documented enum per direction, the frames that carry them, and versions |
//! | [`differences`] | models sent as differences to the one that a device has |
//! | [`data`] | data sets, the built-in glyphs, partitions |
//! | [`client_state`] | what a device keeps between rounds, and what holds when device and server disagree on it |
//! | [`eligibility`] | when a device trains: its temperature, power, memory, disk |
//! | [`memory`] | the memory that a round takes on a client |
//! | [`congestion`] | how much a sender has in flight |
//! | [`ensemble`] | models of many clients that answer together |
//! | [`evaluation`], [`by_class`] | testing a model on a device's own samples, and how that goes class by class |
//! | [`seed`], [`id`] | labelled randomness and identifiers |
//! | [`secure`] | secure aggregation: masks that cancel in a sum |
//! | [`identity`], [`ticket`] | key pairs, how they are proved in the handshake, and how a device gets in |
//! | [`personalisation`] | what a device makes of the global model for itself |
//! | [`share`], [`calendar`] | how many a share of a whole is, and which date a moment has |
//! | [`prediction`] | what a model says about a sample |
//! | [`durable`] | the steps of atomic and durable writes |
//! | [`text_checksum`] | the checksum of a small text file |
//! | [`chown`] | files that root creates are given to the owner of their directory |
//! | [`watchdog`] | whether a program makes progress |
//! | `cli` | what both command lines have in common, with the feature `cli` alone |
//! | `trainer` | programs of a user's own that train and test, with the feature `trainer` alone |
//!
//! The crate has no clock, no sockets and no runtime, but for these two: its dependency list enforces that. Both state
//! machines (`edge_client::session`, `aggregator::coordinator`) are built from these types alone.

pub mod aggregation;
pub mod algorithm;
pub mod by_class;
pub mod calendar;
pub mod chown;
#[cfg(feature = "cli")]
pub mod cli;
pub mod client_state;
pub mod congestion;
pub mod data;
pub mod differences;
pub mod durable;
pub mod eligibility;
pub mod ensemble;
pub mod evaluation;
pub mod frame;
pub mod id;
pub mod identity;
pub mod memory;
pub mod message;
pub mod outgoing;
pub mod payload;
pub mod personalisation;
pub mod prediction;
pub mod privacy;
pub mod protocol;
pub mod record;
pub mod schedule;
pub mod secret;
pub mod secure;
pub mod seed;
pub mod settings;
pub mod share;
pub mod spec;
pub mod task;
pub mod text_checksum;
pub mod ticket;
#[cfg(feature = "trainer")]
pub mod trainer;
pub mod watchdog;
