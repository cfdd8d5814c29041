//! Errors of a task, and who can fix each.

use models::ModelError;
use models::shape::spelled;
use shared::algorithm::registry::RegistryError;
use shared::algorithm::{TrainError, TrainerError};
use shared::data::PreparationError;
use shared::record::RecordError;

use super::PrivateOnly;
use crate::failure::{Blame, Failure};

/// Why a task gave no update.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// This build does not have the run's algorithm, or another version of it.
    #[error("{0}; update edge-client, or have the run use an algorithm that this version knows")]
    Algorithm(#[from] RegistryError),
    /// The broadcast does not decode.
    #[error("the server's broadcast cannot be read: {0}")]
    Broadcast(RecordError),
    /// The client state does not decode.
    #[error("the client's stored state cannot be read: {0}; remove it to start afresh")]
    Local(RecordError),
    /// The device's labels have another meaning than the run's.
    #[error(
        "the device's classes are {device}, and the run's {run}: give --classes as the run has them, or leave it out"
    )]
    ClassNames {
        /// The names of the device's classes.
        device: String,
        /// Those of the run.
        run: String,
    },
    /// The samples are of a table whose columns have another order than the run's.
    #[error(
        "the device's columns are {device}, and the run's {run}: leave --classes and --unlabelled out, and they are read by name, or put \
         them in the run's order"
    )]
    Columns {
        /// Those of the device, in order.
        device: String,
        /// Those of the run.
        run: String,
    },
    /// The run does not hide updates as the owner of the device asks.
    #[error(
        "{}, and this device takes part only where they are hidden among at least {asked} (--secure-only): ask the run's \
         operator for secure aggregation, or join without that option",
        match .among {
            Some(among) => format!("this run hides updates among those of at least {among} devices"),
            None => "in this run the server sees every update".to_owned(),
        }
    )]
    NotHidden {
        /// The least number of devices among which the run hides them, if it does.
        among: Option<u32>,
        /// What the owner asks for.
        asked: u32,
    },
    /// The noise of the run's devices does not keep its rounds within what the owner of the device asks for.
    #[error(
        "{}, and this device takes part only where devices clip their updates and add noise themselves, so that no round exceeds epsilon \
         {} at delta {:e} (--private-only): ask the run's operator for [privacy] together with [secure-aggregation], or join without \
         that option",
        match .spent {
            Some(spent) => format!("{rounds} rounds of this run come to epsilon {spent:.3}"),
            None => "devices of this run add no noise".to_owned(),
        },
        .asked.epsilon,
        .asked.delta
    )]
    NotPrivate {
        /// What these rounds come to, if devices add noise.
        spent: Option<f64>,
        /// The number of rounds.
        rounds: u32,
        /// What the owner asks for.
        asked: PrivateOnly,
    },
    /// The device's samples have another shape than the run's, although the server admitted the device.
    #[error("the device's samples have the shape {}, and the run's {}", spelled(.device), spelled(.run))]
    Shape {
        /// The shape of the device's samples.
        device: Vec<usize>,
        /// The shape of the run's.
        run: Vec<usize>,
    },
    /// The run's algorithm learns classes, and its network something else: the server should have refused it.
    #[error("this run makes no sense, and its operator has to change it: {reason}")]
    OtherTask {
        /// Why.
        reason: String,
    },
    /// The run's network has layers and the device a trainer of its own, or neither.
    #[error(
        "{}",
        if *.has_one {
            "this run's network is trained by edge-client itself: leave --trainer out and give the samples with --data"
        } else {
            "this run's network has no layers that edge-client could train: give the program that trains it with --trainer"
        }
    )]
    Trainer {
        /// Whether the device has a trainer.
        has_one: bool,
    },
    /// Training failed.
    #[error(transparent)]
    Train(#[from] TrainError),
}

impl TaskError {
    /// The failure that the driver reports.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let permanent = matches!(
            self,
            Self::Algorithm(_)
                | Self::ClassNames { .. }
                | Self::Columns { .. }
                | Self::Shape { .. }
                | Self::NotHidden { .. }
                | Self::NotPrivate { .. }
                | Self::Trainer { .. }
                | Self::OtherTask { .. }
        );
        Failure { permanent, ..Failure::new(self.blame(), self) }
    }

    /// Who can fix it.
    fn blame(&self) -> Blame {
        match self {
            Self::Algorithm(_) | Self::Broadcast(_) | Self::OtherTask { .. } => Blame::Server,
            Self::Local(_) => Blame::Machine,
            Self::ClassNames { .. }
            | Self::Columns { .. }
            | Self::Shape { .. }
            | Self::NotHidden { .. }
            | Self::NotPrivate { .. }
            | Self::Trainer { .. } => Blame::Owner,
            Self::Train(error) => match error {
                TrainError::Model(error) => blame_of_model(error),
                TrainError::Trainer(TrainerError::Files { .. }) | TrainError::Local(_) => Blame::Machine,
                // The server knows the shape of the device's samples, and not their values.
                TrainError::Preparation(PreparationError::Range { .. })
                | TrainError::Unsuited(_)
                | TrainError::Trainer(_) => Blame::Owner,
                TrainError::Preparation(_) | TrainError::Broadcast(_) | TrainError::NoModel => Blame::Server,
                // The result of a cancelled task is dropped before it could be reported.
                TrainError::Batch(_) | TrainError::Cancelled => Blame::Program,
            },
        }
    }
}

fn blame_of_model(error: &ModelError) -> Blame {
    match error {
        ModelError::Label { .. } | ModelError::Token { .. } => Blame::Owner,
        ModelError::NoSeed => Blame::Program,
        // Out of memory, or a GPU that no longer answers.
        ModelError::Candle { .. } => Blame::Machine,
        // The architecture, the batch size and the learning rate are settings of the run.
        _ => Blame::Server,
    }
}
