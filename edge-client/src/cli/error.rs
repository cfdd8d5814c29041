//! Errors of commands, and the exit code of each.

use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use models::{ArchitectureError, ModelError};
use shared::data::DataError;
use shared::message::Refusal;
use shared::spec::SpecError;
use shared::ticket::ParseTicketError;

use super::event::printable;
use super::summary::Setback;
use crate::bench::BenchError;
use crate::driver::DriverError;
use crate::failure::{Blame, Failure};
use crate::pool::NoThreads;
use crate::predict::PredictError;
use crate::store::StoreError;
use crate::transport::ConnectError;

/// Exit codes, as documented in `--help`. clap itself exits with [`Usage`](Self::Usage).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, or stopped by the user.
    Success = 0,
    /// Unexpected: a bug, or a system without threads.
    Unexpected = 1,
    /// The arguments make no sense.
    Usage = 2,
    /// The owner of this device has to act.
    Local = 3,
    /// The operator of the server has to act: it refuses this client, is not the trusted one, or its run fails here.
    Server = 4,
    /// The run is over, and the server rejected the updates of this client.
    Rejected = 5,
    /// The run uses what this version of the program does not know.
    Outdated = 6,
}

impl From<Blame> for Exit {
    fn from(blame: Blame) -> Self {
        match blame {
            Blame::Owner | Blame::Machine => Self::Local,
            Blame::Server => Self::Server,
            Blame::Program => Self::Unexpected,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The data cannot be used.
    #[error("the data cannot be used")]
    Data(#[from] DataError),
    /// The requested split does not exist, and the other one does.
    #[error("{problem}; {way}")]
    OtherSplit {
        /// The splits that exist.
        problem: DataError,
        /// The option that uses the other one.
        way: &'static str,
    },
    /// The samples have no labels.
    #[error("{0}; join with --unlabelled if the run's labels are at the server")]
    NoLabels(DataError),
    /// The state directory fails.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no default state directory.
    #[error(
        "neither XDG_STATE_HOME nor HOME names an absolute path: name the state directory with --state DIR"
    )]
    NoStateDirectory,
    /// The server refuses this client.
    #[error("the server refuses this client: {0}")]
    Refused(Refusal),
    /// The run uses what this version of the program does not know.
    #[error(transparent)]
    Outdated(SpecError),
    /// This device can never take part in the run as it is.
    #[error("this device cannot take part in the run, {}: {}", .0.blame, .0.reason)]
    Unfit(Failure),
    /// The run is over, and no update of this device counted.
    #[error(
        "none of this device's rounds brought an update that counts, in {rounds} tried; the last one {last}"
    )]
    NothingCounted {
        /// Rounds that failed or whose update was rejected.
        rounds: u32,
        /// What happened to the last of them.
        last: Setback,
    },
    /// Taking part failed.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// There are no predictions.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// The speed of this device cannot be measured.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// There is no such network for such samples.
    #[error(transparent)]
    Architecture(#[from] ArchitectureError),
    /// There is no GPU to train on.
    #[error(
        "there is no CUDA device to train on: {0}; leave --device out to train on the processor that works"
    )]
    NoCuda(#[source] ModelError),
    /// No server is known.
    #[error(
        "this device belongs to no server yet ({} does not exist): join with a ticket, which `aggregator ticket` prints on \
         the server's machine, or with an address",
        path.display()
    )]
    NoServer {
        /// The file that would store it.
        path: PathBuf,
    },
    /// The file with the ticket cannot be read.
    #[error("cannot read the ticket in {}", path.display())]
    TicketFile {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// The ticket among the arguments is mistyped.
    #[error("{0}")]
    Mistyped(ParseTicketError),
    /// The file contains no ticket.
    #[error("{} is no ticket", path.display())]
    Ticket {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        #[source]
        problem: ParseTicketError,
    },
    /// A row of the measurements could not be made.
    #[error("the process that measures {subject} ended without a result ({status})")]
    Measuring {
        /// What was measured.
        subject: String,
        /// How the process ended.
        status: String,
    },
    /// No threads to train with.
    #[error(transparent)]
    Threads(#[from] NoThreads),
    /// No runtime for the network, or no signals.
    #[error("the system does not let this program {action}")]
    System {
        /// What was tried.
        action: &'static str,
        /// The system's error.
        #[source]
        error: io::Error,
    },
    /// Standard output fails.
    #[error("cannot write to standard output")]
    Output(#[source] io::Error),
    /// The manual pages cannot be written.
    #[error("cannot write the manual pages to {}: {error}; name a directory that this user may write to", folder.display())]
    Pages {
        /// The directory.
        folder: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The device cannot take part; the findings were printed.
    #[error(
        "something keeps this device from taking part ({problems} problems): each finding says what to do"
    )]
    DoctorProblems {
        /// How many.
        problems: usize,
    },
    /// The user asked twice to stop.
    #[error("stopped at once; nothing that was finished is lost")]
    Interrupted,
}

impl CliError {
    /// The exit code for it.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::Store(error) | Self::Driver(DriverError::Store(error)) => match error {
                StoreError::NothingHeld => Exit::Unexpected,
                _ => Exit::Local,
            },
            Self::Driver(DriverError::Connect(error)) => match error {
                ConnectError::Untrusted { .. } => Exit::Server,
                ConnectError::Unreachable { .. }
                | ConnectError::NoCommonProtocol { .. }
                | ConnectError::Local(_) => Exit::Local,
            },
            Self::Refused(_) => Exit::Server,
            Self::Architecture(_) | Self::Mistyped(_) | Self::Ticket { .. } => Exit::Usage,
            Self::Unfit(failure) | Self::NothingCounted { last: Setback::Failed(failure), .. } => {
                failure.blame.into()
            }
            Self::NothingCounted { last: Setback::Rejected(_), .. } => Exit::Rejected,
            Self::Outdated(_) => Exit::Outdated,
            Self::Predict(PredictError::Batch(_) | PredictError::Network(_) | PredictError::Personal(_))
            | Self::Bench(_)
            | Self::Measuring { .. }
            | Self::Threads(_)
            | Self::System { .. }
            | Self::Interrupted => Exit::Unexpected,
            // The reader of the output has stopped reading, as `head` does after ten lines.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Success,
            Self::Data(_)
            | Self::OtherSplit { .. }
            | Self::NoLabels(_)
            | Self::NoStateDirectory
            | Self::NoServer { .. }
            | Self::TicketFile { .. }
            | Self::DoctorProblems { .. }
            | Self::NoCuda(_)
            | Self::Predict(_)
            | Self::Output(_)
            | Self::Pages { .. } => Exit::Local,
        }
    }

    /// Prints the error on standard error, in one line, unless the exit code is success.
    pub fn report(&self) {
        if self.exit() != Exit::Success {
            // Without standard error, the exit code says it.
            let _ = writeln!(io::stderr(), "edge-client: {}", printable(&chain(self)));
        }
    }
}

