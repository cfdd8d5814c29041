//! A task of a network that the owner's own program trains and tests.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use models::ParamSet;
use shared::algorithm::{TrainError, Trainer as _};
use shared::message::{Metric, Progress};
use shared::trainer::{ClientNumber, TrainerAtWork, Trainers};
use tracing::warn;

use super::{Task, TaskError};

/// The owner's own program, and for which client it works.
#[derive(Clone)]
pub struct OwnTrainer {
    /// Its processes.
    pub trainers: Arc<Trainers>,
    /// The client's number in a simulation.
    pub number: Option<ClientNumber>,
}

impl OwnTrainer {
    pub(super) fn at_work(&self) -> TrainerAtWork<'_> {
        TrainerAtWork { trainers: &self.trainers, number: self.number }
    }

    /// Tests the model that the task was sent, and reports what was found. A failure does not fail the task, which may train without.
    pub(super) fn report_test(
        &self,
        task: &Task,
        params: &ParamSet,
        monitor: &mut dyn FnMut(Progress) -> ControlFlow<()>,
        report: &mut dyn FnMut(Metric),
    ) -> Result<(), TaskError> {
        let whole =
            task.spec.architecture.compose(params).map_err(|error| TrainError::Model(error.into()))?;
        match self.at_work().test(task.round, &whole, monitor) {
            Ok(found) => {
                if let Some(accuracy) = found.accuracy {
                    report(Metric::OwnAccuracy(accuracy));
                }
                report(Metric::OwnLoss(found.loss));
            }
            Err(TrainError::Cancelled) => return Err(TrainError::Cancelled.into()),
            Err(error) => warn!("round {}: the model cannot be tested here: {error}", task.round),
        }
        Ok(())
    }
}

impl fmt::Debug for OwnTrainer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnTrainer").field(&self.trainers.command().line).finish()
    }
}
