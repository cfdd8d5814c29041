//! The data sets that a configuration names.

use std::path::Path;
use std::sync::Arc;

use shared::data::cifar::Cifar;
use shared::data::{DataError, Dataset, Format, PartitionError, Skipped, Split, View, glyphs};

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
            let whole = read(config, folder, split)?;
            if whole.shape() != config.spec.data.shape {
                let (expected, found) = (config.spec.data.shape.clone(), whole.shape().to_vec());
                let problem = Box::new(DataError::OtherShape { expected, found });
                return Err(DataError::InFile { path: folder.clone(), problem });
            }
            match limit {
                Some(limit) if split == Split::Train => whole.limit(*limit),
                _ => Ok(whole),
            }
        }
    }
}

fn read(config: &Config, folder: &Path, split: Split) -> Result<Dataset, DataError> {
    let format = match config.data.set {
        DataSet::Glyphs | DataSet::Mnist | DataSet::FashionMnist => Format::Idx,
        DataSet::Cifar10 => Format::Cifar(Cifar::Ten),
        DataSet::Cifar100 => Format::Cifar(Cifar::Hundred),
        DataSet::Shakespeare => Format::Text,
        DataSet::Images => Format::Images,
        DataSet::Csv => Format::Csv,
        DataSet::Safetensors => Format::Safetensors,
    };
    format.load(folder, split, &config.data.reading)
}

/// The test set, if the model is ever to be tested.
pub fn test_set(config: &Config) -> Result<Option<TestSet>, DataError> {
    if config.evaluate.every == 0 && config.spec.evaluation.every == 0 {
        return Ok(None);
    }
    let view = View::whole(Arc::new(load(config, Split::Test)?));
    Ok(Some(TestSet::new(view, config.spec.data.preparation.clone(), config.evaluate.batch)))
}

/// What was left out of the shares and of the test set, in words, one entry each; none if nothing was.
#[must_use]
pub fn left_out(shares: &[View], tests: Option<&TestSet>) -> Vec<String> {
    let training = shares.first().map(|share| ("training", share.dataset().skipped()));
    let tests = tests.map(|tests| ("test", tests.skipped()));
    let words = |(split, skipped): (&str, &Skipped)| {
        let more = if skipped.count > skipped.reasons.len() { "; ..." } else { "" };
        format!("{} {split} samples ({}{more})", skipped.count, skipped.reasons.join("; "))
    };
    training.into_iter().chain(tests).filter(|(_, skipped)| skipped.count > 0).map(words).collect()
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
