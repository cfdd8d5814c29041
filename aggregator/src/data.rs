//! The data sets that a configuration names.

use std::path::Path;
use std::sync::Arc;

use shared::data::cifar::Cifar;
use shared::data::{DataError, Dataset, PartitionError, Split, View, glyphs, idx, text};

use crate::config::{Config, DataSet, Source};
use crate::run::TestSet;

/// Why there is no data. The operator's to mend.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The data cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// It cannot be divided as asked.
    #[error("data.partition: {0}")]
    Partition(#[from] PartitionError),
}

/// One split of the configured data set.
pub fn load(config: &Config, split: Split) -> Result<Dataset, DataError> {
    match &config.data.source {
        Source::Drawn { train, test } => {
            let count = if split == Split::Train { *train } else { *test };
            glyphs::generate(&config.spec.root_seed(), split, count)
        }
        Source::Files { folder, limit } => {
            let whole = read(config.data.set, folder, split)?;
            match limit {
                Some(limit) if split == Split::Train => whole.limit(*limit),
                _ => Ok(whole),
            }
        }
    }
}

fn read(set: DataSet, folder: &Path, split: Split) -> Result<Dataset, DataError> {
    match set {
        DataSet::Glyphs | DataSet::Mnist | DataSet::FashionMnist => {
            idx::load_split(folder, split, set.classes())
        }
        DataSet::Cifar10 => Cifar::Ten.load_split(folder, split),
        DataSet::Cifar100 => Cifar::Hundred.load_split(folder, split),
        DataSet::Shakespeare => text::load_split(folder, split),
    }
}

/// The test set, if the model is ever to be tested.
pub fn test_set(config: &Config) -> Result<Option<TestSet>, DataError> {
    if config.evaluate.every == 0 {
        return Ok(None);
    }
    let view = View::whole(Arc::new(load(config, Split::Test)?));
    Ok(Some(TestSet::new(view, config.spec.data.preparation.clone(), config.evaluate.batch)))
}

/// Every client's share of the training samples, by the configured partition. Some may be empty if the partition says so:
/// such clients do not take part.
pub fn shares(config: &Config) -> Result<Vec<View>, PlanError> {
    divide(config, load(config, Split::Train)?)
}

/// The same of training samples that were loaded already.
pub fn divide(config: &Config, train: impl Into<Arc<Dataset>>) -> Result<Vec<View>, PlanError> {
    let dataset = train.into();
    let seed = config.spec.root_seed().derive("partition");
    let parts = config.data.partition.divide(&dataset, config.data.clients, &seed)?;
    let views = parts.into_iter().map(|indices| View::select(dataset.clone(), indices));
    Ok(views.collect::<Result<_, _>>()?)
}
