//! Tests of a network of another framework by a program of the operator's own (`evaluate.command`).

use std::ops::ControlFlow;

use models::ParamSet;
use shared::algorithm::trainer::TrainerTest;
use shared::algorithm::{TrainError, Trainer as _, TrainerError};
use shared::spec::RunSpec;
use shared::trainer::{TrainerAtWork, TrainerCommand, Trainers};

use super::directory::RunDirectory;
use crate::config::Config;

/// The program, which is started when it is needed first.
pub(super) struct Tester(Trainers);

impl Tester {
    /// That of this configuration, if it names one.
    pub(super) fn of(config: &Config, directory: &RunDirectory) -> Option<Self> {
        let line = config.spec.evaluate.command.clone()?;
        Some(Self(Trainers::new(TrainerCommand {
            line,
            directory: directory.tester(),
            timeout: TrainerCommand::TIMEOUT,
            max_memory: None,
        })))
    }

    /// Has a model tested. Only the test of the last model waits for a program that has failed before.
    ///
    /// # Errors
    /// [`TrainError::Trainer`], which costs the round its test and nothing else.
    pub(super) fn test(
        &self,
        spec: &RunSpec,
        round: u32,
        params: &ParamSet,
        is_last: bool,
    ) -> Result<TrainerTest, TrainError> {
        if let Some(left) = self.0.backoff().filter(|_| !is_last) {
            return Err(TrainerError::Backoff { seconds: left.as_secs() + 1 }.into());
        }
        let whole = spec.architecture.compose(params).map_err(models::ModelError::from)?;
        let mut at_work = TrainerAtWork { trainers: &self.0, number: None };
        at_work.test(round, &whole, &mut |_| ControlFlow::Continue(()))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::time::Duration;

    use shared::seed::Seed;

    use super::*;

    #[test]
    fn no_round_but_the_last_waits_for_a_program_that_has_failed() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let tester = Tester(Trainers::new(TrainerCommand {
            line: "exit 3".to_owned(),
            directory: folder.path().join("tester"),
            timeout: Duration::from_mins(1),
            max_memory: None,
        }));
        let spec = RunSpec::example("fedavg");
        let params =
            spec.architecture.initialise(|name| Seed::root(1).derive(name).rng()).expect("a network");
        let test = |round, is_last| match tester.test(&spec, round, &params, is_last) {
            Err(TrainError::Trainer(error)) => error,
            other => panic!("{other:?}"),
        };
        assert!(matches!(test(1, false), TrainerError::Ended { .. }));
        assert!(matches!(test(2, false), TrainerError::Backoff { .. }));
        assert!(matches!(test(3, true), TrainerError::Ended { .. }));
    }
}
