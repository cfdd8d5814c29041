//! Reading the device's samples for `join`: at once where the arguments say how, else as the run says.

use std::path::PathBuf;
use std::sync::Arc;

use models::shape::spelled;
use shared::data::error::MAX_CLASSES;
use shared::data::{
    DataError, Dataset, Format, Labels, OnError, ReadOptions, Split, View, registry, safetensors,
};
use shared::spec::{LabelsAt, Reading};
use tracing::warn;

use super::arguments::JoinArguments;
use super::error::{CliError, Exit};
use super::event::{Event, Output};
use crate::driver::{DeviceSamples, Source};
use crate::failure::{Blame, Failure};
use crate::memory;
use crate::task::TestSamples;

/// What the arguments say of the samples.
#[derive(Clone, Debug)]
struct Given {
    folder: PathBuf,
    label: Option<String>,
    on_error: OnError,
    classes: Option<Labels>,
    unlabelled: bool,
    shape: Option<Vec<usize>>,
}

/// Samples that were read: their format, and how.
pub(super) struct Found {
    pub(super) format: Format,
    pub(super) options: ReadOptions,
    pub(super) data: Dataset,
}

/// The samples of `join`: read, if the arguments say how, else to be read once the run has said it.
pub(super) fn source(arguments: &JoinArguments, output: &Output) -> Result<(Format, Source), CliError> {
    let given = Given::of(arguments);
    if given.says_all() {
        let found = at_once(arguments)?;
        let format = found.format;
        return Ok((format, Source::Read(given.samples(found, output))));
    }
    // What can be read in no way is refused before the server is asked.
    let labelled = ReadOptions::default();
    let format = registry::detect(&given.folder, Split::Train, &labelled).or_else(|error| {
        registry::detect(&given.folder, Split::Train, &ReadOptions::unlabelled()).map_err(|_| error)
    })?;
    undamaged(&given, format)?;
    let output = output.clone();
    let read = move |reading: &Reading| {
        let found = given
            .read(reading)
            .map_err(|reason| Failure { permanent: true, ..Failure::new(Blame::Owner, reason) })?;
        Ok(given.samples(found, &output))
    };
    Ok((format, Source::AsTheRunSays(Arc::new(read))))
}

/// Refuses files that are damaged, where labels are numbers and can be read without knowing how many classes there are. Labels
/// that are not there may not be needed.
fn undamaged(given: &Given, format: Format) -> Result<(), CliError> {
    let labels = Some(match safetensors::numbers_to_learn(&given.folder, Split::Train) {
        Some(outputs) => Labels::Values { outputs, names: Vec::new(), flags: false },
        None => Labels::Numbers(MAX_CLASSES),
    });
    let options = ReadOptions { labels, on_error: given.on_error, ..ReadOptions::default() };
    let numbered = ["idx", "safetensors"].iter().filter_map(|name| registry::data_set(name)?.format);
    if !numbered.into_iter().any(|numbered| numbered.to_string() == format.to_string()) {
        return Ok(());
    }
    match format.load(&given.folder, Split::Train, &options) {
        Err(error) if !error.lacks_labels() => Err(error.into()),
        _ => Ok(()),
    }
}

impl Given {
    fn of(arguments: &JoinArguments) -> Self {
        let (samples, reading) = (&arguments.samples, &arguments.reading);
        Self {
            folder: samples.folder().to_owned(),
            label: samples.label.clone(),
            on_error: samples.on_error,
            classes: reading.classes.clone(),
            unlabelled: reading.unlabelled,
            shape: reading.shape.as_ref().map(|shape| shape.0.clone()),
        }
    }

    /// Whether the samples are read without asking the run.
    fn says_all(&self) -> bool {
        self.unlabelled || self.classes.is_some()
    }

    /// Reads as the run says, unless the arguments say something else.
    fn read(&self, reading: &Reading) -> Result<Found, String> {
        if let Some(shape) = self.shape.as_ref().filter(|shape| **shape != reading.shape) {
            return Err(format!(
                "the run takes samples of shape {}, and --shape says {}: leave --shape out",
                spelled(&reading.shape),
                spelled(shape)
            ));
        }
        let options = reading.options(self.on_error).with_column(self.label.as_deref());
        let mut options = options.map_err(|error| error.to_string())?;
        let mut read = read(&self.folder, &options);
        if reading.labels == LabelsAt::Server && read.is_err() {
            // The labels of devices do not count in this run.
            let without = options.without_labels();
            if let Ok(found) = self::read(&self.folder, &without) {
                (read, options) = (Ok(found), without);
            }
        }
        let (format, data) = read.map_err(|problem| {
            let text = CliError::from(problem).to_string();
            format!("{text}; the run says: shape {}, {}", spelled(&reading.shape), learned(reading))
        })?;
        Ok(Found { format, options, data })
    }

