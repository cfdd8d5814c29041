//! The command-line arguments, and the help texts made from them.

mod help;
mod privacy;

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueHint};
use shared::cli::{FormArgs, Manual, Processor};
use shared::congestion::Congestion;
use shared::data::{Labels, OnError, ReadOptions, Split};
use shared::id::RunId;
use shared::identity::PublicKey;

use crate::answer::Address;

use self::help::{ABOUT, LONG_ABOUT, after_long_help, data};
use self::privacy::PrivacyArguments;
use super::error::{CliError, Exit};
use super::parse::{Shape, Target, limit, memory, samples, seconds, shape, target, threads};
use super::samples::{InputArguments, OwnSampleArguments, SampleArguments, classes};
use super::trainer::TrainerArguments;

/// The command line.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "edge-client",
    version,
    about = ABOUT,
    long_about = LONG_ABOUT,
    after_help = "--help says more: a typical session, where state lies, exit codes.",
    after_long_help = after_long_help(),
    max_term_width = 100
)]
pub struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
    /// Number of `-v`.
    #[arg(
        short, long, global = true, action = ArgAction::Count,
        help = "Log more on standard error; up to three times",
        long_help = "Log more on standard error; up to three times. Without it, the environment variable RUST_LOG \
                     chooses what is logged"
    )]
    pub verbose: u8,
}

/// A command.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Take part in the run of an aggregator
    ///
    /// Connects, trains whenever asked, and ends when the run is over. A lost connection is retried without limit; a finished
    /// update waits on disk until the server has confirmed it, also over a restart.
    #[command(after_long_help = data())]
    Join(JoinArguments),
    /// Say what the process that takes part does, and what it has done
    ///
    /// Reads STATE/status.json, which `join` keeps: what it does and since when, the round and its progress, the server and the next
    /// attempt to reach it, the last results, the update that waits for the server, temperature and battery. Programs can read the
    /// same from that file, or from `join --listen`.
    Status(StatusArguments),
    /// Use a trained model on samples, with labels or without
    ///
    /// Prints the predicted class and its probability for each sample, and with labels the accuracy; of a model of numbers or several
    /// labels the numbers, or the probability of each, and how far they are off. The model is one that a
    /// run has left (--model), or this device's own (--personal), which needs no connection.
    #[command(after_long_help = data())]
    Predict(PredictArguments),
    /// Test this device's personal model and the experts that it mixes
    ///
    /// Prints two tests of the global model, of the local expert and of the mixture: the accuracy on the test samples with
    /// classes as frequent as among this device's training samples (local test), and the plain accuracy (global test). Then precision,
    /// recall and confusion of each class by the mixture, and its calibration error. With --model it tests that model instead.
    #[command(after_long_help = data())]
    Evaluate(EvaluateArguments),
    /// Put this device's personal model on top of a newer global one
    ///
    /// The personal head and its gate stay as they are and use the new model from then on. A model of another network is refused,
    /// and nothing changes. `refresh` is an older name of this command.
    #[command(alias = "refresh")]
    Rebase(RebaseArguments),
    /// Find what keeps this device from taking part, and say what to do about it
    ///
    /// Checks the clock, memory, processor, GPU, temperature, battery and the state directory, the samples if they are named, and
    /// whether the server answers if there is one. Needs no connection, and changes nothing. It does not check whether the server
    /// admits this device: only joining shows that a ticket is used up or the device revoked. Ends with 0 if the device can take
    /// part, with or without warnings, and with 3 if it cannot.
    #[command(after_long_help = data())]
    Doctor(DoctorArguments),
    /// Measure how fast this device trains, or with --predict how fast it answers
    ///
    /// Trains every known network, or those named, on noise, and prints a table: milliseconds per step of plain gradient
    /// descent, samples and floating-point operations per second, the share of what this device reaches in matrix
    /// products, and memory: the estimate by which joining refuses runs, and what was measured. Each row is measured in a process
    /// of its own, for about two seconds.
    Bench(BenchArguments),
    /// The completions and the manual pages.
    #[command(flatten)]
    Manual(Manual),
}

/// The state directory.
#[derive(Clone, Debug, Args)]
pub struct StateArguments {
    /// State directory [default: $XDG_STATE_HOME/edge-client or ~/.local/state/edge-client]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub state: Option<PathBuf>,
}

