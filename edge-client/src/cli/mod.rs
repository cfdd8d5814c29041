//! The command line: arguments in, events and exit code out.
//!
//! Signals, the terminal and the process's exit code are dealt with here and nowhere else in the crate.
//! Results that a program may read go to standard output, all else to standard error.

mod arguments;
mod bench;
mod clock;
mod completions;
mod device;
mod doctor;
mod error;
mod evaluate;
mod event;
mod join;
mod log;
mod parse;
mod predict;
mod samples;
mod server;
mod signals;
mod status;
mod summary;
mod systemd;
mod terminal;
mod ticket;

pub use arguments::{
    Arguments, BenchArguments, Command, DoctorArguments, EvaluateArguments, JoinArguments, PersonalArguments,
    PredictArguments, RefreshArguments,
};
pub use error::{CliError, Exit};
pub use summary::Setback;

/// Carries out what the arguments say.
pub fn run(arguments: &Arguments) -> Result<(), CliError> {
    log::start(arguments.verbose);
    match &arguments.command {
        Command::Join(join) => join::run(join),
        Command::Predict(predict) => predict::run(predict),
        Command::Evaluate(evaluate) => evaluate::evaluate(evaluate),
        Command::Refresh(refresh) => evaluate::refresh(refresh),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Bench(bench) => bench::run(bench),
        Command::Completions { shell } => completions::completions(*shell),
        Command::Man { out: None } => completions::page(),
        Command::Man { out: Some(folder) } => completions::pages(folder),
    }
}
