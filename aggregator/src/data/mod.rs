//! The data sets of a configuration.

pub mod digest;
mod kept;
mod pool;
mod test_set;

use std::path::Path;
use std::sync::Arc;

use shared::data::{
    DataError, Dataset, PartitionError, PreparationError, Samples, Skipped, Split, View, glyphs,
};
use shared::seed::Seed;

use crate::config::{Config, Source};

pub use kept::{KeptSamples, kept};
pub use test_set::{EvaluateError, TestSet};

use kept::Kept;

/// The configured data cannot be provided; the operator has to act.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// The data set cannot be read.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The partition is not possible.
    #[error("data.partition: {0}")]
    Partition(#[from] PartitionError),
    /// The preparation is not possible.
    #[error("the training samples cannot be augmented: {0}")]
    Preparation(#[from] PreparationError),
    /// The server's labelled samples cannot be selected.
    #[error("data.labelled = {count}: {problem}; lower it, or give the server other training samples")]
    Labelled {
        /// The configured number.
        count: usize,
        /// The reason.
        problem: PartitionError,
    },
    /// The server is to keep more validation samples than leave something to the clients.
    #[error(
        "data.validation = {count}: there are {samples} training samples for it and the clients; lower it"
    )]
    Validation {
        /// The configured number.
        count: usize,
        /// The training samples without the server's labelled ones.
        samples: usize,
    },
    /// The server is to have labelled samples of text, which contains its own labels.
    #[error(
        "data.labelled = {count}: these samples are text, in which every token is the label of the one before: no device lacks \
         labels; leave data.labelled and data.labels out"
    )]
    LabelledText {
        /// The configured number.
        count: usize,
    },
    /// Text is to be augmented or normalised.
    #[error(
        "these samples are text, which is neither augmented nor normalised; leave [augment] and data.normalise out"
    )]
    PreparedText,
}

/// One split of the configured data set.
pub fn load(config: &Config, split: Split) -> Result<Dataset, DataError> {
    match &config.data.source {
        Source::Drawn { train, test } => {
            let count = if split == Split::Train { *train } else { *test };
            glyphs::generate(&config.spec.root_seed(), split, count)
        }
        Source::Trainers => Err(DataError::OfTrainers),
        Source::Files { folder, limit, test_limit } => {
            let whole = match test_limit {
                Some(tests) if config.data.pooled => {
                    let sets = [read(config, folder, Split::Train)?, read(config, folder, Split::Test)?];
                    pool::divided(sets.each_ref(), *tests, split)?
                }
                _ => read(config, folder, split)?,
            };
            match (split, limit, test_limit) {
                // Published sets are shuffled; a folder per class or a table may be sorted.
                (Split::Train, Some(limit), _) if config.data.set.is_own() => whole.thin(*limit),
                (Split::Train, Some(limit), _) => whole.limit(*limit),
                // The test samples of a published set may stand in an order: the last 5,000 of MNIST are the harder ones.
                (Split::Test, _, Some(limit)) => whole.thin(*limit),
                _ => Ok(whole),
            }
        }
    }
}

/// One split of the files in a folder.
fn read(config: &Config, folder: &Path, split: Split) -> Result<Dataset, DataError> {
    let format = config.data.set.format.expect("a set that is not drawn has a format");
    let whole = format.load(folder, split, &config.data.reading)?;
    config.data.reading.check_shape(folder, whole.shape())?;
    let (expected, found) = (config.spec.architecture.classes, whole.classes());
    if found != expected {
        return Err(DataError::OtherClasses { expected, found }.in_file(folder));
    }
    let (labels, predictions) = (whole.predictions_each(), config.spec.architecture.predictions());
    if let Ok(predictions) = predictions
        && predictions != labels
    {
        return Err(DataError::OtherLabels { labels, predictions }.in_file(folder));
    }
    if let Some(vocabulary) = config.spec.architecture.vocabulary() {
        whole.check_vocabulary(vocabulary).map_err(|error| error.in_file(folder))?;
    }
    Ok(whole)
}

/// Whether the run evaluates the model, or clients' personal models.
#[must_use]
pub fn is_tested(config: &Config) -> bool {
    config.spec.evaluate.every > 0
        || config.spec.evaluate.on_clients_every > 0
        || config.spec.personalised().is_some()
}

/// Whether the run cannot do without a test split: where clients hold samples out and nothing else is tested, it can.
fn needs_test_split(config: &Config) -> bool {
    let evaluation = &config.spec.evaluate;
    let held_out = evaluation.hold_out > 0.0 && evaluation.every == 0 && config.spec.personalised().is_none();
    is_tested(config) && !held_out
}

