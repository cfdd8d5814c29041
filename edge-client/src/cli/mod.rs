//! The command line: arguments in, events and exit code out.
//!
//! Only this folder handles signals, the terminal and the exit code. Results that a program may read go to standard output,
//! everything else to standard error.

mod arguments;
mod bench;
mod doctor;
mod error;
mod evaluate;
mod event;
mod join;
mod log;
mod parse;
mod predict;
mod reading;
mod rebase;
mod repeats;
mod samples;
mod server;
mod status;
mod stream;
mod summary;
mod systemd;
mod terminal;
mod ticket;
mod trainer;

use clap::CommandFactory as _;

pub use arguments::{
    Arguments, BenchArguments, Command, DoctorArguments, EvaluateArguments, JoinArguments, PersonalArguments,
    PredictArguments, ReadArguments, RebaseArguments, StateArguments, StatusArguments,
};
pub use error::{CliError, Exit};

/// Runs the command of the arguments.
pub fn run(arguments: &Arguments) -> Result<(), CliError> {
    log::start(arguments.verbose);
    match &arguments.command {
        Command::Join(join) => join::run(join),
        Command::Status(arguments) => status::run(arguments),
        Command::Predict(predict) => predict::run(predict),
        Command::Evaluate(evaluate) => evaluate::run(evaluate),
        Command::Rebase(rebase) => rebase::run(rebase),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Bench(bench) => bench::run(bench),
        Command::Manual(manual) => Ok(manual.run(Arguments::command())?),
    }
}
