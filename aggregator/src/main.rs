//! The program `aggregator`: parses the command line, runs the command, prints the error.

use std::process::ExitCode;

use aggregator::cli::{Cli, exit_code};
use clap::Parser as _;

fn main() -> ExitCode {
    let result = Cli::parse().run();
    if let Err(failure) = &result {
        eprintln!("aggregator: {failure}");
    }
    exit_code(&result)
}
