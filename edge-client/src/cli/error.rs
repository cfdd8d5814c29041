//! Errors of commands, and the exit code of each.

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use models::ArchitectureError;
use shared::cli::{ManualError, NoCuda, StopSignal, causes, wrapped};
use shared::data::{DataError, Lacks};

use super::event::printable;
use super::stream::Stream;
use crate::bench::BenchError;
use crate::driver::DriverError;
use crate::failure::Blame;
use crate::pool::NoThreads;
use crate::predict::PredictError;
use crate::store::StoreError;
use crate::transport::ConnectError;

/// Exit codes, as documented in `--help`. clap itself exits with [`Usage`](Self::Usage).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done.
    Success = 0,
    /// Unexpected: a bug, or a system without threads.
    Unexpected = 1,
    /// The arguments make no sense.
    Usage = 2,
    /// The owner of this device has to act; or the run needs more memory than the device allows.
    Local = 3,
    /// The operator of the server has to act: it refuses this client, is not the trusted one, or its run fails here.
    Server = 4,
    /// The run is over, and the server rejected the updates of this client.
    Rejected = 5,
    /// This device declines the run: it uses what this version of the program does not know.
    Declined = 6,
    /// Ctrl-C stopped it before the run was over.
    Interrupted = 130,
    /// SIGTERM did.
    Terminated = 143,
}

impl Exit {
    /// Ends the process by the signal that stopped it, or returns the exit code.
    #[must_use]
    pub fn end(self) -> ExitCode {
        match self {
            Self::Interrupted => StopSignal::Interrupt.end_process(),
            Self::Terminated => StopSignal::Terminate.end_process(),
            exit => exit.into(),
        }
    }
}

impl From<StopSignal> for Exit {
    fn from(signal: StopSignal) -> Self {
        match signal {
            StopSignal::Interrupt => Self::Interrupted,
            StopSignal::Terminate => Self::Terminated,
        }
    }
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

/// Why a command failed, and who has to act.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct CliError {
    exit: Exit,
    text: String,
}

impl CliError {
    /// What happened, what it was about, and what to do next, in one line.
    pub(super) fn new(exit: Exit, text: impl Into<String>) -> Self {
        Self { exit, text: text.into() }
    }

    fn of(exit: Exit, error: &dyn Error) -> Self {
        Self::new(exit, causes(error))
    }

    /// The system refuses what no command can do without: threads, signals, processes.
    pub(super) fn system(action: &str, error: &io::Error) -> Self {
        Self::new(Exit::Unexpected, format!("the system does not let this program {action}: {error}"))
    }

    /// Standard output fails. If its reader has stopped reading, as `head` does after ten lines, that is a success.
    #[expect(clippy::needless_pass_by_value, reason = "for map_err")]
    pub(super) fn output(error: io::Error) -> Self {
        let gone = error.kind() == io::ErrorKind::BrokenPipe;
        let exit = if gone { Exit::Success } else { Exit::Local };
        Self::new(exit, format!("cannot write to standard output: {error}"))
    }

    /// The end by a signal, after all is said.
    pub(super) fn stopped(signal: StopSignal) -> Self {
        Self::new(signal.into(), "")
    }

    /// The exit code for it.
    #[must_use]
    pub fn exit(&self) -> Exit {
        self.exit
    }

    /// Prints the error on standard error, in one line but on a terminal that is too narrow, unless the exit code is success or all is
    /// said.
    pub fn report(&self) {
        if self.exit != Exit::Success && !self.text.is_empty() {
            // Without standard error, the exit code says it.
            let line = format!("edge-client: {}", printable(&self.text));
            let _ = writeln!(io::stderr(), "{}", wrapped(&line, Stream::Err.columns(), 2));
        }
    }
}

impl From<DataError> for CliError {
    fn from(error: DataError) -> Self {
        let way = match error.lacks() {
            Some(Lacks::ClassNames(found)) => format!(": --classes {} names them", found.join(",")),
            Some(Lacks::Shape) => ": --shape 3x32x32 says one".to_owned(),
            Some(Lacks::LabelColumn) => ": --label COLUMN names it".to_owned(),
            Some(Lacks::Labels(_)) => {
                "; --classes says what labels are: a number, or their names in the run's order".to_owned()
            }
            None => String::new(),
        };
        Self::new(Exit::Local, format!("the data cannot be used: {}{way}", causes(&error)))
    }
}

impl From<DriverError> for CliError {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::Store(error) => error.into(),
            DriverError::Connect(ConnectError::Untrusted { .. }) => Self::of(Exit::Server, &error),
            DriverError::Connect(_) => Self::of(Exit::Local, &error),
        }
    }
}

/// The exit codes of errors, by their type and their variants.
macro_rules! exit_codes {
    ($($error:ty: { $($variant:pat => $exit:ident),+ })+) => {
        $(impl From<$error> for CliError {
            fn from(error: $error) -> Self {
                let exit = match &error {
                    $($variant => Exit::$exit),+
                };
                Self::of(exit, &error)
            }
        })+
    };
}

exit_codes! {
    StoreError: { StoreError::NothingHeld => Unexpected, _ => Local }
    PredictError: {
        PredictError::Batch(_) | PredictError::Network(_) | PredictError::Personal(_) => Unexpected,
        _ => Local
    }
    ArchitectureError: { _ => Usage }
    ManualError: { _ => Local }
    NoCuda: { _ => Local }
    BenchError: { _ => Unexpected }
    NoThreads: { _ => Unexpected }
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
        let pipe = |kind: io::ErrorKind| CliError::output(kind.into());
        for (error, exit) in [
            (CliError::from(DataError::Empty), Exit::Local),
            (CliError::from(store_error()), Exit::Local),
            (CliError::from(DriverError::from(store_error())), Exit::Local),
            (CliError::from(DriverError::from(StoreError::NothingHeld)), Exit::Unexpected),
            (CliError::from(DriverError::Connect(untrusted)), Exit::Server),
            (CliError::from(DriverError::Connect(ConnectError::Local(String::new()))), Exit::Local),
            (CliError::from(PredictError::NotFinite { sample: 0 }), Exit::Local),
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
            Exit::Declined,
            StopSignal::Interrupt.into(),
            StopSignal::Terminate.into(),
        ];
        assert_eq!(codes.map(|exit| exit as u8), [0, 1, 2, 3, 4, 5, 6, 130, 143]);
    }

    #[test]
    fn causes_are_printed_once() {
        let problem = Box::new(DataError::Empty);
        let in_file = DataError::InFile { path: "x".into(), problem };
        let text = CliError::from(in_file).to_string();
        assert!(text.starts_with("the data cannot be used: x: "), "{text}");
        assert_eq!(text.matches(&DataError::Empty.to_string()).count(), 1, "{text}");
        let system = CliError::system("start", &io::Error::other("why"));
        assert_eq!(system.to_string(), "the system does not let this program start: why");
    }
}
