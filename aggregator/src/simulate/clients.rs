//! Who the clients of a simulation are: their samples, or the trainers that read them.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use shared::algorithm::TrainError;
use shared::data::{Dataset, View};
use shared::trainer::{ClientNumber, TrainerCommand, Trainers};

use crate::config::{Config, Source};
use crate::data;
use crate::run::RunError;
use crate::start::StartError;

/// The clients' samples, in the order of the clients.
pub struct Clients {
    /// Each client's; of trainers their number alone. Empty ones belong to clients that do not take part.
    pub shares: Vec<View>,
    /// The programs that read them and train.
    pub trainers: Option<Arc<Trainers>>,
}

impl Clients {
    /// Those of a configuration: every client's part of the data set, or what its trainer says to have.
    ///
    /// # Errors
    /// If the data cannot be read or divided, or no trainer answers.
    pub fn of(config: &Config) -> Result<Self, StartError> {
        if config.data.source != Source::Trainers {
            let shares = data::shares(config).map_err(RunError::from)?;
            return Ok(Self { shares, trainers: None });
        }
        let line = config.effective.simulation.trainer.clone().ok_or(StartError::NoTrainer)?;
        let trainers = Trainers::new(TrainerCommand {
            line,
            directory: private_folder()?,
            timeout: TrainerCommand::TIMEOUT,
            max_memory: None,
        });
        let clients = config.data.clients as u32;
        let samples = |client| -> Result<View, StartError> {
            let number = Some(ClientNumber { client, clients });
            let count = trainers.samples(number, &mut |_| ControlFlow::Continue(()))?;
            let some =
                Arc::new(Dataset::counted(count.max(1)).map_err(|_| StartError::Samples { client, count })?);
            Ok(if count == 0 { View::whole(some).part(&[]) } else { View::whole(some) })
        };
        let shares = (0..clients).map(samples).collect::<Result<Vec<_>, _>>()?;
        if shares.iter().all(View::is_empty) {
            return Err(StartError::Samples { client: 0, count: 0 });
        }
        Ok(Self { shares, trainers: Some(Arc::new(trainers)) })
    }
}

/// A folder for the trainers of one run: an experiment has several in one process, and its name cannot be guessed.
fn private_folder() -> Result<PathBuf, StartError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(StartError::Random)?;
    Ok(std::env::temp_dir().join(format!("aggregator-trainers-{:016x}", u64::from_le_bytes(bytes))))
}

impl From<Vec<View>> for Clients {
    /// Clients that our engine trains on these samples.
    fn from(shares: Vec<View>) -> Self {
        Self { shares, trainers: None }
    }
}

impl From<TrainError> for StartError {
    fn from(error: TrainError) -> Self {
        Self::Trainer(error.to_string())
    }
}
