//! The integration tests of the whole system, in one program: linking it once takes a fraction of what a program per file takes.
//!
//! `fuzz.rs` is a program of its own, because it counts the memory of its whole process.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up has failed")]

mod algorithms;
mod backlog;
mod backup;
mod control;
mod database;
mod describe;
mod disk_worker;
mod enrolment;
mod ensembles;
mod evaluation;
mod experiments;
mod exported_ensembles;
mod exported_networks;
mod exporting;
mod failed_rounds;
mod fault_table;
mod fedmix;
mod flipped_bits;
mod flipped_bits_elsewhere;
mod folding;
mod foreign_weights;
mod from_model;
mod frozen;
mod hostile_peers;
mod interop;
mod interruptions;
mod killed_transfers;
mod late;
mod layers;
mod live_page;
mod loopback;
mod more_rounds;
mod operators;
mod orderings;
mod own_data;
mod ownership;
mod papers;
mod personalisation;
mod power;
mod processes;
mod prose;
mod recovery;
mod refusals;
mod report;
mod roster;
mod runs;
mod simulator;
mod skipped_samples;
mod start;
mod systemd;
mod unlabelled_devices;
mod upgrade;
mod weight_bounds;