/// An error with its causes. A cause that an error already prints is not printed twice.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use shared::identity::PublicKey;

    use super::*;

    fn store_error() -> StoreError {
        StoreError::Locked { directory: "state".into() }
    }

    #[test]
    fn each_fault_has_its_exit_code() {
        let untrusted = ConnectError::Untrusted {
            server: "lab:1".to_owned(),
            found: PublicKey::from_bytes([0; 32]),
            trusted: PublicKey::from_bytes([0x11; 32]),
        };
        let pipe = |kind: io::ErrorKind| CliError::Output(kind.into());
        for (error, exit) in [
            (CliError::Data(DataError::Empty), Exit::Local),
            (CliError::Store(store_error()), Exit::Local),
            (CliError::Driver(store_error().into()), Exit::Local),
            (CliError::Driver(StoreError::NothingHeld.into()), Exit::Unexpected),
            (CliError::NoStateDirectory, Exit::Local),
            (CliError::DoctorProblems { problems: 1 }, Exit::Local),
            (CliError::Outdated(SpecError::Unknown { key: "privacy.clip".to_owned() }), Exit::Outdated),
            (CliError::Refused(Refusal::NoSamples), Exit::Server),
            (
                CliError::NothingCounted { rounds: 3, last: Setback::Rejected("diverged".to_owned()) },
                Exit::Rejected,
            ),
            (CliError::Driver(DriverError::Connect(untrusted)), Exit::Server),
            (CliError::Driver(DriverError::Connect(ConnectError::Local(String::new()))), Exit::Local),
            (CliError::Predict(PredictError::NotFinite { sample: 0 }), Exit::Local),
            (CliError::Interrupted, Exit::Unexpected),
            (pipe(io::ErrorKind::BrokenPipe), Exit::Success),
            (pipe(io::ErrorKind::StorageFull), Exit::Local),
        ] {
            assert_eq!(error.exit(), exit, "{error}");
        }
        let codes = [
            Exit::Success,
            Exit::Unexpected,
            Exit::Usage,
            Exit::Local,
            Exit::Server,
            Exit::Rejected,
            Exit::Outdated,
        ];
        assert_eq!(codes.map(|exit| exit as u8), [0, 1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn the_exit_code_says_who_can_fix_a_failed_task() {
        for (blame, exit, says) in [
            (Blame::Owner, Exit::Local, "data or arguments"),
            (Blame::Machine, Exit::Local, "machine"),
            (Blame::Server, Exit::Server, "server or its run"),
            (Blame::Program, Exit::Unexpected, "bug"),
        ] {
            let failure = Failure::new(blame, "the reason");
            let last = Setback::Failed(failure.clone());
            for error in [CliError::Unfit(failure), CliError::NothingCounted { rounds: 2, last }] {
                assert_eq!(error.exit(), exit, "{error}");
                let text = error.to_string();
                assert!(text.contains(says) && text.ends_with(": the reason"), "{text}");
            }
        }
    }

    #[test]
    fn causes_are_printed_once() {
        let problem = Box::new(DataError::Empty);
        let in_file = DataError::InFile { path: "x".into(), problem };
        let text = chain(&CliError::from(in_file));
        assert!(text.starts_with("the data cannot be used: x: "), "{text}");
        assert_eq!(text.matches(&DataError::Empty.to_string()).count(), 1, "{text}");
        let system = CliError::System { action: "start", error: io::Error::other("why") };
        assert_eq!(chain(&system), "the system does not let this program start: why");
    }
}
