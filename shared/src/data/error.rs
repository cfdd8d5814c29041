//! Errors of data: what was found, where, and what would be right.
//!
//! [`DataError`] holds what all formats share: the folder, the file, the record, and what a [`Dataset`](super::Dataset)
//! refuses. An error that only one format has stands in the file of that format and implements [`FormatError`].

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use models::shape::spelled;

/// The most classes there can be: a token has 16 bits, and so has every label in the files of this crate.
pub const MAX_CLASSES: usize = 1 << 16;

/// What a reader was not told and has to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// The names of the classes; these are those of the folders.
    ClassNames(Vec<String>),
    /// The shape that images are to be brought to.
    Shape,
    /// The column that holds the labels.
    LabelColumn,
    /// What the labels are: these are some that were found.
    Labels(String),
}

/// An error that only one format has.
pub trait FormatError: Error + Send + Sync + 'static {
    /// Whether only the labels are missing: the samples could be read without them.
    fn lacks_labels(&self) -> bool {
        false
    }

    /// What the reader was not told, if that is the error.
    fn lacks(&self) -> Option<Lacks> {
        None
    }

    /// Adds the file that the error is in.
    fn in_file(self, path: impl Into<PathBuf>) -> DataError
    where
        Self: Sized,
    {
        DataError::from(self).in_file(path)
    }
}

impl<E: FormatError> From<E> for DataError {
    fn from(error: E) -> Self {
        Self::Format(Box::new(error))
    }
}

/// Why data cannot be used. The person who supplied the data or named its folder can fix all of these.
///
/// In all variants: `directory` and `path` are as they were named; `looked_for` lists the files of every known format;
/// `found` is what the files hold and `expected` what the run has; `row`, `column` and `index` are counted from 0;
/// `shape` is that of one sample; `problem` is the error in the named place.
#[derive(Debug, Error)]
#[expect(missing_docs, reason = "fields are described once, above")]
pub enum DataError {
    /// The samples are known to the clients' trainers alone.
    #[error(
        "the samples are read by the programs that train (data.set = \"trainer\"), and cannot be read here"
    )]
    OfTrainers,
    /// The named folder does not exist.
    #[error("{}: no such directory; name the folder that holds the data files", .path.display())]
    DirectoryAbsent { path: PathBuf },
    /// The named path exists and is not a folder.
    #[error("{}: is not a directory; name the folder that holds the data files", .path.display())]
    NotDirectory { path: PathBuf },
    /// A folder lacks a file of the data set.
    #[error("{}: contains {}", .directory.display(), none_of(.names))]
    NoFile { directory: PathBuf, names: Vec<String> },
    /// A folder holds no known format, or several.
    #[error("{}: {found}; looked for {looked_for}", .directory.display())]
    Unclear { directory: PathBuf, found: String, looked_for: String },
    /// A folder holds samples of the other split only.
    #[error(
        "{}: holds no samples of the {wanted} split, but some of the {there} split; looked for {looked_for}",
        .directory.display()
    )]
    OtherSplit { directory: PathBuf, wanted: &'static str, there: &'static str, looked_for: String },
    /// An error in one file or folder.
    #[error("{}: {problem}", .path.display())]
    InFile {
        path: PathBuf,
        #[source]
        problem: Box<DataError>,
    },
    /// An error in one sample of a file.
    #[error("{place}: {problem}")]
    At {
        place: String,
        #[source]
        problem: Box<DataError>,
    },
    /// An error that only one format has.
    #[error("{0}")]
    Format(Box<dyn FormatError>),
    /// The operating system reports an error, or compressed data is damaged.
    #[error("cannot be read, written or decompressed: {0}")]
    Io(#[from] io::Error),
    /// A header declares, or a caller asks for, more than a reader holds in memory.
    #[error("would take {dimensions:?} bytes, more than the limit of {limit} bytes")]
    TooLarge { dimensions: Vec<usize>, limit: u64 },
    /// There is no sample.
    #[error("holds no sample")]
    Empty,
    /// All samples were skipped.
    #[error("holds no sample that can be used; {count} left out, the first: {first}")]
    AllLeftOut { count: usize, first: String },
    /// Two splits that are put together have classes of other names, or in another order.
    #[error(
        "the classes of one split are {expected} and those of the other {found}, which cannot be put together"
    )]
    OtherNames { expected: String, found: String },
    /// A pool of samples has no more than are to be tested on.
    #[error("{tests} test samples leave none of {samples} in all to train on")]
    NoneToTrainOn { tests: usize, samples: usize },
    /// A written label is not one of the known ones.
    #[error("label {label:?} is none of {known}")]
    UnknownLabel { label: String, known: String },
    /// The samples of this format cannot be read without their labels.
    #[error(
        "holds {format}, and a text labels itself: join without --unlabelled; where the run's labels are at the server, those \
         here are not used"
    )]
    LabelsInside { format: &'static str },
    /// More samples than a 32-bit index can address.
    #[error("holds {found} samples, more than the {} that can be indexed", u32::MAX)]
    TooManySamples { found: usize },
    /// The shape of an image is not `[channels, height, width]`, or has a zero in it.
    #[error("a sample has shape CHANNELSxHEIGHTxWIDTH, all at least 1; found {}", spelled(.found))]
    Shape { found: Vec<usize> },
    /// The shape of a sample has no axis, or one of length 0.
    #[error("a sample has at least one value; found shape {}", spelled(.found))]
    EmptyShape { found: Vec<usize> },
    /// The number of values does not fit the number of labels and the shape.
    #[error("{labels} labels with samples of shape {} need another number of values than {values}", spelled(.shape))]
    ValueCount { labels: usize, shape: Vec<usize>, values: usize },
    /// A feature is NaN or infinite.
    #[error("value {column} of sample {row} is not a finite number (both counted from 0)")]
    NotFinite { row: usize, column: usize },
    /// A number to learn is NaN or infinite.
    #[error("number {output} to learn of sample {row} is not finite (both counted from 0)")]
    NotFiniteTarget { row: usize, output: usize },
    /// The samples of this format have a class each, and numbers were asked for.
    #[error(
        "holds {format}, which has classes as labels; samples with numbers to learn are CSV tables or safetensors files"
    )]
    NoNumbers { format: &'static str },
    /// Texts are to be read of a format that has none in columns.
    #[error("holds {format}, and the texts are to be in the column `{column}` of a CSV table")]
    NoTexts { format: &'static str, column: String },
    /// A column was named where several have names of their own.
    #[error("the columns {names} are learned, and `{column}` cannot take their place: leave --label out")]
    NotOneColumn { column: String, names: String },
    /// A written number is none that can be learned.
    #[error("{found:?} is not {needed}")]
    NotTarget { found: String, needed: &'static str },
    /// The number of classes is zero, or larger than [`MAX_CLASSES`].
    #[error("{found} classes: between 1 and {MAX_CLASSES} are possible")]
    Classes { found: usize },
    /// A label is not the number of a class.
    #[error("sample {row} has label {label}, but with {classes} classes labels run from 0 to {}", classes - 1)]
    Label { row: usize, label: u32, classes: usize },
    /// A token is not one that the network reads.
    #[error("sample {row} has the token {token}, and the network reads those from 0 to {}", vocabulary.saturating_sub(1))]
    Token { row: usize, token: u32, vocabulary: usize },
    /// An index beyond the last sample.
    #[error("sample {index} does not exist: there are {samples}, counted from 0")]
    Index { index: usize, samples: usize },
    /// The files hold samples of another shape than the run's.
    #[error(
        "holds samples of shape {}, and {} is asked for; this format has its shape in its files",
        spelled(.found), spelled(.expected)
    )]
    OtherShape { expected: Vec<usize>, found: Vec<usize> },
    /// The samples have another shape than the model takes.
    #[error(
        "the model takes samples of shape {}, these have {}: name the data that it was trained for, or another model",
        spelled(.expected), spelled(.found)
    )]
    NotForModel { expected: Vec<usize>, found: Vec<usize> },
    /// A file states another number of classes than the model has.
    #[error(
        "holds samples of {found} classes, and a model for {expected} is asked for: set data.classes = {found}"
    )]
    OtherClasses { expected: usize, found: usize },
    /// A sample has more or fewer labels than the model makes predictions.
    #[error(
        "labels of a sample: {labels}, predictions of the model for it: {predictions}; samples with 1 need a model that ends in \
         [classes] (flatten before its last linear layer), and text one that ends in [positions, classes]"
    )]
    OtherLabels { labels: usize, predictions: usize },
}