/// The test set, if the run evaluates models and there are samples for it.
pub fn test_set(config: &Config) -> Result<Option<TestSet>, DataError> {
    if !is_tested(config) || config.data.source == Source::Trainers {
        return Ok(None);
    }
    let Some(tests) = test_samples(config)? else { return Ok(None) };
    let view = View::whole(Arc::new(tests));
    Ok(Some(TestSet::new(view, config.spec.data.preparation.clone(), config.spec.evaluate.batch as usize)))
}

/// The test samples; `None` if there are none and the run needs none.
pub fn test_samples(config: &Config) -> Result<Option<Dataset>, DataError> {
    match load(config, Split::Test) {
        Err(DataError::NoFile { .. } | DataError::OtherSplit { .. }) if !needs_test_split(config) => Ok(None),
        tests => tests.map(Some),
    }
}

/// One sentence each about skipped training and test samples; empty if none were skipped.
#[must_use]
pub fn left_out(shares: &[View], tests: Option<&Skipped>) -> Vec<String> {
    let training = shares.first().map(|share| ("training", share.dataset().skipped()));
    let tests = tests.map(|skipped| ("test", skipped));
    let words = |(split, skipped): (&str, &Skipped)| skipped.in_words(&format!("{split} sample"));
    training.into_iter().chain(tests).filter_map(words).collect()
}

/// Every client's part of the training samples, by the configured partition. If the partition allows it, parts may be empty:
/// such clients do not take part.
pub fn shares(config: &Config) -> Result<Vec<View>, PlanError> {
    divide(config, load(config, Split::Train)?)
}