    /// The samples for the driver; their number is shown.
    fn samples(&self, found: Found, output: &Output) -> DeviceSamples {
        let Found { format, options, data } = found;
        let skipped = data.skipped().clone();
        let (count, samples, shape) = (skipped.count as u64, data.len(), data.shape().to_vec());
        output.show(&Event::Samples { format, skipped, samples, shape });
        let unlabelled = options.labels.is_none();
        let tests =
            if unlabelled { TestSamples::none() } else { tests(format, self.folder.clone(), options) };
        let data = View::whole(Arc::new(data));
        // Reading has freed large buffers, which are not needed before the first round.
        memory::give_back();
        DeviceSamples { data, skipped: count, tests, trainer: None }
    }
}

/// What is learned in the run, in words.
fn learned(reading: &Reading) -> String {
    let labels = reading.options(OnError::Stop).labels.map_or_else(String::new, |labels| labels.in_words());
    if reading.class_names.is_empty() || reading.task.is_classification() {
        return format!("{labels}, in column `{}`", reading.label);
    }
    // Each has a column of its name.
    labels
}

fn read(folder: &std::path::Path, options: &ReadOptions) -> Result<(Format, Dataset), DataError> {
    let (format, data) = registry::read(folder, Split::Train, options)?;
    options.check_shape(folder, data.shape())?;
    Ok((format, data))
}

/// Reads as the arguments say.
fn at_once(arguments: &JoinArguments) -> Result<Found, CliError> {
    samples(arguments).map_err(|problem| or_unlabelled(problem, arguments))
}

/// The device's training samples, their format, and how they are read.
pub(super) fn samples(arguments: &JoinArguments) -> Result<Found, DataError> {
    let options = arguments.reading.options(arguments.samples.label.as_deref(), arguments.samples.on_error);
    let (format, data) = read(arguments.samples.folder(), &options)?;
    Ok(Found { format, options, data })
}

/// The error of a device whose samples cannot be read. Names `--unlabelled` if only the labels are missing.
pub(super) fn or_unlabelled(problem: DataError, arguments: &JoinArguments) -> CliError {
    // Images outside class folders are only found by a reader without labels.
    let unsorted = || {
        let options = ReadOptions::unlabelled();
        matches!(problem, DataError::Unclear { .. })
            && registry::detect(arguments.samples.folder(), Split::Train, &options).is_ok()
    };
    if !arguments.reading.unlabelled && (problem.lacks_labels() || unsorted()) {
        let way = "join with --unlabelled if the run's labels are at the server";
        return CliError::new(Exit::Local, format!("{problem}; {way}"));
    }
    problem.into()
}

/// The test split beside the device's training samples, if it has one of the same format.
fn tests(format: Format, folder: PathBuf, options: ReadOptions) -> TestSamples {
    TestSamples::new(move || {
        if !format.is_in(&folder, Split::Test)? {
            return Ok(None);
        }
        let tests = format.load(&folder, Split::Test, &options)?;
        if let Some(words) = tests.skipped().in_words("test sample") {
            warn!("left out, since they cannot be used: {words}");
        }
        Ok(Some(View::whole(Arc::new(tests))))
    })
}

#[cfg(test)]
mod tests_of_reading {
    use clap::Parser;
    use models::{Array, ParamSet, Precision, codec};
    use shared::data::Samples;
    use shared::data::idx::write_split;
    use shared::spec::RunSpec;

    use super::super::arguments::{Arguments, Command};
    use super::*;

    fn join(folder: &std::path::Path, more: &[&str]) -> JoinArguments {
        let data = folder.to_str().unwrap();
        let line = [&["edge-client", "join", "lab:1", "--data", data], more].concat();
        match Arguments::try_parse_from(line).unwrap().command {
            Command::Join(join) => join,
            other => panic!("{other:?}"),
        }
    }

    /// A run of tables with two columns.
    fn reading(names: &[&str], label: &str) -> Reading {
        let mut spec = RunSpec::example("fedavg");
        spec.data.shape = vec![2];
        spec.data.class_names = names.iter().map(|&name| name.to_owned()).collect();
        label.clone_into(&mut spec.data.column);
        Reading::of(&spec)
    }