impl DataError {
    /// Whether only the labels are missing: the samples could be read without them.
    #[must_use]
    pub fn lacks_labels(&self) -> bool {
        match self {
            Self::InFile { problem, .. } => problem.lacks_labels(),
            Self::Format(error) => error.lacks_labels(),
            _ => false,
        }
    }

    /// What the reader was not told, if that is the error. Each program names its own option or key for it.
    #[must_use]
    pub fn lacks(&self) -> Option<Lacks> {
        match self {
            Self::InFile { problem, .. } | Self::At { problem, .. } => problem.lacks(),
            Self::Format(error) => error.lacks(),
            Self::UnknownLabel { label, .. } => Some(Lacks::Labels(label.clone())),
            _ => None,
        }
    }

    /// Adds the file that the error is in.
    #[must_use]
    pub fn in_file(self, path: impl Into<PathBuf>) -> Self {
        Self::InFile { path: path.into(), problem: Box::new(self) }
    }

    /// Adds where in the file the error is: `line 3`, `sample 0`.
    pub(super) fn at(self, place: String) -> Self {
        Self::At { place, problem: Box::new(self) }
    }
}

fn none_of(names: &[String]) -> String {
    match names {
        [name] => format!("no `{name}`"),
        names => format!("neither `{}`", names.join("` nor `")),
    }
}

/// The first of these files that exists in a folder, which must exist itself.
pub(super) fn existing_file(directory: &Path, names: Vec<String>) -> Result<PathBuf, DataError> {
    check_directory(directory)?;
    let mut paths = names.iter().map(|name| directory.join(name));
    let found = paths.find(|path| path.is_file());
    found.ok_or_else(|| DataError::NoFile { directory: directory.to_path_buf(), names })
}

/// Refuses a path that is not an existing folder.
pub(super) fn check_directory(directory: &Path) -> Result<(), DataError> {
    let path = directory.to_path_buf();
    match (directory.is_dir(), directory.exists()) {
        (true, _) => Ok(()),
        (false, true) => Err(DataError::NotDirectory { path }),
        (false, false) => Err(DataError::DirectoryAbsent { path }),
    }
}
