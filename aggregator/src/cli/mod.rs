//! The command line: what a person types, and what the process answers.

mod addresses;
#[cfg(feature = "simulate")]
mod compare;
mod describe;
mod devices;
mod ensemble;
mod evaluate;
mod exit;
mod generate;
mod key;
mod models;
mod predict;
mod processor;
mod recording;
mod rounds;
mod split;
mod status;
mod supervised;
mod terminal;
mod texts;
mod ticket;
mod usable;
mod values;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

pub use exit::{Failure, exit_code};
use processor::Processor;
use values::whole;

use crate::config::Raw;
use crate::enrolment::Policy;

/// The aggregator's command line.
#[derive(Debug, Parser)]
#[command(name = "aggregator", version, about, long_about = texts::LONG_ABOUT, after_long_help = texts::AFTER_HELP)]
#[command(propagate_version = true, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Say more: -v connections and arrivals, -vv every action
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train federatedly over simulated clients in this process
    #[cfg(feature = "simulate")]
    #[command(after_long_help = texts::SIMULATE)]
    Simulate {
        #[command(flatten)]
        run: RunArgs,
        /// How clients and coordinator talk; either gives the same model
        #[arg(long, value_enum, default_value_t)]
        transport: crate::simulate::Transport,
        /// Clients that train at the same time, one thread each [default: the number of cores]
        #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024), allow_negative_numbers = true)]
        threads: Option<u16>,
    },
    /// Run the rounds for real devices that join with `edge-client join`
    #[command(after_long_help = texts::SERVE)]
    Serve {
        #[command(flatten)]
        run: RunArgs,
        /// Address to listen on; port 0 takes any free port
        #[arg(long, value_name = "IP:PORT", default_value = "0.0.0.0:4433", value_parser = address)]
        listen: SocketAddr,
        /// Write address, key and process id here, as JSON, once devices can join
        #[arg(long, value_name = "FILE")]
        ready_file: Option<PathBuf>,
        /// Directory of the server's key and of what it knows of devices, made at the first start [default: RUNS/identity]
        #[arg(long, value_name = "DIR")]
        identity: Option<PathBuf>,
        /// What becomes of a device that the server does not know
        #[arg(long, value_enum, default_value_t)]
        admit: Policy,
        /// Seconds to wait, after the run is over, for known devices that have not heard so, to tell them
        #[arg(
            long, value_name = "SECONDS", default_value_t = 30,
            value_parser = whole::<u32>(0..=u32::MAX.into()), allow_negative_numbers = true
        )]
        linger: u32,
        /// End at once if a run of this very configuration is complete, instead of beginning another: for services, which are
        /// started whenever the machine is
        #[arg(long, conflicts_with = "fresh")]
        once: bool,
    },
    /// Say what the runs that are served wait for, and what happened in them
    #[command(after_long_help = texts::STATUS)]
    Status(status::StatusArgs),
    /// Print a ticket, with which devices join
    #[command(after_long_help = texts::TICKET)]
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
    #[command(after_long_help = texts::COMPARE)]
    Compare(compare::CompareArgs),
    /// Test a trained model, or an ensemble of them, on a data set
    Evaluate(evaluate::EvaluateArgs),
    /// Show what a trained model, or an ensemble of them, says about each sample of a data set
    Predict(predict::PredictArgs),
    /// Look at and extend ensembles
    #[command(subcommand)]
    Ensemble(ensemble::EnsembleCommand),
    /// Look at and prepare data
    #[command(subcommand)]
    Data(DataCommand),
    /// List the models that come with the program, and the layers that others can be made of
    #[command(after_long_help = texts::MODELS)]
    Models(models::ModelsArgs),
    /// Print the effective configuration: defaults, then CONFIG, then --set
    #[command(after_long_help = texts::CONFIG)]
    Config {
        #[command(flatten)]
        config: ConfigArgs,
    },
    /// Print a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages
    Man {
        /// Directory to write them to; without it the main page goes to standard output
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
enum DataCommand {
    /// Show sizes and labels of every client's share of the configured data
    #[command(after_long_help = texts::DESCRIBE)]
    Describe(describe::DescribeArgs),
    /// Write every client's share of the configured data as files, one directory per client
    ///
    /// Grey images become IDX files, everything else safetensors; edge-client reads both.
    Split(split::SplitArgs),
}

/// An address of this machine. A name would have to be looked up, and may have several.
fn address(given: &str) -> Result<SocketAddr, &'static str> {
    given.parse().map_err(|_| "it is not an IP address and a port, such as 0.0.0.0:4433 or [::1]:4433")
}

/// What is run.
#[derive(Debug, Args)]
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
    /// Directory of the server's key, as given to `serve` [default: RUNS/identity]
    #[arg(long, global = true, value_name = "DIR")]
    identity: Option<PathBuf>,
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
}

impl LabArgs {
    fn directory(&self) -> PathBuf {
        self.identity.clone().unwrap_or_else(|| rounds::identity_directory(&self.runs))
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
    /// Print one JSON object per round, as in rounds.jsonl, and nothing else on standard output
    #[arg(long)]
    json: bool,
}

impl Cli {
    /// Does what was asked for.
    pub fn run(self) -> Result<(), Failure> {
        terminal::log_to_stderr(self.verbose);
        match self.command {
            #[cfg(feature = "simulate")]
            Command::Simulate { run, transport, threads } => {
                rounds::simulate(&run, transport, threads.map(usize::from), self.verbose > 0)
            }
            Command::Serve { run, listen, ready_file, identity, admit, linger, once } => {
                if once && rounds::is_complete(&run)? {
                    return Ok(());
                }
                let linger = Duration::from_secs(linger.into());
                rounds::serve(&run, listen, ready_file.as_deref(), identity, admit, linger)
            }
            Command::Status(arguments) => status::status(&arguments),
            Command::Ticket(arguments) => ticket::ticket(&arguments),
            Command::Devices { lab, command } => devices::devices(&lab, command),
            Command::Key { lab, command } => key::key(&lab, &command),
            #[cfg(feature = "simulate")]
            Command::Compare(arguments) => compare::compare(&arguments),
            Command::Evaluate(arguments) => evaluate::evaluate(&arguments),
            Command::Predict(arguments) => predict::predict(&arguments),
            Command::Ensemble(command) => ensemble::ensemble(&command),
            Command::Data(DataCommand::Describe(arguments)) => describe::describe(&arguments),
            Command::Data(DataCommand::Split(arguments)) => split::split(&arguments),
            Command::Models(arguments) => models::models(&arguments),
            Command::Config { config } => {
                let given = Raw::layered(config.config.as_deref(), &config.overrides);
                let config = config.validated()?;
                terminal::print(&config.effective.explained(&given?))
            }
            Command::Completions { shell } => generate::completions(shell),
            Command::Man { out: None } => generate::page(),
            Command::Man { out: Some(directory) } => generate::pages(&directory),
        }
    }
}