    #[test]
    fn a_device_without_arguments_reads_as_the_run_says() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("train.csv"), "kind,a,b\ndog,1,2\ncat,3,4\n").unwrap();
        let given = |more: &[&str]| Given::of(&join(folder.path(), more));
        let found =
            given(&[]).read(&reading(&["cat", "dog"], "kind")).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((found.data.labels(), found.data.class_names().len()), (&[1, 0][..], 2));
        let said = |given: Given, reading: &Reading| given.read(reading).err().unwrap_or_default();
        let column = said(given(&[]), &reading(&["cat", "dog"], "label"));
        assert!(column.contains("--label COLUMN"), "{column}");
        assert!(given(&["--label", "kind"]).read(&reading(&["cat", "dog"], "label")).is_ok());
        // A run of texts names their column.
        let mut of_texts = RunSpec::example("fedavg");
        of_texts.data.shape = vec![3];
        of_texts.data.text = Some("kind".to_owned());
        of_texts.data.column = "a".to_owned();
        of_texts.architecture.classes = 4;
        let texts = Reading::from_text(&Reading::of(&of_texts).to_text()).unwrap();
        let found = given(&[]).read(&texts).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((found.data.labels(), found.data.shape()), (&[1, 3][..], &[3][..]));
        assert_eq!(found.data.samples(), &Samples::Tokens(vec![101, 112, 104, 100, 98, 117]));
        let other = said(given(&[]), &reading(&["cat", "fox"], "kind"));
        assert!(other.contains("\"dog\" is none of cat, fox") && other.contains("the run says"), "{other}");
        let shape = said(given(&["--shape", "1x2x1"]), &reading(&["cat", "dog"], "kind"));
        assert_eq!(shape, "the run takes samples of shape 2, and --shape says 1x2x1: leave --shape out");
        assert!(!given(&[]).says_all() && given(&["--classes", "cat,dog"]).says_all());
    }

    #[test]
    fn damaged_files_are_refused_before_the_server_is_asked_and_absent_labels_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let set = Dataset::new(vec![1, 1, 2], vec![0; 4], vec![0_u8, 11], 12).unwrap();
        write_split(folder.path(), Split::Train, &set).unwrap();
        let asked = || source(&join(folder.path(), &[]), &Output::Json).map(|(_, source)| source);
        assert!(matches!(asked(), Ok(Source::AsTheRunSays(_))));
        std::fs::remove_file(folder.path().join("train-labels-idx1-ubyte")).unwrap();
        assert!(asked().is_ok(), "the run may have its labels at the server");
        std::fs::write(folder.path().join("train-images-idx3-ubyte"), "damaged").unwrap();
        std::fs::write(folder.path().join("train-labels-idx1-ubyte"), "damaged").unwrap();
        assert!(asked().unwrap_err().to_string().contains("is not an IDX file"));
    }

    #[test]
    fn images_without_names_are_told_the_option_with_the_names_of_their_folders() {
        let folder = tempfile::tempdir().unwrap();
        for class in ["cat", "dog"] {
            std::fs::create_dir(folder.path().join(class)).unwrap();
            std::fs::write(folder.path().join(class).join("1.png"), "x").unwrap();
        }
        let arguments = join(folder.path(), &["--classes", "2"]);
        let error = at_once(&arguments).err().unwrap().to_string();
        assert!(error.contains("--classes cat,dog"), "{error}");
    }

    #[test]
    fn samples_without_labels_are_told_of_the_way_to_join_with_them() {
        let folder = tempfile::tempdir().unwrap();
        let data = |name: &str, file: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::create_dir(&path).unwrap();
            std::fs::write(path.join(file), bytes).unwrap();
            path
        };
        let idx = data("idx", "README.md", b"");
        let set = Dataset::new(vec![1, 1, 2], vec![0; 4], vec![0_u8, 1], 2).unwrap();
        write_split(&idx, Split::Train, &set).unwrap();
        std::fs::remove_file(idx.join("train-labels-idx1-ubyte")).unwrap();
        let mut x = ParamSet::new();
        x.insert("x", Array::zeros([2, 3]));
        let tensors = codec::to_bytes(&x, Precision::F32, &std::collections::BTreeMap::new()).unwrap();
        for (path, lacks) in [
            (idx, "train-labels-idx1-ubyte"),
            (data("table", "train.csv", b"a,b\n1,2\n"), "columns are named `label`"),
            (data("tensors", "train.safetensors", &tensors), "no tensor `y`"),
            (data("images", "1.png", b"damaged"), "holds no samples of the train split"),
        ] {
            let arguments = join(&path, &[]);
            let error = or_unlabelled(samples(&arguments).err().unwrap(), &arguments).to_string();
            for part in [lacks, "join with --unlabelled if the run's labels are at the server"] {
                assert!(error.contains(part), "no {part:?} in {error}");
            }
            let without = samples(&join(&path, &["--unlabelled"]));
            assert!(without.is_ok() || path.ends_with("images"), "{}", path.display());
        }
        // Where more is missing than labels, it is no way.
        let arguments = join(&data("other", "test.csv", b"a,label\n1,2\n"), &[]);
        let problem = samples(&arguments).err().unwrap();
        assert!(matches!(problem, DataError::OtherSplit { .. }), "{problem}");
        let expected = format!("the data cannot be used: {problem}");
        assert_eq!(or_unlabelled(problem, &arguments).to_string(), expected);
    }
}
