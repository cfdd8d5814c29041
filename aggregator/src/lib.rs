//! The lab's side of the federation.
//!
//! | module | what it does |
//! |---|---|
//! | [`config`] | TOML and overrides, checked once, to what the program runs on |
//! | [`coordinator`] | the protocol state machine: no I/O, no clock |
//! | [`driver`] | does the machine's I/O: peers, durable steps, time |
//! | [`run`] | a run on disk: opening, accepting, closing; checkpoints; evaluation |
//! | [`files`] | the file operations that durable steps consist of |
//! | [`quic`] | the real transport |
//! | [`report`] | what a run leaves behind: rounds.jsonl, report.html, lines for people |

pub mod config;
pub mod coordinator;
pub mod driver;
pub mod files;
pub mod quic;
pub mod report;
pub mod run;
