//! How the process ends.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use crate::config::{ConfigError, ConfigErrors};
use crate::coordinator::Outcome;
use crate::events::printable_reasons;
use crate::run::RunError;
use crate::start::StartError;

/// Why a command failed, and whose fault it is.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration is wrong.
    #[error(transparent)]
    Configuration(ConfigErrors),
    /// A request makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Something on this machine is in the way.
    #[error("{0}")]
    Environment(String),
    /// The run ended without success.
    #[error("{0}")]
    NoProgress(String),
    /// The run is not over, and nobody serves it.
    #[error("{0}")]
    Idle(String),
    /// Our bug.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Failure {
    pub(super) fn environment(error: impl Display) -> Self {
        Self::Environment(error.to_string())
    }

    pub(super) fn file(action: &str, path: &Path, error: impl Display) -> Self {
        Self::Environment(format!("cannot {action} {}: {error}", path.display()))
    }

    pub(super) fn output(error: &io::Error) -> Self {
        Self::Environment(format!("cannot write to standard output: {error}"))
    }

    /// A run that did not complete and was not stopped.
    pub(super) fn of_outcome(outcome: &Outcome) -> Option<Self> {
        let Outcome::NoProgress { rounds, reasons } = outcome else { return None };
        // Much of it is what clients said.
        let reasons = printable_reasons(reasons);
        Some(Self::NoProgress(format!(
            "the run ended: {rounds} rounds in a row had too few acceptable updates ({reasons})"
        )))
    }
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Self {
        let ours = errors.all().iter().any(|error| matches!(error, ConfigError::Internal { .. }));
        if ours { Self::Internal(errors.to_string()) } else { Self::Configuration(errors) }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Aggregate(_) | RunError::Model(_) | RunError::Registry(_) => {
                Self::Internal(error.to_string())
            }
            _ => Self::environment(error),
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Run(error) => error.into(),
            StartError::Listen(_) | StartError::InUse { .. } | StartError::Random(_) => {
                Self::environment(error)
            }
        }
    }
}

/// The exit code of a process that is told a second time to stop, and does so at once: that of a shell for `SIGINT`.
pub(super) const AT_ONCE: i32 = 130;

/// The process's exit code, as documented in `aggregator --help`.
#[must_use]
pub fn exit_code(result: &Result<(), Failure>) -> ExitCode {
    ExitCode::from(match result {
        Ok(()) => 0,
        Err(Failure::Internal(_)) => 1,
        Err(Failure::Configuration(_) | Failure::Usage(_)) => 2,
        Err(Failure::Environment(_)) => 3,
        Err(Failure::NoProgress(_)) => 4,
        Err(Failure::Idle(_)) => 5,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_is_documented() {
        let documented = |code: i32| {
            let says = |line: &str| {
                line.strip_prefix("  ").is_some_and(|line| line.starts_with(&format!("{code}  ")))
            };
            super::super::help::AFTER_HELP.lines().any(says)
        };
        assert!((0..=5).all(documented) && documented(AT_ONCE));
        assert!(!documented(6));
    }

    #[test]
    fn no_reason_ends_in_the_middle_of_a_word() {
        let said = |devices: usize| {
            let reasons =
                vec!["0123abcd: failed: training diverged: its loss is not a number".to_owned(); devices];
            Failure::of_outcome(&Outcome::NoProgress { rounds: 3, reasons }).expect("no success").to_string()
        };
        assert!(said(10).ends_with("is not a number; and 8 more)"), "{}", said(10));
        assert!(said(2).ends_with("is not a number)"), "{}", said(2));
        assert!(said(0).ends_with("(no reasons were given)"), "{}", said(0));
    }

    #[test]
    fn what_clients_said_neither_steers_the_terminal_nor_fills_it() {
        let reasons = vec![format!("ab: failed: \u{1b}[2Jgone\n{}", "x".repeat(100_000)); 3];
        let failure = Failure::of_outcome(&Outcome::NoProgress { rounds: 3, reasons }).expect("no success");
        let text = failure.to_string();
        assert!(text.contains("ab: failed:  [2Jgone") && text.len() < 1000, "{} bytes", text.len());
        assert!(!text.chars().any(char::is_control), "{text:?}");
        assert!(text.contains("xxx...; ab: failed") && text.ends_with("xxx...; and 1 more)"), "{text}");
    }
}
