//! The program `aggregator`: parses the command line, runs the command, prints the error.

use std::process::ExitCode;

use aggregator::cli::{Cli, Failure, exit_code};

fn main() -> ExitCode {
    let line: Vec<_> = std::env::args_os().collect();
    let result = Cli::of_arguments(&line).unwrap_or_else(|error| error.exit()).run();
    match &result {
        Err(Failure::Stopped(signal)) => signal.end_process(),
        Err(failure) => failure.report(),
        Ok(()) => {}
    }
    exit_code(&result)
}
