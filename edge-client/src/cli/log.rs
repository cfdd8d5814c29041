//! The log on standard error, for debugging. What a trainer of the owner's own writes to its standard error is there as well.

use std::io::{self, IsTerminal as _};

use shared::cli::{LOG_VARIABLE, log_filter, log_filter_of};
use tracing::warn;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::terminal::Log;

/// Starts the log at the level of `verbose`, or else of `RUST_LOG`, or else with warnings.
pub(super) fn start(verbose: u8) {
    let (filter, wrong) = match verbose {
        0 => log_filter_of(std::env::var(LOG_VARIABLE).ok().as_deref(), "warn"),
        1 => (log_filter("info"), None),
        2 => (log_filter("info,edge_client=debug"), None),
        _ => (log_filter("trace"), None),
    };
    let lines = fmt::layer().with_writer(|| Log).with_ansi(io::stderr().is_terminal());
    // Fails if the process has a log already, as a program that uses this library: then that one is used.
    let _ = tracing_subscriber::registry().with(lines).with(filter).try_init();
    if let Some(wrong) = wrong {
        warn!("{wrong}");
    }
}
