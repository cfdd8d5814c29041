//! Sinks: where notices are shown or written. The record of runs in the database is one more, [`history`](crate::history).

pub mod json;
pub mod json_log;
pub mod systemd;
pub mod terminal;
