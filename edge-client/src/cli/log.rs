//! The log on standard error, for debugging. What a trainer of the owner's own writes to its standard error is there as well.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::terminal::Log;

/// Starts the log at the level of `verbose`, or else of `RUST_LOG`, or else with warnings.
pub(super) fn start(verbose: u8) {
    let filter = match verbose {
        0 => EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy(),
        1 => EnvFilter::new("info"),
        2 => EnvFilter::new("info,edge_client=debug"),
        _ => EnvFilter::new("trace"),
    };
    let filter = filter.add_directive("trainer=info".parse().expect("a target and a level"));
    // Fails if the process has a log already, as a program that uses this library: then that one is used.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Log)
        .with_ansi(io::stderr().is_terminal())
        .try_init();
}