impl StateArguments {
    /// The directory that the user named, or the default one.
    pub(super) fn directory(&self) -> Result<PathBuf, CliError> {
        let variable = std::env::var_os;
        self.state.clone().map_or_else(|| default_state(variable("XDG_STATE_HOME"), variable("HOME")), Ok)
    }
}

/// What the process of a state directory does.
#[derive(Clone, Debug, Args)]
pub struct StatusArguments {
    /// The state directory.
    #[command(flatten)]
    pub state: StateArguments,
    /// Look again every second
    #[arg(long)]
    pub watch: bool,
    /// Print one JSON object in a line instead of text
    #[arg(long)]
    pub json: bool,
}

/// How a device reads its samples.
#[derive(Clone, Debug, Args)]
pub struct ReadArguments {
    /// Classes that labels are drawn from: how many, or their names in the run's order, as in cat,dog [default: as the run says]
    ///
    /// With it the samples are read before the server is asked, and the server compares.
    #[arg(long, value_name = "N|NAMES", value_parser = classes, allow_negative_numbers = true)]
    pub classes: Option<Labels>,
    /// Use samples alone, for runs whose labels are at the server: files of labels need not be there and are not read
    ///
    /// Images may lie in one folder then. Of safetensors, x alone is read, and of a CSV table all columns but the one that
    /// --label names, if it is there. Without this, labels are read and not used in such a run.
    #[arg(long, conflicts_with = "classes")]
    pub unlabelled: bool,
    /// Shape that images or rows of a table are brought to, as in 3x32x32 [default: as the run says; with --classes, what the files have]
    #[arg(long, value_name = "SHAPE", value_parser = shape)]
    pub shape: Option<Shape>,
}

impl ReadArguments {
    /// The options for reading samples whose labels, in a CSV table, are in `column`.
    pub(super) fn options(&self, column: Option<&str>, on_error: OnError) -> ReadOptions {
        let usual = ReadOptions::default();
        ReadOptions {
            shape: self.shape.as_ref().map(|shape| shape.0.clone()),
            labels: (!self.unlabelled).then(|| self.classes.clone().unwrap_or_default()),
            column: column.map_or_else(|| usual.column.clone(), str::to_owned),
            on_error,
            ..usual
        }
    }
}

/// Arguments of `join`.
#[derive(Clone, Debug, Args)]
pub struct JoinArguments {
    /// A ticket, which `aggregator ticket` prints; or the aggregator, as IP:PORT or HOST:PORT, with commas between several; or
    /// nothing, for the server that this device belongs to already
    ///
    /// A ticket is a secret until it is used. It is kept in the state directory until the server has redeemed it, and the program
    /// restarts itself without it, so that the list of processes does not show it. With an address alone, the server has to admit
    /// every device, or the device waits for its operator's approval.
    ///
    /// Several addresses, of a ticket or given here, are of one server with one key: the device begins with the one that admitted it
    /// last, and tries the next when that is silent. It also tries those that the server has told it, and keeps the newest list.
    #[arg(value_name = "TICKET|ADDR", value_parser = target)]
    pub server: Option<Target>,
    /// Read the ticket from this file; - is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["server", "server_key"])]
    pub ticket_file: Option<PathBuf>,
    /// The samples of this device.
    #[command(flatten)]
    pub samples: OwnSampleArguments,
    /// The program that trains, if it is not this one.
    #[command(flatten)]
    pub trainer: TrainerArguments,
    /// The state directory.
    #[command(flatten)]
    pub state: StateArguments,
    /// The server's key, 64 hexadecimal digits, if there is no ticket that names it
    ///
    /// The aggregator prints it when it starts. Without it the client trusts the server in its state directory or, the
    /// first time, the first server that answers; it remembers that one and refuses any other from then on.
    #[arg(long, value_name = "HEX")]
    pub server_key: Option<PublicKey>,
    /// Threads for training [default: as many as this machine runs at once]
    #[arg(long, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub threads: Option<NonZeroUsize>,
    /// Memory that this program may take in all, as in 900MB or 1.5GB [default: what it takes with its samples, and 80 % of what is free]
    ///
    /// A run that needs more is left before its model is received, and its operator is told. The need is an estimate: it can be off by
    /// half.
    #[arg(long, value_name = "SIZE", value_parser = memory, allow_negative_numbers = true)]
    pub max_memory: Option<u64>,
    /// What the run must do for this device's privacy.
    #[command(flatten)]
    pub privacy: PrivacyArguments,
    /// Tell programs on this device what it does: a socket at unix:PATH or 127.0.0.1:PORT
    ///
    /// A program that sends a line, or an HTTP GET, is answered once, with the JSON object of STATE/status.json as of then.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<Address>,
    /// How this device finds out what the network takes of what it sends
    #[arg(long, value_enum, default_value_t)]
    pub congestion: Congestion,
    /// How the samples are read.
    #[command(flatten)]
    pub reading: ReadArguments,
    /// Print one JSON object per event on standard output instead of text on standard error
    #[arg(long)]
    pub json: bool,
}

