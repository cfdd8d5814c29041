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

    /// Has a model tested.
    ///
    /// # Errors
    /// [`TrainError::Trainer`], which costs the round its test and nothing else.
    pub(super) fn test(
        &self,
        spec: &RunSpec,
        round: u32,
        params: &ParamSet,
    ) -> Result<TrainerTest, TrainError> {
        // No round waits for a program that keeps failing.
        if let Some(left) = self.0.backoff() {
            return Err(TrainerError::Backoff { seconds: left.as_secs() + 1 }.into());
        }
        let whole = spec.architecture.compose(params).map_err(models::ModelError::from)?;
        let mut at_work = TrainerAtWork { trainers: &self.0, number: None };
        at_work.test(round, &whole, &mut |_| ControlFlow::Continue(()))
    }
}
