//! The program `edge-client`, which takes part in federated learning with the data of its device.

use std::process::ExitCode;

use clap::Parser as _;
use edge_client::cli::{self, Arguments, Exit};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match cli::run(&arguments) {
        Ok(()) => Exit::Success.end(),
        Err(error) => {
            error.report();
            error.exit().end()
        }
    }
}