/// One of the personal models on this device.
#[derive(Clone, Debug, Args)]
pub struct PersonalArguments {
    /// The state directory.
    #[command(flatten)]
    pub state: StateArguments,
    /// The personal model of this run [default: the last made]
    #[arg(long, value_name = "ID")]
    pub run: Option<RunId>,
}

/// Arguments of `evaluate`.
#[derive(Clone, Debug, Args)]
pub struct EvaluateArguments {
    /// Test this model instead of the personal one: as a run leaves it (safetensors), or the run's folder
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath, conflicts_with_all = ["state", "run"])]
    pub model: Option<PathBuf>,
    /// Which half of the data to test that model on [default: test]
    #[arg(long, value_enum, requires = "model", conflicts_with = "test")]
    pub split: Option<Split>,
    /// The personal model.
    #[command(flatten)]
    pub personal: PersonalArguments,
    /// The device's own samples.
    #[command(flatten)]
    pub samples: SampleArguments,
    /// Test what predict --int8 answers, with weights of 8 bits
    #[arg(long)]
    pub int8: bool,
    /// Directory of the test samples [default: that of --data; where it has none, what the run held out of the samples]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub test: Option<PathBuf>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `rebase`.
#[derive(Clone, Debug, Args)]
pub struct RebaseArguments {
    /// The newer global model, as a run leaves it (safetensors)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub model: PathBuf,
    /// The personal model.
    #[command(flatten)]
    pub personal: PersonalArguments,
    /// Print one JSON object instead of text
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `predict`.
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub struct PredictArguments {
    /// The model, as a run leaves it (safetensors), or the run's folder
    #[arg(long, value_name = "PATH", value_hint = ValueHint::AnyPath, required_unless_present = "personal")]
    pub model: Option<PathBuf>,
    /// Answer with this device's personal model, from its state directory
    #[arg(long, conflicts_with = "model")]
    pub personal: bool,
    /// The personal model.
    #[command(flatten)]
    pub of: PersonalArguments,
    /// Answer with weights of 8 bits: several times as fast where the processor has instructions for it, in less memory, and nearly as
    /// accurate (edge-client evaluate --int8 says how accurate); on the CPU
    #[arg(long)]
    pub int8: bool,
    /// Print the weight of the global model in each answer of the personal one
    #[arg(long, conflicts_with = "model")]
    pub gate: bool,
    /// The samples.
    #[command(flatten)]
    pub samples: InputArguments,
    /// Say the class of this text, or what follows this beginning of one, instead of predicting samples
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["data", "limit", "label"])]
    pub text: Option<String>,
    /// Keep the model loaded, and answer programs on this device at unix:PATH or 127.0.0.1:PORT, until Ctrl-C
    ///
    /// A request is a line with a JSON object, and so is its answer: {"values": [5.1, 3.5]} with the numbers of a sample (of an
    /// image its pixels from 0 to 1, channel by channel), {"image": "BASE64"} with a PNG or JPEG, or {"text": "To be or not to b"},
    /// which is answered by its class or by what follows; "id" comes back, "top-k" asks for more classes. The same object, or an image, may be the
    /// body of an HTTP POST. A mistake is answered by {"error": "..."}. Answers come in the order of the requests of a connection,
    /// of which 32 may be open. A newer model is taken when it is there.
    #[arg(long, value_name = "ADDR", conflicts_with_all = ["data", "text", "limit", "json", "csv", "gate", "label", "top_k"])]
    pub listen: Option<Address>,
    /// Ends when standard input is closed, for the process that measures answers.
    #[arg(long, hide = true, requires = "listen")]
    pub until_closed: bool,
    /// Which half of the data to use
    #[arg(long, value_enum, default_value_t = Split::Test)]
    pub split: Split,
    /// Use only the first N samples, and show all of them
    ///
    /// Without it all samples count for the accuracy, and the table ends after 20 of them.
    #[arg(long, value_name = "N", value_parser = limit, allow_negative_numbers = true)]
    pub limit: Option<NonZeroUsize>,
    /// How the answers are printed.
    #[command(flatten)]
    pub form: FormArgs,
}