/// [`shares`] of training samples that are already loaded.
pub fn divide(config: &Config, train: impl Into<Arc<Dataset>>) -> Result<Vec<View>, PlanError> {
    let dataset = train.into();
    if matches!(dataset.samples(), Samples::Tokens(_)) && !config.spec.data.preparation.is_nothing() {
        return Err(PlanError::PreparedText);
    }
    config.spec.data.preparation.check(&View::whole(dataset.clone()))?;
    let seed = Seed::root(config.data.seed).derive("partition");
    let (partition, clients) = (&config.data.partition, config.data.clients);
    // No client gets the server's samples.
    let kept = Kept::of(config, &dataset)?;
    let parts = if kept.is_nothing() {
        partition.divide(&dataset, clients, &seed)?
    } else {
        partition.divide_some(&dataset, &kept.others(dataset.len()), clients, &seed)?
    };
    let views = parts.into_iter().map(|indices| View::select(dataset.clone(), indices));
    Ok(views.collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use shared::id::RunId;

    use super::*;
    use crate::config::Raw;

    pub(super) fn refused(error: Option<PlanError>) -> String {
        error.map(|error| error.to_string()).unwrap_or_default()
    }

    pub(super) fn config(overrides: &[&str]) -> Config {
        let overrides: Vec<String> = overrides.iter().map(|&given| given.to_owned()).collect();
        let raw = Raw::layered(None, &overrides).expect("keys that exist");
        Config::validate(&raw, RunId::from_bytes([1; 8])).expect("a valid configuration")
    }

    #[test]
    fn a_seed_of_its_own_keeps_who_has_what_over_runs_of_other_seeds() {
        let common = ["data.max-samples=200", "data.clients=3"];
        let who = |seeds: &[&str]| -> Vec<Vec<u32>> {
            let config = config(&[&common[..], seeds].concat());
            shares(&config).expect("divided").iter().map(|share| share.indices().to_vec()).collect()
        };
        let seven = who(&["run.seed=7"]);
        assert_eq!(who(&["run.seed=7", "data.seed=7"]), seven);
        assert_eq!(who(&["run.seed=8", "data.seed=7"]), seven);
        assert_ne!(who(&["run.seed=7", "data.seed=8"]), seven);
    }

    #[test]
    fn text_is_not_prepared_like_images() {
        let text = Dataset::labelled(vec![2], Samples::Tokens(vec![0, 1, 1, 2]), vec![1, 2, 2, 0], 3);
        let whitened = config(&["data.max-samples=200", "data.clients=3", "data.normalise=whiten"]);
        let said = refused(divide(&whitened, text.expect("two samples")).err());
        assert!(said.contains("these samples are text") && said.contains("data.normalise"), "{said}");
    }

    #[test]
    fn a_pool_of_both_splits_is_divided_anew() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (file, rows) in [("train.csv", 0..8), ("test.csv", 8..12)] {
            let rows: String = rows.map(|row| format!("{row},0,{}\n", row % 2)).collect();
            std::fs::write(folder.path().join(file), format!("a,b,label\n{rows}")).expect("written");
        }
        let path = format!("data.path={}", folder.path().display());
        let table =
            ["data.set=csv", &path, "data.shape=2", "data.classes=2", "model.name=linear", "data.clients=2"];
        let pooled = config(&[&table[..], &["data.pooled=true", "data.max-test-samples=5"]].concat());
        let rows = |split| -> Vec<f32> {
            let Samples::Floats(values) = load(&pooled, split).expect("read").samples().clone() else {
                panic!("numbers")
            };
            values.iter().copied().step_by(2).collect()
        };
        let (train, test) = (rows(Split::Train), rows(Split::Test));
        assert_eq!((train.len(), test.len()), (7, 5));
        let mut all = [train, test].concat();
        all.sort_by(f32::total_cmp);
        assert_eq!(all, (0..12).map(|row| row as f32).collect::<Vec<_>>());
    }

    #[test]
    fn a_limit_of_test_samples_takes_them_evenly_and_leaves_the_training_samples() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let rows: String = (0..8).map(|row| format!("{row},0,{}\n", row / 4)).collect();
        for file in ["train.csv", "test.csv"] {
            std::fs::write(folder.path().join(file), format!("a,b,label\n{rows}")).expect("written");
        }
        let path = format!("data.path={}", folder.path().display());
        let table = ["data.set=csv", &path, "data.shape=2", "data.classes=2", "model.name=linear"];
        let limited = config(&[&table[..], &["data.max-test-samples=4"]].concat());
        let labels = |split| load(&limited, split).expect("read").labels().to_vec();
        assert_eq!((labels(Split::Test), labels(Split::Train).len()), (vec![0, 0, 1, 1], 8));
        let drawn = load(&config(&["data.max-test-samples=30"]), Split::Test).expect("drawn");
        assert_eq!(drawn.len(), 30);
    }

    #[test]
    fn files_that_have_more_or_fewer_labels_than_the_model_predicts_are_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = format!("data.path={}", folder.path().display());
        std::fs::write(folder.path().join("train.csv"), "a,b,c,d,label\n1,2,3,4,0\n").expect("written");
        let table = ["data.set=csv", &path, "data.shape=[2, 2]", "data.classes=2"];
        let mut config =
            config(&[&table[..], &["model.layers=[\"flatten\", { linear = \"classes\" }]"]].concat());
        assert!(load(&config, Split::Train).is_ok());
        // Where only the file says how many labels there are, the configuration is no hindrance.
        config.spec.architecture.extractor.clear();
        assert_eq!(config.spec.architecture.predictions(), Ok(2));
        let refused = load(&config, Split::Train).expect_err("a label for each sample").to_string();
        assert!(refused.contains("labels of a sample: 1, predictions of the model for it: 2"), "{refused}");
    }

    #[test]
    fn colours_of_what_is_no_colour_are_refused() {
        let common = ["data.max-samples=200", "data.clients=3"];
        let config = config(&[&common[..], &["augment.contrast=0.1"]].concat());
        let train = Dataset::labelled(vec![1, 28, 28], Samples::Floats(vec![2.0; 784]), vec![0], 10)
            .expect("a sample");
        let said = divide(&config, train).expect_err("refused").to_string();
        assert!(said.contains("cannot be augmented") && said.contains("a 2 among"), "{said}");
    }

    #[test]
    fn files_without_labels_that_count_are_refused_with_their_names() {
        use shared::data::idx;

        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = format!("data.path={}", folder.path().display());
        let config = config(&["data.set=mnist", &path, "data.clients=2", "data.labelled=10"]);
        let refused = || kept::kept(&config).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused().contains("train-images-idx3-ubyte"), "absent: {}", refused());

        let file = |name: &str, magic: u32, sizes: &[u32], content: &[u8]| {
            let header = [&[magic], sizes].concat();
            let mut bytes: Vec<u8> = header.iter().flat_map(|word| word.to_be_bytes()).collect();
            bytes.extend_from_slice(content);
            std::fs::write(folder.path().join(name), bytes).expect("written");
        };
        file("train-images-idx3-ubyte", 0x0803, &[0, 28, 28], &[]);
        file("train-labels-idx1-ubyte", 0x0801, &[0], &[]);
        assert!(refused().contains("holds no sample"), "empty: {}", refused());

        file("train-images-idx3-ubyte", 0x0803, &[2, 28, 28], &[0; 2 * 28 * 28]);
        file("train-labels-idx1-ubyte", 0x0801, &[2], &[3, 11]);
        assert!(refused().contains("label 11, but with 10 classes"), "other classes: {}", refused());

        let few = Dataset::new(vec![1, 28, 28], vec![0; 2 * 28 * 28], [3_u8, 4], 10).expect("two samples");
        idx::write_split(folder.path(), Split::Train, &few).expect("written");
        assert!(refused().contains("data.labelled = 10: class 0 has 0"), "too few: {}", refused());
    }
}
