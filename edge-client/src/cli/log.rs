//! The log on standard error: for those who look for a fault.

use std::io::{self, IsTerminal as _};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use super::terminal::Log;

/// Starts the log: what `verbose` asks for, else what the environment asks for, else warnings.
pub(super) fn start(verbose: u8) {
    let filter = match verbose {
        0 => EnvFilter::builder().with_default_directive(LevelFilter::WARN.into()).from_env_lossy(),
        1 => EnvFilter::new("info"),
        2 => EnvFilter::new("info,edge_client=debug"),
        _ => EnvFilter::new("trace"),
    };
    // It fails if there is a log already, as in a program that calls this one as a library: then that one serves.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(|| Log)
        .with_ansi(io::stderr().is_terminal())
        .try_init();
}