/// Arguments of `doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArguments {
    /// A ticket or the aggregator's address, to see whether it answers [default: the server that this device belongs to]
    ///
    /// This does not use the ticket up. The program restarts itself without it, so that the list of processes does not show it.
    #[arg(value_name = "TICKET|ADDR", value_parser = target)]
    pub server: Option<Target>,
    /// Read the ticket from this file; - is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "server")]
    pub ticket_file: Option<PathBuf>,
    /// Directory of the samples, in any of the formats that --help lists [default: samples are not checked]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub data: Option<PathBuf>,
    /// Column of a CSV table that holds the labels [default: as the run says, else label]
    #[arg(long, value_name = "COLUMN")]
    pub label: Option<String>,
    /// What joining will do about a sample that cannot be used
    #[arg(long, value_enum, default_value_t = OnError::Stop)]
    pub on_error: OnError,
    /// How joining will read them.
    #[command(flatten)]
    pub reading: ReadArguments,
    /// The state directory.
    #[command(flatten)]
    pub state: StateArguments,
    /// Print one JSON object per finding: subject, level (ok, warning, problem), found, advice
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `bench`.
#[derive(Clone, Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub struct BenchArguments {
    /// A network to measure, or the one of a model's file or of a run's folder, all of it; may be repeated [default: all that come
    /// with the program]
    #[arg(long = "model", value_name = "NAME|PATH")]
    pub models: Vec<String>,
    /// Measure answers instead of training: a process of predict --listen for each model is asked for one sample at a time
    ///
    /// Columns: from the start of the process to its first answer; the median time of a request, a line on an open connection, and
    /// the time within which 99 of 100 are answered; the median time of an HTTP POST of an image; the most memory of the process.
    #[arg(long, conflicts_with_all = ["batches", "threads", "device"])]
    pub predict: bool,
    /// Measure the answers of predict --int8
    #[arg(long, requires = "predict")]
    pub int8: bool,
    /// Samples in a batch; may be repeated
    #[arg(long = "batch", value_name = "N", default_values = ["10", "64"], value_parser = samples, allow_negative_numbers = true)]
    pub batches: Vec<NonZeroUsize>,
    /// Threads for training; may be repeated [default: as many as this machine runs at once]
    #[arg(long, value_name = "N", value_parser = threads, allow_negative_numbers = true)]
    pub threads: Vec<NonZeroUsize>,
    /// Shape of a sample, as in 1x28x28 [default: what each network is meant for]
    #[arg(long, value_name = "SHAPE", value_parser = shape)]
    pub input: Option<Shape>,
    /// About how many seconds to measure each row for
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds, allow_negative_numbers = true)]
    pub seconds: Duration,
    /// Train on this device; without it, on a GPU if this program has been built for one and there is one
    #[arg(long, value_enum)]
    pub device: Option<Processor>,
    /// Print one JSON object per row instead of a table
    #[arg(long)]
    pub json: bool,
    /// Measures in this process, for the process that prints the table.
    #[arg(long, hide = true)]
    pub in_process: bool,
}

/// The default state directory, by the XDG base directory specification, which ignores relative paths.
fn default_state(state_home: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, CliError> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let state_home = state_home.and_then(absolute);
    let base = state_home.or_else(|| home.and_then(absolute).map(|home| home.join(".local/state")));
    base.map(|base| base.join("edge-client")).ok_or_else(|| {
        CliError::new(
            Exit::Local,
            "neither XDG_STATE_HOME nor HOME names an absolute path: name the state directory with --state DIR",
        )
    })
}

#[cfg(test)]
mod tests;
