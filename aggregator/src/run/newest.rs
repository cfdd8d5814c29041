//! The model of a run that is not over, or of one that was killed: its newest checkpoint, or the one behind its best model.

use models::{Limits, ParamSet};
use shared::algorithm::registry;
use shared::record::Record;

use super::directory::{RunDirectory, round_in};
use super::error::disk;
use super::frozen::read_frozen;
use super::{RunError, damaged, reader};
use crate::config::Config;
use crate::round::stopping;
use crate::storage::{FileLayer, Reading};

/// Which model of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// That of the last closed round.
    Newest,
    /// The best of those that were tested.
    Best,
}

/// A model as a checkpoint has it.
pub struct FoundModel {
    /// The round that it was made in; 0 is the initial model.
    pub round: u32,
    /// The run's configuration, whose network is that of the whole model, with adapters merged.
    pub config: Config,
    /// The whole model, with what is frozen.
    pub params: ParamSet,
}

impl FoundModel {
    /// The model in the checkpoints of the run in `directory`; `None` if there is no run, or no such checkpoint.
    ///
    /// A checkpoint can be superseded while it is read: then the next one is.
    pub fn read(
        files: &dyn FileLayer,
        directory: &RunDirectory,
        which: Which,
    ) -> Result<Option<Self>, RunError> {
        /// More rounds than this do not close while a file is opened.
        const TRIES: u32 = 5;
        let mut tried = 1;
        loop {
            match Self::try_read(files, directory, which) {
                Err(RunError::Removed { .. }) if tried < TRIES => tried += 1,
                found => return found,
            }
        }
    }

    fn try_read(
        files: &dyn FileLayer,
        directory: &RunDirectory,
        which: Which,
    ) -> Result<Option<Self>, RunError> {
        let Some(mut config) = reader::configuration(files, directory)? else { return Ok(None) };
        let Some(round) = round_of(files, directory, &config, which)? else { return Ok(None) };
        let path = directory.checkpoint(round);
        let mut input = Reading::open(files, &path).map_err(disk("open", &path))?;
        let record = Record::read_from(&mut input, Limits { max_bytes: u64::MAX, ..Limits::default() });
        let record = input.judge(record).map_err(disk("read", &path))?.map_err(damaged(&path))?;
        let algorithm = registry::build(&config.spec.algorithm)?;
        let global = algorithm.restore(record)?;
        read_frozen(files, directory, &mut config.spec)?;
        let architecture = &mut config.spec.architecture;
        let whole =
            architecture.compose(algorithm.current_model(&global)).map_err(damaged(&path))?.into_owned();
        let (merged, params) = architecture.merged(whole);
        *architecture = merged;
        Ok(Some(Self { round, config, params }))
    }
}

/// The round whose checkpoint is meant, if it is there.
fn round_of(
    files: &dyn FileLayer,
    directory: &RunDirectory,
    config: &Config,
    which: Which,
) -> Result<Option<u32>, RunError> {
    let state = directory.state();
    let names = files.list(&state).map_err(disk("list", &state))?;
    let rounds = || names.iter().filter_map(|name| round_in(name, "checkpoint-", ".safetensors"));
    if which == Which::Newest {
        return Ok(rounds().max());
    }
    let closed = reader::rounds(files, directory)?.unwrap_or_default();
    let best = stopping::best(&closed.records, config.stop.metric).map(|best| best.round);
    Ok(best.filter(|best| rounds().any(|round| round == *best)))
}
