//! A trainer of the owner's own for `join`: its options, and its start.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use shared::algorithm::TrainError;
use shared::data::{Dataset, View};
use shared::trainer::{TrainerCommand, Trainers};

use super::error::{CliError, Exit};
use super::parse::{memory, seconds};
use crate::driver::{DeviceSamples, Source};
use crate::task::{OwnTrainer, TestSamples};

/// The folder of a trainer's files in the state directory.
const FOLDER: &str = "trainer";

/// The program that trains, if it is not this one.
#[derive(Clone, Debug, Args)]
pub struct TrainerArguments {
    /// A program of your own that reads the samples, trains and tests, for runs of a network of its framework
    /// (model.parameters), as in 'python3 train.py'
    ///
    /// The shell runs it in this directory. It is kept running, and is told what to do by lines of JSON on its standard input; the
    /// Python package `federation` speaks them. Nothing that a server sends is ever run.
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["data", "label", "on_error", "classes", "unlabelled", "shape"])]
    pub trainer: Option<String>,
    /// Seconds without a word from the trainer after which it is ended and started again
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = seconds, requires = "trainer", allow_negative_numbers = true)]
    pub trainer_timeout: Duration,
    /// Memory that the trainer may take, as in 900MB or 1.5GB: beyond that it gets none [default: no bound]
    #[arg(long, value_name = "SIZE", value_parser = memory, requires = "trainer", allow_negative_numbers = true)]
    pub trainer_memory: Option<u64>,
}

/// A trainer that was started.
pub(super) struct Started {
    /// What it has to learn from.
    pub(super) samples: Source,
    /// Its command.
    pub(super) command: String,
    /// Ends it when the command ends.
    pub(super) ending: Ending,
}

/// Ends a trainer when this is dropped, also one at work.
pub(super) struct Ending(Arc<Trainers>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl TrainerArguments {
    /// Whether there is one.
    pub(super) fn is_given(&self) -> bool {
        self.trainer.is_some()
    }

    /// Starts the trainer and asks it for its samples.
    pub(super) fn start(&self, state: &Path) -> Result<Started, CliError> {
        if self.trainer_memory.is_some() && !TrainerCommand::BOUNDS_MEMORY {
            let reason = "this system cannot bound a process's memory: leave --trainer-memory out";
            return Err(CliError::new(Exit::Usage, reason.to_owned()));
        }
        let directory = state.join(FOLDER);
        // A process before this one may have been killed.
        let _ = std::fs::remove_dir_all(&directory);
        let command = self.trainer.clone().unwrap_or_default();
        let trainers = Arc::new(Trainers::new(TrainerCommand {
            line: command.clone(),
            directory,
            timeout: self.trainer_timeout,
            max_memory: self.trainer_memory,
        }));
        let ending = Ending(trainers.clone());
        let owner = |error: TrainError| CliError::new(Exit::Local, error.to_string());
        let count = trainers.samples(None, &mut |_| ControlFlow::Continue(())).map_err(owner)?;
        let data = Dataset::counted(count).map_err(|_| {
            let reason = format!(
                "the trainer says that it has {count} training samples: a device needs some, and fewer than 4294967296"
            );
            CliError::new(Exit::Local, reason)
        })?;
        let trainer = Some(OwnTrainer { trainers, number: None });
        let data = View::whole(Arc::new(data));
        let samples = Source::Read(DeviceSamples { data, skipped: 0, tests: TestSamples::none(), trainer });
        Ok(Started { samples, command, ending })
    }
}
