//! Failures of a command, and their exit codes.

use std::fmt::Display;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use models::ModelError;
use shared::algorithm::{AggregateError, TrainError};
use shared::cli::{ManualError, NoCuda, StopSignal, causes, counted};
use shared::data::DataError;

#[cfg(feature = "cluster")]
use crate::cluster::error::StoreError;
use crate::config::{ConfigError, ConfigErrors};
use crate::coordinator::Outcome;
use crate::data::{EvaluateError, PlanError};
use crate::database::DatabaseError;
use crate::ensemble::EnsembleError;
use crate::events::printable_reasons;
use crate::events::sinks::json_log;
use crate::run::RunError;
use crate::start::StartError;
use crate::transport::identity::IdentityError;

/// Why a command failed, and whose fault it is.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration is wrong, or a request makes no sense.
    #[error("{0}")]
    Usage(String),
    /// Something on this machine is in the way.
    #[error("{0}")]
    Environment(String),
    /// The run ended without success: no acceptable updates, or training diverged.
    #[error("{0}")]
    NoProgress(String),
    /// The run is not over, and no process serves it.
    #[error("{0}")]
    Idle(String),
    /// A signal stopped the run before its end, and the same command continues it. All is said and safe by then.
    #[error("stopped by a signal")]
    Stopped(StopSignal),
    /// Our bug.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Failure {
    pub(super) fn environment(error: impl Display) -> Self {
        Self::Environment(error.to_string())
    }

    /// Why a program without the feature `cluster` takes no store.
    #[cfg(not(feature = "cluster"))]
    pub(super) fn without_store() -> Self {
        Self::Usage(
            "this program was built without stores: `cargo build --release --package aggregator --features cluster` makes one with them"
                .to_owned(),
        )
    }

    /// Prints it on standard error, in the form of the log.
    pub fn report(&self) {
        if json_log::is_on() {
            eprint!("{}", json_log::of_text(&format!("WARNING: {self}"), serde_json::Map::new()));
        } else {
            eprintln!("aggregator: {self}");
        }
    }

    /// Our bug. Some errors say so themselves, which is not said twice.
    pub(super) fn internal(error: impl Display) -> Self {
        let text = error.to_string();
        Self::Internal(text.strip_prefix("internal error: ").map_or(text.clone(), str::to_owned))
    }

    /// `text` reports a model's error: what to do about it, and whose fault it is.
    fn of_model(error: &ModelError, text: String) -> Self {
        match error {
            ModelError::Diverged { .. } => Self::NoProgress(text),
            ModelError::OneValue { .. } => Self::Usage(text),
            ModelError::Candle { .. } => Self::Environment(format!(
                "{text}; if the GPU is out of memory or gone, free it or take --device cpu; otherwise please report this"
            )),
            ModelError::Input { .. }
            | ModelError::Label { .. }
            | ModelError::Labels { .. }
            | ModelError::Token { .. } => Self::Environment(text),
            _ => Self::Internal(text),
        }
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
        Some(Self::NoProgress(format!("{} ({})", without_updates(*rounds), printable_reasons(reasons))))
    }
}

/// Why a run has ended without success, for those who are not to learn which devices took part in it.
pub(super) fn without_updates(rounds: u32) -> String {
    let rounds = counted(rounds as usize, "round");
    format!("the run ended: {rounds} in a row had too few acceptable updates")
}

#[cfg(feature = "cluster")]
impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        if error.is_of_the_caller() { Self::Usage(error.to_string()) } else { Self::environment(error) }
    }
}

impl From<ConfigErrors> for Failure {
    fn from(errors: ConfigErrors) -> Self {
        let ours = errors.all().iter().any(|error| matches!(error, ConfigError::Internal { .. }));
        if ours { Self::Internal(errors.to_string()) } else { Self::Usage(errors.to_string()) }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Aggregate(AggregateError::NotFinite { .. }) => Self::NoProgress(error.to_string()),
            RunError::Aggregate(AggregateError::Stored(_)) => Self::environment(error),
            RunError::Model(ref model) | RunError::Supervised(TrainError::Model(ref model)) => {
                Self::of_model(model, causes(&error))
            }
            RunError::Aggregate(_)
            | RunError::Registry(_)
            | RunError::Supervised(
                TrainError::Broadcast(_) | TrainError::Local(_) | TrainError::NoModel | TrainError::Cancelled,
            ) => Self::internal(error),
            RunError::Ensemble(error) => error.into(),
            RunError::Initial(ref initial) if initial.is_of_configuration() => Self::Usage(error.to_string()),
            error => Self::environment(error),
        }
    }
}

impl From<EnsembleError> for Failure {
    fn from(error: EnsembleError) -> Self {
        match error {
            EnsembleError::Model(ref model) => Self::of_model(model, causes(&error)),
            error => Self::environment(error),
        }
    }
}

impl From<EvaluateError> for Failure {
    fn from(error: EvaluateError) -> Self {
        match error {
            EvaluateError::Model(model) => model.into(),
            error @ EvaluateError::Samples(_) => Self::environment(error),
        }
    }
}

impl From<ModelError> for Failure {
    fn from(error: ModelError) -> Self {
        Self::of_model(&error, causes(&error))
    }
}

