//! The command line: arguments in, events and exit code out.
//!
//! Signals, the terminal and the process's exit code are dealt with here and nowhere else in the crate.
//! Results that a program may read go to standard output, all else to standard error.

mod arguments;
mod bench;
mod clock;
mod doctor;
mod error;
mod event;
mod generate;
mod harvest;
mod join;
mod log;
mod personal;
mod predict;
mod processor;
mod samples;
mod screen;
mod server;
mod signals;
mod status;
mod supervised;
mod ticket;
mod values;

pub use arguments::{
    Arguments, BenchArguments, Command, DoctorArguments, EvaluateArguments, JoinArguments, PersonalArguments,
    PredictArguments, RefreshArguments,
};
pub use error::{CliError, Exit};

/// Carries out what the arguments say.
pub fn run(arguments: &Arguments) -> Result<(), CliError> {
    log::start(arguments.verbose);
    match &arguments.command {
        Command::Join(join) => join::run(join),
        Command::Predict(predict) => predict::run(predict),
        Command::Evaluate(evaluate) => personal::evaluate(evaluate),
        Command::Refresh(refresh) => personal::refresh(refresh),
        Command::Doctor(arguments) => doctor::run(arguments),
        Command::Bench(bench) => bench::run(bench),
        Command::Completions { shell } => generate::completions(*shell),
        Command::Man { out: None } => generate::page(),
        Command::Man { out: Some(folder) } => generate::pages(folder),
    }
}
