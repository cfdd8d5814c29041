//! The command line: what a person types, and what the process answers.

mod algorithms;
#[cfg(feature = "simulate")]
mod compare;
mod control;
mod dashboard;
mod describe;
mod device;
mod devices;
mod ensemble;
mod evaluate;
mod exit;
mod export;
mod from;
mod help;
mod history;
mod init;
mod key;
mod load_model;
mod log;
mod lost_identity;
mod model_origin;
mod models;
mod named_run;
mod page;
mod parse;
mod predict;
mod privacy;
mod report;
mod run;
mod runs;
mod serve;
mod setting_hint;
#[cfg(feature = "simulate")]
mod simulate;
mod split;
mod state_directory;
mod status;
mod terminal;
mod ticket;

use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use shared::cli::{Manual, Processor};

pub use exit::{Failure, exit_code};

use crate::commands::set_options;
use crate::config::Raw;
use crate::peer::Request;

/// The aggregator's command line.
#[derive(Debug, Parser)]
#[command(name = "aggregator", version, about, long_about = help::LONG_ABOUT, after_long_help = help::AFTER_HELP)]
#[command(propagate_version = true, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Say more: -v connections and arrivals, -vv every action
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// The form of what is told on standard error
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value_t)]
    log_format: log::LogFormat,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look at a folder of samples and write a configuration that learns from them
    #[command(after_long_help = help::INIT)]
    Init(init::InitArgs),
    /// Train federatedly over simulated clients in this process
    #[cfg(feature = "simulate")]
    #[command(after_long_help = help::SIMULATE)]
    Simulate(simulate::SimulateArgs),
    /// Run the rounds for real devices that join with `edge-client join`
    #[command(after_long_help = help::SERVE)]
    Serve(serve::ServeArgs),
    /// Say what the runs that are served wait for, and what happened in them
    #[command(after_long_help = help::STATUS)]
    Status(status::StatusArgs),
    /// Stop a run that is served; it can be continued
    Stop(control::ControlArgs),
    /// Open no new round of a run; its devices stay connected
    Pause(control::ControlArgs),
    /// Open rounds of a paused run again
    Resume(control::ControlArgs),
    /// Print a ticket, with which devices join
    #[command(after_long_help = help::TICKET)]
    Ticket(ticket::TicketArgs),
    /// Show and change which devices may take part
    Devices {
        #[command(flatten)]
        lab: LabArgs,
        #[command(subcommand)]
        command: devices::DevicesCommand,
    },
    /// Show or change the server's key
    Key {
        #[command(flatten)]
        lab: LabArgs,
        #[command(subcommand)]
        command: key::KeyCommand,
    },
    /// Run an experiment: variants of a configuration on paired seeds, compared in tables and a report
    #[cfg(feature = "simulate")]
    #[command(after_long_help = help::COMPARE)]
    Compare(compare::CompareArgs),
    /// List the runs, look at them, compare their settings, delete and archive them
    #[command(after_long_help = help::RUNS)]
    Runs(runs::RunsArgs),
    /// Write the page of a run anew, also of one that goes on or was killed
    Report(report::ReportArgs),
    /// Show runs, rounds and devices in a browser while they go on, and let devices in from there
    #[command(after_long_help = help::PAGE)]
    Page(dashboard::PageArgs),
    /// Test a trained model, or an ensemble of them, on a data set
    Evaluate(evaluate::EvaluateArgs),
    /// Show what a trained model, or an ensemble of them, says about each sample of a data set
    Predict(predict::PredictArgs),
    /// Write a trained model, or an ensemble of them, as Python source with weights, or in ONNX
    #[command(after_long_help = help::EXPORT)]
    Export(export::ExportArgs),
    /// Look at and extend ensembles
    #[command(subcommand)]
    Ensemble(ensemble::EnsembleCommand),
    /// Look at and prepare data
    #[command(subcommand)]
    Data(DataCommand),
    /// Plan differential privacy
    #[command(subcommand)]
    Privacy(privacy::PrivacyCommand),
    /// List the algorithms, with the settings of each
    Algorithms(algorithms::AlgorithmsArgs),
    /// List the models that come with the program, and the layers that others can be made of
    #[command(after_long_help = help::MODELS)]
    Models(models::ModelsArgs),
    /// Print the effective configuration: defaults, then CONFIG, then --set
    #[command(after_long_help = help::CONFIG)]
    Config {
        #[command(flatten)]
        config: ConfigArgs,
        /// As of simulate and serve
        #[arg(long, value_name = "RUN|FILE")]
        from: Option<PathBuf>,
    },
    #[command(flatten)]
    Manual(Manual),
}

#[derive(Debug, Subcommand)]
enum DataCommand {
    /// Show sizes and labels of every client's share of the configured data
    #[command(after_long_help = help::DESCRIBE)]
    Describe(describe::DescribeArgs),
    /// Write every client's share of the configured data as files, one directory per client
    ///
    /// Grey images become IDX files, everything else safetensors; edge-client reads both.
    Split(split::SplitArgs),
}