/// Errors that something on this machine causes.
macro_rules! of_this_machine {
    ($($error:ty),+) => {
        $(impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::environment(error)
            }
        })+
    };
}

of_this_machine!(DataError, DatabaseError, IdentityError, ManualError, NoCuda, PlanError);

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        match error {
            StartError::Run(error) => error.into(),
            error => Self::environment(error),
        }
    }
}

/// The process's exit code, as documented in `aggregator --help`.
#[must_use]
pub fn exit_code(result: &Result<(), Failure>) -> ExitCode {
    ExitCode::from(match result {
        Ok(()) => 0,
        Err(Failure::Internal(_)) => 1,
        Err(Failure::Usage(_)) => 2,
        Err(Failure::Environment(_)) => 3,
        Err(Failure::NoProgress(_)) => 4,
        Err(Failure::Idle(_)) => 5,
        Err(Failure::Stopped(signal)) => signal.exit_code(),
    })
}

#[cfg(test)]
mod tests {
    use shared::aggregation::{MergeError, StoredError};

    use super::*;

    #[test]
    fn every_exit_code_is_documented() {
        let documented = |code: i32| {
            let says = |line: &str| {
                line.strip_prefix("  ").is_some_and(|line| line.starts_with(&format!("{code}  ")))
            };
            super::super::help::AFTER_HELP.lines().any(says)
        };
        assert!((0..=5).all(documented));
        assert!(super::super::help::AFTER_HELP.contains("\n  130, 143  stopped by Ctrl-C or SIGTERM"));
        assert!(!documented(6));
    }

    /// The class of an error, as the exit codes have it, and what is said.
    fn class(error: impl Into<Failure>) -> (u8, String) {
        let failure: Failure = error.into();
        let code = match failure {
            Failure::Internal(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Environment(_) => 3,
            Failure::NoProgress(_) => 4,
            Failure::Idle(_) => 5,
            Failure::Stopped(signal) => signal.exit_code(),
        };
        (code, failure.to_string())
    }

    #[test]
    fn training_that_diverges_is_no_internal_error_and_says_what_to_lower() {
        let tensor = "head.fc.weight".to_owned();
        let (code, text) = class(RunError::Aggregate(AggregateError::NotFinite { tensor }));
        assert_eq!(code, 4, "{text}");
        assert!(text.contains("`head.fc.weight`") && text.contains("lower the learning rate"), "{text}");
        let diverged = ModelError::Diverged { step: 3, loss: f32::NAN };
        let (code, text) = class(RunError::Model(diverged));
        assert_eq!(code, 4, "{text}");
        assert!(text.contains("step 3") && text.contains("lower the learning rate"), "{text}");
    }

    #[test]
    fn a_gpu_without_memory_is_of_this_machine_and_names_the_cause() {
        let lost = || ModelError::Candle {
            operation: "the forward pass",
            source: "CUDA_ERROR_OUT_OF_MEMORY".into(),
        };
        let errors: [Failure; 4] = [
            RunError::Model(lost()).into(),
            RunError::Supervised(TrainError::Model(lost())).into(),
            RunError::Ensemble(EnsembleError::Model(lost())).into(),
            EvaluateError::Model(lost()).into(),
        ];
        for error in errors {
            let (code, text) = class(error);
            assert_eq!(code, 3, "{text}");
            let parts = ["the forward pass failed", "CUDA_ERROR_OUT_OF_MEMORY", "--device cpu"];
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
            assert!(!text.contains("internal error"), "{text}");
        }
    }

    #[test]
    fn disks_and_data_are_of_this_machine() {
        let source = io::ErrorKind::StorageFull.into();
        let disk = RunError::Disk { action: "write", path: "runs/a".into(), source };
        let (code, text) = class(disk);
        assert!(
            code == 3 && text.contains("cannot write runs/a") && text.contains("the same command"),
            "{text}"
        );
        let stored = StoredError { update: "update-1".to_owned(), reason: "it was deleted".to_owned() };
        let (code, text) = class(RunError::Aggregate(AggregateError::Stored(stored)));
        assert!(code == 3 && text.contains("update-1"), "{text}");
        let (code, text) = class(RunError::Model(ModelError::Label { label: 12, classes: 10 }));
        assert!(code == 3 && text.contains("label 12"), "{text}");
    }

    #[test]
    fn a_setting_that_cannot_be_trained_with_is_the_configurations() {
        let (code, text) = class(RunError::Model(ModelError::OneValue { layer: "extractor.bn1".to_owned() }));
        assert!(code == 2 && text.contains("training.drop-last"), "{text}");
    }

    #[test]
    fn our_bugs_are_called_that_once() {
        let merged = AggregateError::Merge(MergeError::Different { of: "the weights".to_owned() });
        for error in [AggregateError::Folded, AggregateError::NoMixture, merged] {
            let (code, text) = class(RunError::Aggregate(error));
            assert_eq!((code, text.matches("internal error: ").count()), (1, 1), "{text}");
        }
        assert_eq!(class(RunError::Model(ModelError::NoSeed)).0, 1);
        assert_eq!(class(RunError::Supervised(TrainError::Cancelled)).0, 1);
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
