//! The program `aggregator`: parses the command line, runs the command, prints the error.

use std::process::ExitCode;

use aggregator::cli::{Cli, exit_code};

fn main() -> ExitCode {
    let line: Vec<_> = std::env::args_os().collect();
    let result = Cli::of_arguments(&line).unwrap_or_else(|error| error.exit()).run();
    if let Err(failure) = &result {
        eprintln!("aggregator: {failure}");
    }
    exit_code(&result)
}