/// What is run.
#[derive(Clone, Debug, Args)]
struct ConfigArgs {
    /// Configuration file; without it the built-in default run
    #[arg(value_name = "CONFIG")]
    config: Option<PathBuf>,
    /// Change one key, for example --set training.epochs=5; may be given more than once
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
}

/// Which server.
#[derive(Debug, Args)]
struct LabArgs {
    /// Directory that holds one directory per run, as given to `serve`
    #[arg(long, global = true, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// Directory of the server's key, as given to `serve` [default: as of `serve`]
    #[arg(long, alias = "state", global = true, value_name = "DIR")]
    identity: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
}

/// The options that name a server on a command line, as far as they are not the defaults.
fn lab_options(runs: &Path, identity: Option<&Path>) -> String {
    let option = |name, path: &Path| {
        let text = path.display().to_string();
        let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@,".contains(c);
        let quoted =
            if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) };
        format!(" --{name} {quoted}")
    };
    let runs = Some(runs).filter(|runs| *runs != Path::new(RUNS) && identity.is_none());
    [runs.map(|runs| option("runs", runs)), identity.map(|identity| option("identity", identity))]
        .into_iter()
        .flatten()
        .collect()
}

/// The default of `--runs`.
const RUNS: &str = "runs";

impl LabArgs {
    /// The directory of the server's key and its devices. Printed commands name it from now on.
    fn directory(&self) -> PathBuf {
        set_options(lab_options(&self.runs, self.identity.as_deref()));
        state_directory::of(&self.runs, self.identity.as_deref())
    }
}

/// What is run, where it is kept, and how it is shown.
#[derive(Debug, Args)]
struct RunArgs {
    #[command(flatten)]
    config: ConfigArgs,
    /// Directory that holds one directory per run
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// Where the server trains and tests, and where simulated clients train [default: cuda where the program was built for it
    /// and a device answers, else cpu]
    #[arg(long, value_enum)]
    device: Option<Processor>,
    /// Begin a new run even if an unfinished one could be continued
    #[arg(long)]
    fresh: bool,
    /// Begin with the model of another run: its directory (the newest model, also while it goes on), or a model's file, as
    /// RUN/best.safetensors
    #[arg(long, value_name = "RUN|FILE")]
    from: Option<PathBuf>,
    /// Print one JSON object per round, as in rounds.jsonl, and nothing else on standard output
    #[arg(long)]
    json: bool,
    /// Write the rounds for TensorBoard as well, into RUN/tensorboard: `tensorboard --logdir runs` shows them
    #[arg(long)]
    tensorboard: bool,
}

impl Cli {
    /// Does what was asked for.
    pub fn run(self) -> Result<(), Failure> {
        log::start(self.verbose, self.log_format);
        match self.command {
            Command::Init(arguments) => init::init(&arguments),
            #[cfg(feature = "simulate")]
            Command::Simulate(arguments) => simulate::simulate(&arguments, self.verbose > 0),
            Command::Serve(arguments) => serve::serve(&arguments),
            Command::Status(arguments) => status::status(&arguments),
            Command::Stop(arguments) => control::control(&arguments, Request::Stop),
            Command::Pause(arguments) => control::control(&arguments, Request::Pause),
            Command::Resume(arguments) => control::control(&arguments, Request::Resume),
            Command::Ticket(arguments) => ticket::ticket(&arguments),
            Command::Devices { lab, command } => devices::devices(&lab, command),
            Command::Key { lab, command } => key::key(&lab, &command),
            #[cfg(feature = "simulate")]
            Command::Compare(arguments) => compare::compare(&arguments),
            Command::Runs(arguments) => runs::runs(arguments),
            Command::Report(arguments) => report::report(&arguments),
            Command::Page(arguments) => dashboard::page(&arguments),
            Command::Evaluate(arguments) => evaluate::evaluate(&arguments),
            Command::Predict(arguments) => predict::predict(&arguments),
            Command::Export(arguments) => export::export(&arguments),
            Command::Ensemble(command) => ensemble::ensemble(&command),
            Command::Data(DataCommand::Describe(arguments)) => describe::describe(&arguments),
            Command::Data(DataCommand::Split(arguments)) => split::split(&arguments),
            Command::Privacy(command) => privacy::privacy(&command),
            Command::Algorithms(arguments) => algorithms::algorithms(&arguments),
            Command::Models(arguments) => models::models(&arguments),
            Command::Config { config, from } => {
                let config = config.beginning_with(from.as_deref())?;
                let given = Raw::layered(config.config.as_deref(), &config.overrides);
                let config = config.validated()?;
                terminal::print(&config.effective.explained(&given?))
            }
            Command::Manual(manual) => Ok(manual.run(Self::command())?),
        }
    }
}
